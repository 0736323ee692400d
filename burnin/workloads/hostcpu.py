"""The host's CPU, which proves the goldens: the same exact product on two of its cores must have the same bits.

A golden from a corrupting CPU would blame healthy GPUs, so a run whose CPU disagrees with itself trusts no proof.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

SIZE = 160
"""Rows and columns; the int64 product takes some milliseconds a repetition."""
MAGNITUDE = 1 << 20
"""Operands lie in ±2²⁰: |sum| ≤ SIZE · 2⁴⁰ < 2⁴⁸, exact in float64 (below 2⁵³) and int64 alike."""
REPEATS = 5


@contextmanager
def only(core: int | None) -> Iterator[None]:
    """Let this thread compute on one core, without the help of others; with None nothing changes.

    Raises:
        OSError: This process may not use that core any more.
    """
    if core is None:
        yield
        return
    allowed, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, allowed)


def check(seed: int, *, alive: Callable[[], None]) -> dict[str, Any]:
    """Compute on two cores, chosen by the seed.

    Returns:
        `cores` (the two CPU numbers; fewer when this process may use only one), `equal`, and `why`.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:  # noqa: PLR2004 - it takes two to compare
        return {"cores": allowed, "equal": True, "why": "this process may use one CPU core only"}
    cores = random.Random(seed).sample(allowed, 2)  # noqa: S311 - a choice that can be repeated, no secret
    results = []
    for core in cores:
        with only(core):
            results.append([_product(seed + repeat, alive) for repeat in range(REPEATS)])
    equal = results[0] == results[1]
    why = f"cores {cores[0]} and {cores[1]} " + ("agree" if equal else "give different products of the same integers")
    return {"cores": cores, "equal": equal, "why": why}


def _product(seed: int, alive: Callable[[], None]) -> str:
    """Digest of one product of integers, by the integer units and by the vector units: both must agree too."""
    alive()
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-MAGNITUDE, MAGNITUDE, size=(2, SIZE, SIZE), dtype=np.int64)
    whole = a @ b
    left, right = (torch.from_numpy(one).to(torch.float64) for one in (a, b))  # by the library that proves goldens
    vector = (left @ right).to(torch.int64).numpy()
    return blake2b(whole.tobytes() + vector.tobytes(), digest_size=8).hexdigest()
