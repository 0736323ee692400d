"""The guard never lets a bucket go below zero, and its vector twin in the plant decides the same."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.core.power import guard
from fleetd.core.power.buckets import Bucket
from fleetd.core.power.guard import GuardConfig
from fleetd.sim.plant import GuardedPlant, Loop
from tests.power.rigs_power import STEEP, buckets

CHIP = STEEP.chip
FLOOR = CHIP.power_watts(CHIP.clock_min_hertz, 1.0)
STEP_S = 20e-6


@st.composite
def held(draw: st.DrawFn) -> tuple[Bucket, ...]:
    """Buckets as a compiler makes them: rates fall, depths grow, the first has none, the last is above the floor."""
    rates = sorted(draw(st.lists(st.floats(FLOOR + 1, 3000.0), min_size=1, max_size=5, unique=True)), reverse=True)
    depths = [0.0, *sorted(draw(st.lists(st.floats(1e-3, 20.0), min_size=len(rates) - 1, max_size=len(rates) - 1)))]
    return tuple(
        Bucket(name=str(n), rate_watts=r, depth_joules=d) for n, (r, d) in enumerate(zip(rates, depths, strict=True))
    )


loops = st.tuples(st.integers(1, 20), st.integers(0, 20)).filter(lambda t: t[1] <= t[0])
loads = st.lists(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None)
@given(held(), loops, loads, st.one_of(st.just(math.inf), st.floats(1e8, 3e9)))
def test_no_load_drains_a_bucket_below_zero(
    drawn: tuple[Bucket, ...], loop: tuple[int, int], load: list[list[float]], wish: float
) -> None:
    config = GuardConfig(chip=CHIP, buckets=drawn, period_s=loop[0] * STEP_S, dead_s=loop[1] * STEP_S)
    state = guard.start(config)
    for pieces in load:
        before, state = state, guard.dispose(config, state, proposal_hertz=wish)
        for step in range(loop[0]):
            clock = before.clock_hertz if step < loop[1] else state.clock_hertz
            power = CHIP.power_watts(clock, pieces[step % len(pieces)])
            state = guard.spend(config, state, power_watts=power, seconds=STEP_S)
            assert min(state.levels_joules) >= -1e-9
        assert CHIP.clock_min_hertz <= state.clock_hertz <= max(CHIP.clock_min_hertz, min(wish, CHIP.clock_max_hertz))


@settings(max_examples=60, deadline=None)
@given(held(), loops, loads, st.floats(0.9, 1.1), st.one_of(st.just(math.inf), st.floats(1e8, 3e9)))
def test_the_vector_guard_is_the_plain_guard(
    drawn: tuple[Bucket, ...], loop: tuple[int, int], load: list[list[float]], gain: float, wish: float
) -> None:
    steps, dead = loop

    def activity(start_s: float, count: int, step_s: float) -> np.ndarray:
        pieces = load[round(start_s / (count * step_s))]
        return np.array([[pieces[k % len(pieces)] for k in range(count)], [0.5] * count])

    plant = GuardedPlant(
        chip=CHIP,
        buckets=drawn,
        loop=Loop(period_s=steps * STEP_S, dead_s=dead * STEP_S, step_s=STEP_S),
        gain=np.array([gain, 1.0]),
        proposal_hertz=wish,
    )
    trace = plant.run(activity, scenarios=2, seconds=len(load) * steps * STEP_S)
    config = GuardConfig(chip=CHIP, buckets=drawn, period_s=steps * STEP_S, dead_s=dead * STEP_S)
    state, at = guard.start(config), 0
    for pieces in load:
        before, state = state, guard.dispose(config, state, proposal_hertz=wish)
        for step in range(steps):
            clock = before.clock_hertz if step < dead else state.clock_hertz
            # The table of the twin lies below the exact clock by at most its step.
            assert trace.clock_hertz[at, 0] == pytest.approx(clock, rel=1e-4)
            power = CHIP.power_watts(clock, pieces[step % len(pieces)])
            assert trace.power_watts[at, 0] == pytest.approx(power, rel=3e-4)
            state = guard.spend(config, state, power_watts=power * gain, seconds=STEP_S)
            at += 1
    assert at == len(trace.power_watts)


def test_blocks_are_the_run_in_pieces() -> None:
    plant = GuardedPlant(chip=CHIP, buckets=buckets(), loop=Loop(period_s=1e-4, dead_s=2e-5, step_s=STEP_S))
    load = lambda _start, steps, _step: np.tile(np.linspace(0, 1, steps), (3, 1))  # noqa: E731
    whole = plant.run(load, scenarios=3, seconds=0.0105)
    pieces = list(plant.blocks(load, scenarios=3, seconds=0.0105, block_s=0.002))
    assert len(pieces) == 6
    assert np.array_equal(np.concatenate([p.power_watts for p in pieces]), whole.power_watts)
    assert np.array_equal(np.concatenate([p.clock_hertz for p in pieces]), whole.clock_hertz)


@pytest.mark.parametrize("reading", [math.nan, math.inf, -math.inf, -1.0, 0.0])
def test_a_reading_that_is_no_power_fills_no_bucket(reading: float) -> None:
    config = GuardConfig(chip=CHIP, buckets=buckets(), period_s=1e-4, dead_s=2e-5)
    before = guard.start(config)
    after = guard.spend(config, before, power_watts=reading, seconds=1e-4)
    most = CHIP.power_watts(CHIP.clock_max_hertz, 1.0)
    assert after == guard.spend(config, before, power_watts=most, seconds=1e-4)
    assert after.levels_joules[-1] < before.levels_joules[-1]
    assert guard.dispose(config, after, proposal_hertz=math.nan).clock_hertz == CHIP.clock_min_hertz


def test_the_guard_says_what_bound_it() -> None:
    config = GuardConfig(chip=CHIP, buckets=buckets(), period_s=1e-4, dead_s=2e-5)
    full, empty = guard.start(config, full=True), guard.start(config)
    assert "bucket" in guard.dispose(config, empty, proposal_hertz=math.inf).why
    assert "as proposed" in guard.dispose(config, full, proposal_hertz=1e9).why
    assert guard.dispose(config, full, proposal_hertz=math.inf).clock_hertz == CHIP.clock_max_hertz


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buckets": ()}, "guards nothing"),
        ({"dead_s": 2e-4}, "0 <= dead_s <= period_s"),
        ({"buckets": (Bucket(name="low", rate_watts=100.0, depth_joules=0.0),)}, "above the 100 W"),
    ],
)
def test_what_cannot_be_guarded_is_refused(change: dict[str, object], message: str) -> None:
    config = GuardConfig(chip=CHIP, buckets=buckets(), period_s=1e-4, dead_s=2e-5)
    with pytest.raises(ValueError, match=message):
        replace(config, **change)
