"""What all ranks do together in a check: go on only if all can, test products and transfers.

Whoever cannot go on says so before anybody waits for it: every branch is taken from facts that all ranks have.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from burnin.guard.hashes import Hasher
from burnin.guard.probe import Transfers, products_are_exact
from burnin.guard.ranks import GoneError, Ranks
from burnin.guard.replay import REPLAY_ERRORS

_T = TypeVar("_T")


class UncheckedError(Exception):
    """This step, or this part of it, could not be checked; says why."""


def together(ranks: Ranks, work: Callable[[], _T], what: str) -> _T:
    """Do something that all ranks do; if one cannot, none goes on. Raises UncheckedError, GoneError."""
    result, why = None, ""
    try:
        result = work()
    except GoneError:
        raise
    except REPLAY_ERRORS as error:
        why = f"{what} failed: {line_of(error)}"
    agree(ranks, why, what)
    return result  # type: ignore[return-value]  # it is set when nothing failed


def agree(ranks: Ranks, why: str, what: str) -> None:
    """Tell the others that this rank can go on ("") or why it cannot. Raises UncheckedError, GoneError."""
    failed = [rank for rank, (bad,) in enumerate(ranks.gather([int(bool(why))])) if bad]
    if failed:
        raise UncheckedError(why or f"{what} failed on rank {failed[0]}")


def exact_products(ranks: Ranks, device: torch.device, seed: int) -> list[bool]:
    """Whether each rank's integer products are right. Raises UncheckedError, GoneError."""
    mine = together(ranks, lambda: products_are_exact(device, seed), "the exact test")
    return [bool(one[0]) for one in ranks.gather([int(mine)])]


def wrong_pairs(ranks: Ranks, hasher: Hasher, device: torch.device, seed: int) -> list[tuple[int, int]]:
    """Return (from, to) of the transfers between ranks that go wrong. Raises UncheckedError, GoneError.

    Three phases, each agreed on: no rank waits in a collective that another could not begin.
    """
    what = "the exact transfers"
    group: Any = together(ranks, ranks.transfer_group, what)
    transfers = together(ranks, lambda: Transfers(device, seed, group), what)
    try:
        together(ranks, transfers.launch, what)
        mine = together(ranks, lambda: transfers.finish(hasher), what)
    except (UncheckedError, GoneError):
        ranks.drop_transfer_group()
        raise
    told = ranks.gather([int(source in mine) for source in range(ranks.world)])
    return [(source, rank) for rank, row in enumerate(told) for source, wrong in enumerate(row) if wrong]


def line_of(error: BaseException) -> str:
    """Return what an error says, in one line."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {text:.200}"
