"""A14: whatever a sensor says, boost only while everything is known to be good."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.core.power.modes import BRAKE_QUIET_S, Mode, ModeConfig, ModeState, Reading, next_mode, start

LOOP_S = 0.1
CONFIG = ModeConfig(allowed=Mode.BOOST, power_max_watts=2000.0, stale_s=0.15, settle_s=1.0)


def good(now_s: float) -> Reading:
    return Reading(power_watts=800.0, sampled_s=now_s, energy_joules=1e6 + 800.0 * now_s, temperature_celsius=60.0)


def boosting(now_s: float = 10.0) -> ModeState:
    state = start(CONFIG)
    for loop in range(round(now_s / LOOP_S) + 1):
        state = next_mode(loop * LOOP_S, CONFIG, state, good(loop * LOOP_S))
    assert state.mode is Mode.BOOST
    return state


FAULTS = {
    "nothing": {"power_watts": None},
    "nan": {"power_watts": math.nan},
    "infinite": {"power_watts": math.inf},
    "uint32-max-milliwatts": {"power_watts": (2**32 - 1) / 1e3},
    "uint32-max-watts": {"power_watts": float(2**32 - 1)},
    "uint16-max-watts": {"power_watts": 65535.0},
    "zero": {"power_watts": 0.0},
    "negative": {"power_watts": -5.0},
    "never-sampled": {"sampled_s": None},
    "sampled-nan": {"sampled_s": math.nan},
    "sampled-in-the-future": {"sampled_s": 1e9},
    "counter-backward": {"energy_joules": 5.0},
    "counter-nan": {"energy_joules": math.nan},
    "hot": {"temperature_celsius": 95.0},
    "temperature-nan": {"temperature_celsius": math.nan},
    "brake": {"brake": True},
    "lease": {"lease_live": False},
    "foreign-limit": {"enforced_ok": False},
}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a14_a_bad_reading_is_safe_at_once_and_keeps_out_of_boost(fault: str) -> None:
    state, now_s = boosting(), 10.0
    for loop in range(1, 30):
        now_s = 10.0 + loop * LOOP_S
        state = next_mode(now_s, CONFIG, state, replace(good(now_s), **FAULTS[fault]))
        if (
            fault != "counter-backward" or loop == 1
        ):  # a counter that was reset counts on: bad once, then a settling time
            assert state.mode is Mode.SAFE, state
        if loop == 1:
            assert state.why


def test_a14_a_stale_sensor_is_safe_within_two_loops() -> None:
    state, frozen = boosting(), good(10.0)
    modes = []
    for loop in range(1, 40):
        state = next_mode(10.0 + loop * LOOP_S, CONFIG, state, frozen)
        modes.append(state.mode)
    assert Mode.BOOST not in modes[1:]


numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), numbers, st.floats(1, 2000)),
            st.one_of(st.none(), numbers, st.floats(0, 0.1)),
            st.one_of(st.none(), numbers),
        ),
        max_size=80,
    )
)
def test_a14_no_reading_without_a_number_ever_boosts(
    readings: list[tuple[float | None, float | None, float | None]],
) -> None:
    state = boosting()
    for loop, (watts, age, energy) in enumerate(readings):
        now_s, counted = 10.0 + loop * LOOP_S, state.energy_joules
        sampled = None if age is None else now_s - age
        state = next_mode(now_s, CONFIG, state, Reading(power_watts=watts, sampled_s=sampled, energy_joules=energy))
        plausible = watts is not None and 1.0 <= watts <= 2000.0
        fresh = sampled is not None and now_s - 0.15 <= sampled <= now_s
        counts = energy is None or (math.isfinite(energy) and (counted is None or energy >= counted))
        if not (plausible and fresh and counts):
            assert state.mode is Mode.SAFE
        assert state.energy_joules is None or math.isfinite(state.energy_joules)


def test_the_way_up_takes_its_time_and_a_brake_ten_minutes() -> None:
    state = boosting()
    state = next_mode(10.1, CONFIG, state, replace(good(10.1), power_watts=None))
    assert next_mode(10.2, CONFIG, state, good(10.2)).mode is Mode.SAFE
    state = next_mode(10.3, CONFIG, state, replace(good(10.3), brake=True))
    for now_s in (11.0, 300.0, 10.3 + BRAKE_QUIET_S - 1):
        state = next_mode(now_s, CONFIG, state, good(now_s))
        assert state.mode is Mode.SAFE
        assert "brake" in state.why
    late = 10.3 + BRAKE_QUIET_S
    state = next_mode(late, CONFIG, state, good(late))
    assert next_mode(late + 1.0, CONFIG, state, good(late + 1.0)).mode is Mode.BOOST


@pytest.mark.parametrize("allowed", [Mode.OBSERVE, Mode.SAFE])
def test_no_higher_than_the_operator_wants(allowed: Mode) -> None:
    config = replace(CONFIG, allowed=allowed)
    state = start(config)
    for loop in range(50):
        state = next_mode(loop * LOOP_S, config, state, good(loop * LOOP_S))
        assert state.mode is allowed
