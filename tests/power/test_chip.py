"""The power of a part: frozen numbers, and a clock and a power that are each other's inverse."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.config.plants import Plant
from fleetd.sim.plant import Curve
from tests.power.rigs_power import FLAT, STEEP

CHIP = STEEP.chip


@pytest.mark.parametrize("plant", [STEEP, FLAT], ids=lambda p: p.name)
def test_the_base_clock_draws_the_tbp(plant: Plant) -> None:
    assert plant.chip.power_watts(plant.chip.clock_base_hertz, 1.0) == pytest.approx(plant.chip.tbp_watts)


def test_by_hand() -> None:
    # 0.70 V + 0.25 V/GHz * (2.2 - 1.2) GHz = 0.95 V; at base 0.80 V; 680 W switch there.
    assert CHIP.volts(2.2e9) == pytest.approx(0.95)
    assert CHIP.volts(0.8e9) == 0.65
    switching = 680.0 * (0.95 / 0.80) ** 2 * 2.2 / 1.6
    assert CHIP.power_watts(2.2e9, 1.0) == pytest.approx(150 + 170 + switching)
    assert CHIP.power_watts(2.2e9, 0.1) == pytest.approx(150 + 125 + 0.1 * switching)


def test_flat_turns_1_36_times_the_power_into_1_33_times_the_clock() -> None:
    assert FLAT.chip.clock_hertz(1360.0) / FLAT.chip.clock_base_hertz == pytest.approx(1.33, abs=0.002)


@given(st.floats(0.8e9, 2.2e9), st.floats(0.05, 1.0))
def test_the_clock_of_a_power_is_that_clock_and_never_draws_more(clock: float, activity: float) -> None:
    watts = CHIP.power_watts(clock, activity)
    back = CHIP.clock_hertz(watts, activity)
    assert back == pytest.approx(clock, rel=1e-6)
    assert CHIP.power_watts(back, activity) <= watts or back == CHIP.clock_min_hertz


@given(st.floats(0.0, 3000.0))
def test_the_tabulated_clock_is_safe_and_close(watts: float) -> None:
    exact, table = CHIP.clock_hertz(watts), float(Curve(CHIP).clock_hertz(np.array([watts]))[0])
    assert CHIP.power_watts(table, 1.0) <= max(watts, CHIP.power_watts(CHIP.clock_min_hertz, 1.0)) + 1e-9
    assert table == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(
    "change",
    [{"clock_min_hertz": 0.0}, {"clock_base_hertz": 3e9}, {"leak_watts": 900.0}, {"v_min": 0.0}],
    ids=lambda c: next(iter(c)),
)
def test_what_is_no_chip_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a chip needs"):
        replace(CHIP, **change)
