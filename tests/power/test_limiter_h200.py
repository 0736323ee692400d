"""The simulated H200 does what the real one did: the duty-cycle surface and the profile of a burst, within 3 %."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fleetd.config import ConfigError
from fleetd.config.limited import load_limited
from fleetd.sim.limiter import LimitedPlant
from fleetd.sim.plant import Activity, Floats, duty_cycle

MEASURED: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "h200-measured.yaml").read_text())
WITHIN = 0.03


@pytest.fixture(scope="module")
def h200() -> LimitedPlant:
    return LimitedPlant(load_limited())


def test_the_duty_surface_is_the_measured_one(h200: LimitedPlant) -> None:
    surface = MEASURED["surface"]
    kernels = [kernel for kernel in surface if kernel != "duty"]
    points = [(kernel, duty) for kernel in kernels for duty in surface["duty"]]
    kernel_s = np.array([kernel for kernel, _ in points] + [0.01])
    duty = np.array([duty for _, duty in points] + [1.0])
    trace = h200.run(
        duty_cycle(duty, kernel_s, low=h200.part.low), scenarios=len(duty), seconds=3.0, before_watts=650.0
    )
    rate = h200.busy_rate(trace, kernel_s, rested=duty < 1.0, after_s=1.5)
    assert rate[-1] == pytest.approx(666, rel=WITHIN)
    for (kernel, share), boost in zip(points, rate[:-1] / rate[-1], strict=True):
        low, high = surface[kernel][surface["duty"].index(share)]
        assert low * (1 - WITHIN) <= boost <= high * (1 + WITHIN), (kernel, share, boost)


def test_a_burst_begins_fast_and_slides_as_measured(h200: LimitedPlant) -> None:
    begin_s = 2.05
    trace = h200.run(_bursts(begin_s), scenarios=2, seconds=begin_s + 1.6, before_watts=np.array([78.0, 690.0]))
    rate = h200.rate(trace.clock_hertz)
    edges = [round((begin_s + edge) / h200.part.step_s) for edge in MEASURED["profile"]["edges_s"]]
    for column, name in enumerate(("after_2_s", "after_50_ms")):
        for first, last, measured in zip(edges, edges[1:], MEASURED["profile"][name], strict=False):
            assert rate[first:last, column].mean() == pytest.approx(measured, rel=WITHIN), (name, first, measured)


def test_an_excursion_exceeds_the_limit_and_the_second_does_not(h200: LimitedPlant) -> None:
    trace = h200.run(_bursts(2.05), scenarios=2, seconds=6.0, before_watts=np.array([78.0, 690.0]))
    ring = trace.power_watts[:, 0].reshape(-1, round(0.02 / h200.part.step_s)).mean(axis=1)
    assert 840.0 <= ring.max() <= 1010.0  # 913 W and 970 W were seen in the 20 ms ring
    assert trace.power_watts[-round(1.0 / h200.part.step_s) :, 0].mean() == pytest.approx(700.0, rel=0.02)
    second = round(1.0 / 0.02)
    begun = ring[round(2.85 / 0.02) :][:second]  # the undershoot, 0.8 s … 1.8 s into the burst
    assert np.ptp(ring[-second:]) < 0.5 * np.ptp(begun)  # it dies out


def _bursts(begin_s: float) -> Activity:
    """The first idles until the burst; the second works, rests for the last 50 ms before it, and works again."""

    def activity(start_s: float, steps: int, step_s: float) -> Floats:
        at = start_s + step_s * np.arange(steps)
        idle = (at >= begin_s).astype(float)
        rested = ((at < begin_s - 0.05) | (at >= begin_s)).astype(float)
        return np.stack([idle, rested])

    return activity


def test_a_file_that_is_no_part_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "part.yaml"
    text = (Path(__file__).parents[2] / "policies" / "plants" / "h200.yaml").read_text()
    for wrong in (text.replace("filter_ms: 12.97", "filter_ms: 0"), text.replace("step_us: 250", "step_us: 300"),
                  text.replace("over_mhz_per_watt: 21", "over_mhz_per_watt: -21")):  # fmt: skip
        path.write_text(wrong)
        with pytest.raises(ConfigError) as refused:
            load_limited(path)
        assert refused.value.line is not None
