"""Calibration: which tensors of a step come out the same, bit by bit, every time, on every rank.

Only these are compared afterwards. Two replays are not enough to know: an algorithm with four possible results gives
the same one twice in a quarter of all pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from burnin.guard.hashes import Hasher
from burnin.guard.ranks import Ranks
from burnin.guard.replay import REPLAY_ERRORS, Print, Replayer, StepFunction
from burnin.guard.settings import advice
from burnin.guard.state import Start
from burnin.guard.trace import Tracer, unstable
from burnin.words import derive


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstable:
    """A tensor that is not reproducible, and so is not checked."""

    name: str
    distinct: int
    """Different values on this rank, the original included; 1: it is reproducible here, but not on another rank."""
    operations: tuple[str, ...]
    """Operations that gave different results for the same inputs; empty: not found."""
    set: str
    """What to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a calibration found."""

    replays: int
    ranks: int
    names: tuple[str, ...]
    """Reproducible on every rank."""
    unstable: tuple[Unstable, ...] = ()
    odd_ranks: tuple[int, ...] = ()
    """Ranks that do not reproduce what most others do: suspect."""

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
    operations: tuple[str, ...] = ()
    if not all(steady):
        operations = _operations(replayer, hasher, fn, batch, start=start, seed=seed)
    return Calibration(
        replays=replays,
        ranks=ranks.world,
        names=tuple(name for name, good in zip(names, steady, strict=True) if good),
        unstable=tuple(
            Unstable(name=name, distinct=count, operations=operations, set=advice_of(operations))
            for name, count, good in zip(names, distinct, steady, strict=True)
            if not good
        ),
        odd_ranks=odd_ranks(told),
    )


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
