"""What the fast loop is worth, on the frozen stand-in parts: A4, A5, A6, A8 of the design.

A boost is the clock in the bursts to the part's base clock, the one that it holds for ever at full activity.
"""

import numpy as np
import pytest

from fleetd.config.plants import Plant
from fleetd.core.power.buckets import Bucket
from fleetd.core.power.checker import allowed_watts
from fleetd.sim.plant import duty_cycle
from tests.power.rigs_power import (
    FLAT,
    PUBLISHED_GAIN,
    STEEP,
    buckets,
    gain_curve,
    guarded,
    module,
    oracle_hertz,
    static_pair,
)

KERNEL_S = 300e-6
DUTIES = (0.2, 0.3, 0.5, 0.6, 0.8, 1.0)


def boosts(
    plant: Plant,
    held: tuple[Bucket, ...],
    duties: tuple[float, ...],
    *,
    period_s: float | None = None,
    seconds: float = 0.45,
    after_s: float = 0.15,
) -> list[float]:
    duty = np.array(duties)
    load = duty_cycle(duty, np.full(len(duty), KERNEL_S), low=plant.activity_low)
    trace = guarded(plant, held, period_s=period_s).run(load, scenarios=len(duty), seconds=seconds)
    return [float(c) / plant.chip.clock_base_hertz for c in trace.busy_clock_hertz(after_s=after_s)]


@pytest.mark.parametrize("plant", [STEEP, FLAT], ids=lambda p: p.name)
def test_a04_the_best_duty_point_reaches_1_33_and_what_an_oracle_would(plant: Plant) -> None:
    held = buckets()
    found = boosts(plant, held, DUTIES)
    best = max(range(len(DUTIES)), key=lambda n: found[n])
    ideal = [
        oracle_hertz(plant.chip, duty=d, low=plant.activity_low, watts=held[-1].rate_watts, low_clock_hertz=low)
        / plant.chip.clock_base_hertz
        for low in (plant.chip.clock_min_hertz, None)
        for d in DUTIES
    ]
    throttled, same = ideal[: len(DUTIES)], ideal[len(DUTIES) :]
    assert found[best] >= 1.33
    assert found[best] >= 0.98 * throttled[best]
    # Stronger than asked: at every duty point, against an oracle that also keeps its clock between the bursts.
    for duty, got, could, bound in zip(DUTIES, found, same, throttled, strict=True):
        assert got >= 0.98 * could, f"duty {duty}: {got:.4f} of {could:.4f}"
        assert got <= bound * 1.001, "an oracle that is beaten is none"


@pytest.mark.parametrize(("plant", "least"), [(STEEP, 1.22), (FLAT, 1.32)], ids=["steep", "flat"])
def test_a04_a_static_pair_of_limits_without_a_fast_loop(plant: Plant, least: float) -> None:
    assert max(boosts(plant, static_pair(plant), DUTIES)) >= least


def test_a05_back_to_back_work_gets_its_whole_tbp() -> None:
    for margin in (0.0, 0.04):
        held = buckets(margin)
        load = duty_cycle(np.array([1.0]), np.array([KERNEL_S]), low=STEEP.activity_low)
        trace = guarded(STEEP, held).run(load, scenarios=1, seconds=0.4)
        watts = float(trace.mean_power_watts(after_s=0.1)[0])
        assert 0.995 <= watts / ((1 - margin) * STEEP.chip.tbp_watts) <= 1.005


def test_a06_a_slower_loop_boosts_less() -> None:
    periods = (1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2)
    # From 0.2 s on for 0.3 s: ten times the 30 ms in which bursts and every loop period come round to where they began.
    found = [boosts(STEEP, buckets(), (0.5,), period_s=p, seconds=0.5, after_s=0.2)[0] for p in periods]
    assert found == sorted(found, reverse=True)
    assert found == pytest.approx([1.36, 1.33, 1.29, 1.25, 1.18, 1.10], abs=0.03)
    # Who holds a clock for a period, and must expect full activity in it, gets what the window of a period may average
    # and no more; 10 ms may average 1.190x, which is 1.129 of the base clock: a lower figure would give some away.
    most = [STEEP.chip.clock_hertz(allowed_watts(module(), p)) / STEEP.chip.clock_base_hertz for p in periods]
    for boost, bound in zip(found, most, strict=True):
        assert 0.985 * bound <= boost <= bound * 1.0001


def test_a08_what_a_training_step_gains_as_a_curve() -> None:
    curve = gain_curve(STEEP, buckets())
    share, gain = [point["gemm_share"] for point in curve], [point["gain"] for point in curve]
    assert share[0] == pytest.approx(0.05, abs=0.005)
    assert share[-1] == pytest.approx(0.5, abs=0.01)
    assert gain == sorted(gain), curve
    # The published 3 to 6 % is what a step gains whose GEMM share is about a tenth to a fifth.
    low, high = np.interp(PUBLISHED_GAIN, gain, share)
    assert 0.05 < low < high < 0.5
    assert gain[-1] <= STEEP.chip.clock_max_hertz / STEEP.chip.clock_base_hertz
