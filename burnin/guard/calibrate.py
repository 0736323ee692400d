"""Calibration: which tensors of a step come out the same, bit by bit, every time, on every rank.

Only these are compared afterwards. Two replays are not enough to know: an algorithm with four possible results gives
the same one twice in a quarter of all pairs. Nor are ten: what differs once in a hundred runs is found by following the
data (`burnin.guard.structure`); what neither finds is learned later, and withdrawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from burnin.guard.hashes import Hasher
from burnin.guard.ranks import Ranks
from burnin.guard.replay import REPLAY_ERRORS, Print, Replayer, StepFunction
from burnin.guard.settings import advice
from burnin.guard.sources import strictly
from burnin.guard.state import Start
from burnin.guard.structure import Origin
from burnin.guard.trace import Tracer, unstable
from burnin.keys import derive


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstable:
    """A tensor that is not reproducible, and so is not checked."""

    name: str
    distinct: int
    """Different values on this rank, the original included; 1: it was the same each time, and need not be."""
    operations: tuple[str, ...]
    """Operations that gave different results for the same inputs, or are documented to; empty: not found."""
    set: str
    """What to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a calibration found."""

    replays: int
    ranks: int
    names: tuple[str, ...]
    """Reproducible on every rank."""
    places: tuple[int, ...] = ()
    """Number of the operation that made each of `names`; empty: not known."""
    unsound: str = ""
    """Why `names` rest on equal replays alone; "": nothing that they are computed from is known to differ."""
    unstable: tuple[Unstable, ...] = ()
    odd_ranks: tuple[int, ...] = ()
    """Ranks that do not reproduce what most others do: suspect."""

    def in_order(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return some of them in the order in which they are computed, as far as that is known."""
        places = dict(zip(self.names, self.places, strict=True)) if self.places else {}
        return tuple(sorted(names, key=lambda name: places.get(name, 0)))

    @property
    def share(self) -> float:
        """Reproducible tensors among all."""
        return len(self.names) / max(1, len(self.names) + len(self.unstable))


def calibrate(
    replayer: Replayer, ranks: Ranks, hasher: Hasher, fn: StepFunction, batch: Any, *, start: Start, original: Print,
    seed: int, replays: int,
) -> Calibration:  # fmt: skip
    """Replay a step and compare; every rank does.

    Raises:
        GoneError: a rank is missing.
        ValueError: the ranks' steps have different tensors.
        REPLAY_ERRORS: a replay failed, here or on another rank.
    """
    prints, why = [original], ""
    for _ in range(replays):
        try:
            prints.append(replayer.replay(fn, batch, start, seed))
        except REPLAY_ERRORS as error:
            why = f"{type(error).__name__}: {error}"
        if any(failed for (failed,) in ranks.gather([int(bool(why))])):
            raise RuntimeError(why or "a replay failed on another rank")
    names = sorted(set[str]().union(*(one.arithmetic for one in prints)))
    if len({row[0] for row in ranks.gather([derive(0, "names", *names)])}) > 1:
        raise ValueError("the ranks' steps have different tensors")
    distinct = [len({one.arithmetic.get(name) for one in prints}) for name in names]
    told = ranks.gather([int(count == 1) for count in distinct])
    steady = [all(row[index] for row in told) for index in range(len(names))]
    origins, why = _origins(replayer, ranks, fn, batch, names, start=start, seed=seed)
    operations: tuple[str, ...] = ()
    if not all(good or origin.taint for good, origin in zip(steady, origins, strict=True)):
        operations = _operations(replayer, hasher, fn, batch, start=start, seed=seed)
    kept = [index for index, origin in enumerate(origins) if steady[index] and not origin.taint]
    return Calibration(
        replays=replays,
        ranks=ranks.world,
        names=tuple(names[index] for index in kept),
        places=() if why else tuple(origins[index].place for index in kept),
        unsound="" if strictly() else why,
        unstable=tuple(
            _unstable(names[index], distinct[index], (origin.taint,) if origin.taint else operations)
            for index, origin in enumerate(origins)
            if index not in kept
        ),
        odd_ranks=odd_ranks([[row[index] for index, one in enumerate(origins) if not one.taint] for row in told]),
    )


