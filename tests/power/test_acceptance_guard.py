"""The envelope is kept: A2, A3 and A7 of the design. The judge is the checker, not the compiler."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from fleetd.config.plants import Plant
from fleetd.core.power import guard
from fleetd.core.power.checker import TOLERANCE, Trace, allowed_watts, check_buckets, check_trace, log_spaced
from fleetd.core.power.compiler import compile_envelope
from fleetd.core.power.guard import GuardConfig
from fleetd.sim.audit import BucketAudit, WindowAudit, window_steps
from fleetd.sim.plant import Activity
from tests.power.rigs_power import FLAT, STEEP, buckets, guarded, hostile, idle_then_burst, module, squares, together

SCENARIOS = 40
SECONDS = 1.1
"""Longer than the longest window."""


@pytest.mark.parametrize(("plant", "seed"), [(STEEP, 1), (FLAT, 2)], ids=["steep", "flat"])
def test_a02_no_load_breaks_any_window_at_any_offset(plant: Plant, seed: int) -> None:
    envelope, compiled = module(), compile_envelope(module())
    load = hostile(np.random.default_rng(seed), SCENARIOS, SECONDS)
    windows = WindowAudit(
        envelope, step_s=plant.step_s, steps=window_steps(envelope, plant.step_s, 60), scenarios=SCENARIOS
    )
    fills = BucketAudit(compiled.buckets, step_s=plant.step_s, scenarios=SCENARIOS)
    for block in guarded(plant, compiled.buckets).blocks(load, scenarios=SCENARIOS, seconds=SECONDS, block_s=0.1):
        windows.push(block.power_watts)
        fills.push(block.power_watts)
    assert windows.ratio.max() <= 1 + TOLERANCE
    # All windows, not only sixty: the power keeps the buckets, and these are nowhere above the envelope.
    assert fills.excess_joules.max() <= 1e-9
    everywhere = log_spaced(plant.step_s, 10.0, 2000)
    assert check_buckets(envelope, compiled, everywhere).ratio <= 1 + TOLERANCE
    # The load was no easy one: somewhere every scenario's power came near to what it may be.
    assert windows.ratio.max() >= 0.99


@pytest.mark.parametrize("bias", [0.02, 0.05])
def test_a07_a_sensor_that_reads_too_little_costs_margin_not_safety(bias: float) -> None:
    envelope = module()
    idle = np.array([0.03, 0.3])
    load = together(squares(np.array([20e-6, 1e-3, 20e-3, 0.2])), idle_then_burst(idle))
    plant = guarded(STEEP, buckets(0.05), gain=1.0 - bias)
    trace = plant.run(load, scenarios=6, seconds=SECONDS)
    audit = WindowAudit(envelope, step_s=STEEP.step_s, steps=window_steps(envelope, STEEP.step_s, 60), scenarios=6)
    audit.push(trace.power_watts)
    assert 0.9 < audit.ratio.max() <= 1.0


# ── negative controls: what looks reasonable and is not ─────────────────────────────────────────────────────────────

PERIOD_S = 100e-6
DEAD_S = 20e-6
Decide = Callable[[list[float], float], float]
"""(energy in joules up to each past period, clock in force) → the next clock."""


def driven(decide: Decide, load: Callable[[float], float], seconds: float = 0.5) -> Trace:
    """Run a controller of one's own on the steep part: each period it sees the exact energy that was drawn."""
    chip, clock = STEEP.chip, STEEP.chip.clock_min_hertz
    energy, watts, lengths = [0.0], [], []
    for period in range(round(seconds / PERIOD_S)):
        activity, following = load(period * PERIOD_S), decide(energy, clock)
        pieces = (
            (chip.power_watts(clock, activity), DEAD_S),
            (chip.power_watts(following, activity), PERIOD_S - DEAD_S),
        )
        watts += [power for power, _ in pieces]
        lengths += [length for _, length in pieces]
        energy.append(energy[-1] + sum(power * length for power, length in pieces))
        clock = following
    return Trace(watts, lengths)


def burst_after_idle(at_s: float) -> float:
    return float(at_s >= 0.2)


def worst(trace: Trace) -> float:
    return max(found.ratio for found in check_trace(module(), trace, log_spaced(20e-6, 0.45, 60)))


def guard_decides() -> Decide:
    """The guard itself, in the same harness: what the controls are compared with."""
    config = GuardConfig(chip=STEEP.chip, buckets=buckets(), period_s=PERIOD_S, dead_s=DEAD_S)
    state = guard.start(config)

    def decide(energy: list[float], _clock: float) -> float:
        nonlocal state
        if len(energy) > 1:
            state = guard.spend(config, state, power_watts=(energy[-1] - energy[-2]) / PERIOD_S, seconds=PERIOD_S)
        state = guard.dispose(config, state, proposal_hertz=math.inf)
        return state.clock_hertz

    return decide


def greedy() -> Decide:
    """Exact windows, one period ahead: spends all that a window has left, and cannot stop drawing afterwards."""
    windows = {n: allowed_watts(module(), n * PERIOD_S) * n * PERIOD_S for n in (1, 10, 100, 200, 1000, 4000)}

    def decide(energy: list[float], _clock: float) -> float:
        left = [allowed - (energy[-1] - energy[-n]) for n, allowed in windows.items() if len(energy) >= n]
        return STEEP.chip.clock_hertz(min(left) / PERIOD_S)

    return decide


def ewma_only(time_s: float) -> Decide:
    """Holds filtered power at the TBP and sees no other window."""
    filtered, share = 0.0, PERIOD_S / time_s

    def decide(energy: list[float], _clock: float) -> float:
        nonlocal filtered
        if len(energy) > 1:
            filtered += ((energy[-1] - energy[-2]) / PERIOD_S - filtered) * share
        return STEEP.chip.clock_hertz(filtered + (STEEP.chip.tbp_watts - filtered) / share)

    return decide


def test_a03_the_guard_keeps_what_the_controls_break() -> None:
    assert 0.99 < worst(driven(guard_decides(), burst_after_idle)) <= 1 + TOLERANCE


def test_a03_greedy_exact_windows_are_caught() -> None:
    assert worst(driven(greedy(), burst_after_idle)) > 1.01


@pytest.mark.parametrize("time_s", [5e-3, 20e-3])
def test_a03_a_moving_average_alone_is_caught(time_s: float) -> None:
    assert worst(driven(ewma_only(time_s), burst_after_idle)) > 1.01


def test_a03_no_margin_and_a_biased_sensor_are_caught() -> None:
    load: Activity = squares(np.array([0.05, 0.3]))
    trace = guarded(STEEP, buckets(0.0), gain=0.95).run(load, scenarios=2, seconds=1.2)
    for scenario in range(2):
        power = [float(w) for w in trace.power_watts[:30000, scenario]]
        found = check_trace(module(), Trace(power, [STEEP.step_s] * len(power)), [20e-3, 0.1, 0.3])
        assert max(f.ratio for f in found) > 1.01
