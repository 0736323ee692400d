"""What a burn-in does next, and for how long: pure, from a plan and what was done so far. Torch-free.

First every test of the level once, in the order of the table. Then, until the level's time is over, turns: short slices
of single tests in a random order, in which no test is ever more than one turn ahead of another. Long levels are broken
by cold/hot cycles, and a directed one takes every second turn with what failed before. As all of this follows from the
plan and the record, a run that was interrupted goes on as if it had not been.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from burnin.keys import derive
from burnin.levels import SLICE_MAX_S

OVER_RATIO = 0.05
"""Of a plan's time by which the last slice may be late: half of what a level's time may be off."""


class Kind(StrEnum):
    """Why a slice is in the schedule."""

    PASS = "pass"  # noqa: S105 - of the table, not a password
    TURN = "turn"
    CYCLE = "cycle"
    LIKE = "like"
    """As something that failed before did."""
    WARM = "warm"
    """Work before it, so that the GPU is as warm as it was."""
    REST = "rest"
    """Or rest, of all GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One stretch of one test on all GPUs."""

    number: int
    kind: Kind
    test: str
    seconds: float
    """It begins no further round after this; 0: the rounds that its test declares, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A slice that ended."""

    slice: Slice
    elapsed_s: float
    rounds: int
    """Rounds over all cases of the test that it did, without retests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is to do."""

    once: tuple[str, ...]
    """Tests that are done once, in this order, whatever time they take."""
    turns: tuple[str, ...]
    """Tests that take turns until the time is over; none: the run ends after the first pass."""
    seconds: float
    """The time of all, from the start of the run."""
    slice_seconds: float
    seed: int
    cycle: str = ""
    """The test that is a cold/hot cycle; empty: there is none here."""
    cycles: int = 0
    like: tuple[str, ...] = ()
    """Tests that a directed run repeats in every second turn."""


def next_slice(plan: Plan, done: Sequence[Done], elapsed_s: float) -> Slice | None:
    """The next slice; None when the run is complete.

    Args:
        plan: of the run.
        done: slices that ended, in order; one that was cut off does not count.
        elapsed_s: since the run began, without the time in which it was interrupted.
    """
    passed = {one.slice.test for one in done if one.slice.kind is Kind.PASS}
    waiting = [test for test in plan.once if test not in passed]
    if waiting:
        return Slice(number=len(done), kind=Kind.PASS, test=waiting[0], seconds=0.0)
    left_s = plan.seconds - elapsed_s
    if left_s <= 0:
        return None
    round_s = round_seconds(done)
    room_s = left_s + OVER_RATIO * plan.seconds
    cycles = sum(one.slice.kind is Kind.CYCLE for one in done)
    due_s = (cycles + 1) * plan.seconds / (plan.cycles + 1)
    if plan.cycle and cycles < plan.cycles and elapsed_s >= due_s and round_s.get(plan.cycle, 0.0) <= room_s:
        return Slice(number=len(done), kind=Kind.CYCLE, test=plan.cycle, seconds=0.0)
    over = {one.slice.test for one in done if not one.rounds}  # nobody is left who can do it
    fitting = {
        test
        for test in (*plan.turns, *plan.like)
        if test not in over and round_s.get(test, 0) <= min(room_s, SLICE_MAX_S)
    }
    last = next((one.slice.kind for one in reversed(done) if one.slice.kind in {Kind.TURN, Kind.LIKE}), Kind.TURN)
    kinds = [(Kind.LIKE, plan.like), (Kind.TURN, plan.turns)]
    for kind, tests in kinds if last is Kind.TURN else reversed(kinds):
        able = [test for test in tests if test in fitting]
        if able:
            test = _least(
                able, [one.slice.test for one in done if one.slice.kind is kind], derive(plan.seed, len(done))
            )
            return Slice(number=len(done), kind=kind, test=test, seconds=min(plan.slice_seconds, left_s))
    return None


def _least(tests: Sequence[str], taken: Iterable[str], seed: int) -> str:
    """One of the tests that had the fewest turns, drawn."""
    turns = Counter(taken)
    fewest = min(turns[test] for test in tests)
    equal = [test for test in tests if turns[test] == fewest]
    return random.Random(seed).choice(equal)  # noqa: S311 - an order that can be repeated, no secret


def round_seconds(done: Iterable[Done]) -> dict[str, float]:
    """Test → the least time that one of its rounds has taken."""
    least: dict[str, float] = {}
    for one in done:
        if one.rounds:
            seconds = one.elapsed_s / one.rounds
            least[one.slice.test] = min(seconds, least.get(one.slice.test, seconds))
    return least


def planned_seconds(done: Iterable[Done]) -> float:
    """The time of slices as they were planned; passes and cycles have none.

    It is the clock of a run on stand-ins for GPUs, which must not depend on how fast they are computed.
    """
    return sum(one.slice.seconds for one in done)
