"""The simulated parts: the frozen numbers are read as they are, and mistakes are refused with their line."""

from pathlib import Path

import pytest

from fleetd.config import ConfigError
from fleetd.config.plants import load_plants, plants_path


def test_the_frozen_parts_in_base_units() -> None:
    steep, flat = (load_plants()[name] for name in ("mi350x-steep", "mi350x-flat"))
    assert (steep.chip.clock_min_hertz, steep.chip.clock_base_hertz, steep.chip.clock_max_hertz) == (8e8, 1.6e9, 2.2e9)
    assert (steep.period_s, steep.dead_s, steep.step_s) == pytest.approx((1e-4, 2e-5, 2e-5))
    assert steep.chip.slope_volts_per_hertz == pytest.approx(0.25e-9)
    assert flat.chip.slope_volts_per_hertz == pytest.approx(0.11e-9)
    assert (steep.activity_high, steep.activity_low) == (1.0, 0.1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tbp_watts: 1000", "tbp_watts: 100", "tbp above leak"),
        ("min: 800", "min: 1800", "min <= base"),
        ("loop_us: 100", "loop_us: 90", "whole number of steps"),
        ("dead_time_us: 20", "dead_time_us: 200", "dead_time_us <= loop_us"),
        ("low: 0.1", "low: 1.1", "low <= high"),
        ("step_us: 20", "step_us: 20\n    stride_us: 1", "stride_us"),
        ("    leak_watts: 150\n", "", "leak_watts"),
    ],
)
def test_a_part_that_is_none_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = plants_path().read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "plants.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        load_plants(path)
    assert caught.value.line is not None