def withdraw(calibration: Calibration, names: Sequence[str]) -> tuple[Calibration, tuple[str, ...]]:
    """Take back that tensors are reproducible, and all that are computed after the first of them.

    Args:
        calibration: of which they are part.
        names: that turned out to differ from run to run.

    Returns:
        The calibration without them, and what was taken out of it.
    """
    places = dict(zip(calibration.names, calibration.places, strict=True)) if calibration.places else {}
    first = min((places[name] for name in names if name in places), default=0)
    gone = tuple(name for name in calibration.names if name in names or (name in places and places[name] >= first > 0))
    left = [name for name in calibration.names if name not in gone]
    unstable = tuple(_unstable(name, 2 if name in names else 1, ()) for name in gone)
    return (
        replace(
            calibration,
            names=tuple(left),
            places=tuple(places[name] for name in left if name in places),
            unstable=calibration.unstable + unstable,
        ),
        gone,
    )


def _unstable(name: str, distinct: int, operations: tuple[str, ...]) -> Unstable:
    return Unstable(name=name, distinct=distinct, operations=operations, set=advice_of(operations))


def odd_ranks(told: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the ranks that do not reproduce a tensor which a strict majority of at least three does."""
    odd: set[int] = set()
    for column in zip(*told, strict=True):
        good = sum(column)
        if good >= 3 and 2 * good > len(column):  # noqa: PLR2004 - `burnin.vote.MIN_MAJORITY`
            odd |= {rank for rank, steady in enumerate(column) if not steady}
    return tuple(sorted(odd))


def advice_of(operations: Sequence[str]) -> str:
    """Return what to set for all of them."""
    return "; ".join(dict.fromkeys(advice(one) for one in operations)) or advice(None)


def _origins(
    replayer: Replayer, ranks: Ranks, fn: StepFunction, batch: Any, names: Sequence[str], *, start: Start, seed: int
) -> tuple[list[Origin], str]:
    """Follow the data of a step; returns the origin of each tensor, the same on every rank, and why it is not known."""
    found: dict[str, Origin] = {}
    why = "compiled: the kernels of torch.compile are not seen" if replayer.compiled else ""
    try:
        found = replayer.structure(fn, batch, start, seed)
    except REPLAY_ERRORS as error:
        why = f"the step cannot be followed operation by operation: {type(error).__name__}: {error}"
    if set(found) != set(names):
        why = why or "the step cannot be followed operation by operation: other tensors are seen"
    unknown = Origin(taint="", place=0)
    mine = [found.get(name, unknown) for name in names]
    told = ranks.gather([int(bool(why)), *(int(bool(one.taint)) for one in mine), *(one.place for one in mine)])
    bad, count = [rank for rank, row in enumerate(told) if row[0]], len(names)
    if bad and not why:
        why = f"the step cannot be followed operation by operation on rank {bad[0]}"
    merged = [
        Origin(
            taint=one.taint or ("the same on another rank" if any(row[1 + index] for row in told) else ""),
            place=told[0][1 + count + index],
        )
        for index, one in enumerate(mine)
    ]
    return merged, why


def _operations(
    replayer: Replayer, hasher: Hasher, fn: StepFunction, batch: Any, *, start: Start, seed: int
) -> tuple[str, ...]:
    """Replay twice, operation by operation. Nothing when that cannot be done (compiled regions may refuse it)."""
    traces = []
    for _ in range(2):
        tracer = Tracer(hasher)
        try:
            with tracer:
                replayer.replay(fn, batch, start, seed)
        except REPLAY_ERRORS:
            return ()
        traces.append(tracer.operations)
    return unstable(*traces)
