"""Schedules on virtual time: budgets, shares, cycles, order. Nothing runs; a fake clock moves by what a round costs."""

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnin.levels import LADDER, LEVELS, SLICE_MAX_S, Level
from burnin.schedule import Done, Kind, Plan, next_slice, planned_seconds
from burnin.tests import TESTS, chosen

Draw = random.Random
OWN_S = 8.0
"""What a run on an H200 takes before its first test: processes, self-test, the CPU (smoke's own report)."""
ROUND_S = {
    "gemm.exact": 13.0, "gemm.vote": 2.0, "gemm.pattern": 0.9, "gemm.smvote": 0.5, "attention": 2.7, "int": 1.5,
    "sfu": 0.6, "embedding": 2.0, "reduction": 0.8, "eigh": 4.0, "inductor": 9.0, "hbm": 6.0, "copy": 2.6,
    "collective.exact": 8.0, "collective.repro": 15.0, "step": 1.0, "overlap": 4.0, "overlap.links": 6.0,
    "thermal": 120.0, "pulse": 118.0, "rate": 2.6, "selftest": 2.0,
}  # fmt: skip
"""Seconds of a round: about those of the H200's reports, the others assumed."""


@dataclass
class Host:
    """Computes on virtual time; a round takes up to a tenth more or less each time."""

    rng: random.Random
    scale: float = 1.0
    now_s: float = OWN_S

    def burn(self, plan: Plan, *, interrupted_after: int | None = None) -> tuple[Done, ...]:
        done: list[Done] = []
        while (slice_ := next_slice(plan, done, self.now_s)) is not None:
            if interrupted_after == len(done):
                return tuple(done)
            begun_s, rounds = self.now_s, 0
            while not rounds or self.now_s - begun_s < slice_.seconds:
                self.now_s += ROUND_S[slice_.test] * self.scale * self.rng.uniform(0.9, 1.1)
                rounds += 1
            done.append(Done(slice=slice_, elapsed_s=self.now_s - begun_s, rounds=rounds))
        return tuple(done)


def plan_of(level: Level, seed: int = 1) -> Plan:
    tests = [one.id for one in chosen(level.name, ()) if one.workload is not None]
    return Plan(
        once=tuple(tests),
        turns=tuple(test for test in tests if test not in {"pulse", "thermal"}) or ("selftest",),
        seconds=level.seconds,
        slice_seconds=level.slice_seconds,
        seed=seed,
        cycle="thermal" if "thermal" in tests else "",
        cycles=level.cycles,
    )


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("seed", range(5))
def test_every_level_ends_within_a_tenth_of_its_time(level: Level, seed: int) -> None:
    host = Host(Draw(seed))
    done = host.burn(plan_of(level, seed))
    # A pass over ten tests of idle's is half of its two minutes: all of them fit, on the H200 that the table is from.
    assert host.now_s == pytest.approx(level.seconds, rel=0.1)
    assert {one.slice.test for one in done} >= set(plan_of(level).once)


@pytest.mark.parametrize("name", ["burnin", "soak"])
def test_long_levels_have_their_cycles_spread_and_no_turn_longer_than_a_minute_plans(name: str) -> None:
    level = LEVELS[name]
    host = Host(Draw(3))
    done = host.burn(plan_of(level, 3))
    cycles = [one for one in done if one.slice.kind is Kind.CYCLE]
    assert len(cycles) == level.cycles >= 3
    assert {one.slice.test for one in cycles} == {"thermal"}
    begun_s = OWN_S
    for one in done:
        if one.slice.kind is Kind.CYCLE:
            due_s = (cycles.index(one) + 1) * level.seconds / (level.cycles + 1)
            assert due_s <= begun_s <= due_s + SLICE_MAX_S + 20.0
        assert one.slice.kind is not Kind.TURN or one.slice.seconds <= SLICE_MAX_S
        begun_s += one.elapsed_s
    assert level.retention_s == 1800.0
    assert "hbm" in plan_of(level).once


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1 << 40), scale=st.floats(0.05, 1.0), seconds=st.floats(300.0, 20000.0))
def test_every_test_gets_its_share(seed: int, scale: float, seconds: float) -> None:
    plan = replace(plan_of(LEVELS["quick"], seed), seconds=seconds)
    done = Host(Draw(seed), scale=scale).burn(plan)
    turns = Counter(one.slice.test for one in done if one.slice.kind is Kind.TURN)
    counts = [turns[test] for test in plan.turns]
    # At the very end a test whose round does not fit any more is passed over.
    assert max(counts) - min(counts) <= 2 or sum(counts) < len(counts)
    assert [one.slice.number for one in done] == list(range(len(done)))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1 << 40), cut=st.integers(0, 60))
