"""A few threads for work of the CPU that is made of independent pieces: proofs of large products.

The pieces are numpy's and torch's, which let go of the interpreter's lock while they compute. torch's own threads do
not help numpy, and where there are as many of them as cores, each of their many short steps lasts as long as on the
slowest core: one that somebody else uses.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")

WORKERS_MAX = 8
"""Memory bandwidth is shared, and each worker holds the temporaries of one piece."""


def spread(work: Callable[[Piece], Result], pieces: Sequence[Piece], *, torch_inside: bool = False) -> Iterator[Result]:
    """Yield `work(piece)` for each piece, in the order of the pieces.

    They are computed by as many threads as torch may use here, at most `WORKERS_MAX`; with one, by the caller, each
    when it is asked for. Whoever closes the iterator early leaves out what has not begun.

    Args:
        work: may be called by several threads at once; must not depend on the order of the pieces.
        pieces: what is independent of each other, a few milliseconds of work each.
        torch_inside: `work` computes with torch, which then uses one thread in each of ours.

    Raises:
        Exception: what `work` raised for the first piece in order that failed.
    """
    threads = torch.get_num_threads()
    workers = min(threads, WORKERS_MAX, len(pieces))
    if workers <= 1:
        yield from map(work, pieces)
        return
    alone = (torch.set_num_threads, (1,)) if torch_inside else (None, ())
    pool = ThreadPoolExecutor(workers, "crew", *alone)
    try:
        for future in [pool.submit(work, piece) for piece in pieces]:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        if torch_inside:  # what a thread sets is also what threads that start later begin with
            torch.set_num_threads(threads)
