"""The audit of many scenarios finds what the checker finds in each; its buckets find what all windows find."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.core.power.buckets import Bucket
from fleetd.core.power.checker import Trace, check_trace
from fleetd.sim.audit import BucketAudit, WindowAudit, window_steps
from fleetd.sim.plant import Loop, duty_cycle
from tests.power.rigs_power import module

STEP_S = 1e-3
traces = st.lists(st.tuples(st.floats(0, 2000), st.floats(0, 2000)), min_size=1, max_size=120)
cuts = st.lists(st.integers(1, 50), min_size=1, max_size=10)


def blocks(power: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    edges = np.cumsum(sizes)
    return [part for part in np.split(power, edges[edges < len(power)]) if len(part)]


@settings(max_examples=100, deadline=None)
@given(traces, cuts)
def test_windows_as_the_checker(pieces: list[tuple[float, float]], sizes: list[int]) -> None:
    power, envelope, steps = np.array(pieces), module(), [1, 2, 5, 20, 64]
    audit = WindowAudit(envelope, step_s=STEP_S, steps=steps, scenarios=2)
    for part in blocks(power, sizes):
        audit.push(part)
    for scenario in range(2):
        trace = Trace([float(w) for w in power[:, scenario]], [STEP_S] * len(power))
        found = check_trace(envelope, trace, [k * STEP_S for k in steps if k <= len(power)])
        assert audit.ratio[: len(found), scenario] == pytest.approx([max(0.0, f.ratio) for f in found], abs=1e-9)
        assert (audit.ratio[len(found) :, scenario] == 0).all()


@settings(max_examples=60, deadline=None)
@given(traces, cuts, st.floats(0, 1500))
def test_buckets_are_every_window(pieces: list[tuple[float, float]], sizes: list[int], rate: float) -> None:
    power = np.array(pieces)
    audit = BucketAudit([Bucket(name="b", rate_watts=rate, depth_joules=0.5)], step_s=STEP_S, scenarios=2)
    for part in blocks(power, sizes):
        audit.push(part)
    energy = np.concatenate([np.zeros((1, 2)), np.cumsum(power, axis=0) * STEP_S])
    count = len(power)
    windows = [(a, b) for a in range(count + 1) for b in range(max(a, 1), count + 1)]
    every = [energy[b] - energy[a] - rate * STEP_S * (b - a) - 0.5 for a, b in windows]
    assert audit.excess_joules[0] == pytest.approx(np.max(every, axis=0), abs=1e-9)


def test_window_steps_reach_from_one_step_to_the_longest_row() -> None:
    steps = window_steps(module(), 20e-6, 30)
    assert (steps[0], steps[-1]) == (1, 50_000)
    assert steps == sorted(set(steps))


def test_a_duty_cycle_is_exact_whatever_the_step() -> None:
    load = duty_cycle(np.array([0.3, 1.0]), np.array([3e-4, 3e-4]), low=0.1)
    for step_s in (2e-5, 7e-5, 1e-3):
        means = load(0.0, round(0.1 / step_s), step_s).mean(axis=1)
        assert means == pytest.approx([0.1 + 0.9 * 0.3, 1.0], abs=0.005)
    assert load(0.0, 50, 2e-5)[0, :15] == pytest.approx(1.0)
    assert load(0.0, 50, 2e-5)[0, 15:50] == pytest.approx(0.1)


@pytest.mark.parametrize(("period_s", "dead_s"), [(1e-4, 3e-5), (1e-4, 1.2e-4), (0.9e-4, 2e-5)])
def test_a_loop_is_made_of_whole_steps(period_s: float, dead_s: float) -> None:
    with pytest.raises(ValueError, match=r"step|dead_s"):
        Loop(period_s=period_s, dead_s=dead_s, step_s=2e-5)