def test_an_interrupted_schedule_goes_on_as_if_it_had_not_been(seed: int, cut: int) -> None:
    plan = plan_of(LEVELS["quick"], seed)
    whole = Host(Draw(7)).burn(plan)
    part = Host(Draw(7)).burn(plan, interrupted_after=cut)
    assert part == whole[:cut]
    elapsed_s = OWN_S + sum(one.elapsed_s for one in part)
    again = next_slice(plan, part, elapsed_s)
    assert again == (whole[len(part)].slice if len(part) < len(whole) else None)


def test_the_order_of_turns_differs_by_seed_and_repeats_with_it() -> None:
    orders = [[one.slice.test for one in Host(Draw(1)).burn(plan_of(LEVELS["quick"], seed))] for seed in (1, 2, 1)]
    assert orders[0] == orders[2] != orders[1]
    once = len(plan_of(LEVELS["quick"]).once)
    assert orders[0][:once] == orders[1][:once]


def test_a_directed_run_takes_every_second_turn_with_what_failed() -> None:
    plan = replace(plan_of(LEVELS["soak"]), seconds=3000.0, like=("attention", "int"))
    done = Host(Draw(1)).burn(plan)
    kinds = [one.slice.kind for one in done if one.slice.kind in {Kind.TURN, Kind.LIKE}]
    assert kinds[::2] == [Kind.LIKE] * len(kinds[::2])
    assert kinds[1::2] == [Kind.TURN] * len(kinds[1::2])
    likes = Counter(one.slice.test for one in done if one.slice.kind is Kind.LIKE)
    assert set(likes) == {"attention", "int"}
    assert abs(likes["attention"] - likes["int"]) <= 1


def test_a_test_whose_round_takes_longer_than_a_turn_takes_no_turns() -> None:
    plan = Plan(once=("pulse", "int"), turns=("pulse", "int"), seconds=1000.0, slice_seconds=50.0, seed=1)
    done = Host(Draw(1)).burn(plan)
    assert Counter(one.slice.test for one in done)["pulse"] == 1


def test_without_turns_a_run_ends_after_the_pass_and_after_its_time_in_any_case() -> None:
    plan = Plan(once=("int",), turns=(), seconds=1000.0, slice_seconds=50.0, seed=1)
    assert [one.slice.kind for one in Host(Draw(1)).burn(plan)] == [Kind.PASS]
    late = Plan(once=("int",), turns=("int",), seconds=1.0, slice_seconds=50.0, seed=1)
    assert [one.slice.kind for one in Host(Draw(1)).burn(late)] == [Kind.PASS]


def test_on_stand_ins_the_clock_is_the_plan() -> None:
    plan, done = plan_of(LEVELS["quick"], 9), list[Done]()
    while (slice_ := next_slice(plan, done, planned_seconds(done))) is not None:
        done.append(Done(slice=slice_, elapsed_s=0.01, rounds=1))
    assert planned_seconds(done) == plan.seconds
    assert Counter(one.slice.kind for one in done)[Kind.TURN] == plan.seconds / plan.slice_seconds


def test_the_table_of_levels_is_what_the_design_says() -> None:
    assert [level.seconds for level in LEVELS.values()] == [15, 75, 300, 1800, 14400, 86400, 120]
    assert [level.hard_seconds for level in LEVELS.values()] == [30, 90, 360, 2160, 17280, 103680, 144]
    below: set[str] = set()
    for name in LADDER:
        tests = {one.id for one in chosen(name, ())}
        assert tests >= below
        below = tests
    assert below == set(TESTS)
    assert LEVELS["idle"].gives_way
    assert not {one.id for one in chosen("idle", ())} & {"pulse", "thermal", "hbm", "copy", "collective.exact"}
