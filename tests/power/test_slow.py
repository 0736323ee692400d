"""A13: the slow loop settles fast without overshoot, and the bound on its gain is a bound."""

import math
from dataclasses import replace

import pytest

from fleetd.core.power.slow import SlowConfig, SlowState, stability_bound, trim

TARGET = 900.0
SETTLED = 0.02
"""Within two per cent of the target."""


def response(delay: int, *, gain: float | None = None, plant_gain: float = 1.0, periods: int = 60) -> list[float]:
    """Commands of a loop that begins at nothing; the plant answers `delay` periods late."""
    config = SlowConfig(target_watts=TARGET, delay_periods=delay, plant_gain=plant_gain, low_watts=-math.inf)
    state, commands = SlowState(command_watts=0.0), [0.0]
    for period in range(periods):
        seen = plant_gain * commands[max(0, period - delay)]
        state = trim(config, state, average_watts=seen, gain=gain)
        commands.append(state.command_watts)
    return [plant_gain * command for command in commands]


@pytest.mark.parametrize(("delay", "within"), [(0, 6), (1, 8), (2, 13), (3, 17)])
def test_a13_settles_in_time_without_overshoot(delay: int, within: int) -> None:
    found = response(delay)
    assert max(found) <= 1.01 * TARGET
    settled = next(n for n in range(len(found)) if all(abs(v - TARGET) <= SETTLED * TARGET for v in found[n:]))
    assert settled <= within


@pytest.mark.parametrize("delay", range(4))
def test_a13_diverges_above_the_bound_and_not_below(delay: int) -> None:
    bound = stability_bound(delay)
    above = response(delay, gain=1.02 * bound, periods=2000)
    assert max(map(abs, above[-50:])) > 10 * TARGET
    below = response(delay, gain=0.98 * bound, periods=2000)
    assert max(abs(v - TARGET) for v in below[-50:]) < 0.01 * TARGET


def test_the_gain_of_the_plant_is_taken_out() -> None:
    assert response(1, plant_gain=3.0) == pytest.approx(response(1))


def test_a_gain_that_is_three_times_what_was_expected_still_settles() -> None:
    config = SlowConfig(target_watts=TARGET, delay_periods=2)
    found = response(2, gain=3 * config.gain, periods=400)
    assert abs(found[-1] - TARGET) < 0.01 * TARGET


def test_down_at_once_up_slowly_and_inside_the_range() -> None:
    config = SlowConfig(target_watts=TARGET, delay_periods=0, low_watts=500.0, high_watts=1000.0, rise_watts=5.0)
    state = SlowState(command_watts=800.0)
    assert trim(config, state, average_watts=700.0).command_watts == 805.0
    assert trim(config, state, average_watts=1100.0).command_watts == 700.0
    assert trim(config, state, average_watts=1e6).command_watts == 500.0
    assert trim(replace(config, rise_watts=math.inf), state, average_watts=0.0).command_watts == 1000.0


@pytest.mark.parametrize("average", [math.nan, math.inf, -math.inf])
def test_an_average_that_is_no_number_commands_the_lowest(average: float) -> None:
    config = SlowConfig(target_watts=TARGET, delay_periods=1, low_watts=500.0, rise_watts=5.0)
    assert trim(config, SlowState(command_watts=800.0), average_watts=average).command_watts == 500.0


def test_no_negative_delay() -> None:
    with pytest.raises(ValueError, match="no negative periods"):
        stability_bound(-1)
