"""What is known of the next phase makes bursts faster; what is wrongly known makes nothing unsafe."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.core.power import guard
from fleetd.core.power.checker import TOLERANCE, Trace, check_trace
from fleetd.core.power.compiler import compile_envelope
from fleetd.core.power.feedforward import (
    MAX_PHASES,
    MAX_SAMPLES,
    Cycle,
    FeedForwardConfig,
    FeedForwardState,
    Hook,
    even_clock,
    find_cycle,
    mark,
    propose,
)
from fleetd.core.power.guard import GuardConfig
from tests.power.rigs_power import STEEP, module, oracle_hertz

CHIP = STEEP.chip
ENVELOPE = compile_envelope(module())
HELD = ENVELOPE.buckets
CONFIG = FeedForwardConfig(chip=CHIP, buckets=ENVELOPE, useful_hertz=CHIP.clock_min_hertz)
GEMM, WAIT = Hook(name="gemm"), Hook(name="wait", activity=0.1, clock_bound=False)
PERIOD_S, DEAD_S = 100e-6, 20e-6
Wish = Callable[[float, bool], float]
"""(time, whether a burst runs) → proposed clock."""


def run(wish: Wish, *, busy_s: float, idle_s: float, seconds: float = 0.2) -> tuple[float, Trace]:
    """The guard under a duty cycle; the mean clock of the bursts after the first half, and the power."""
    config = GuardConfig(chip=CHIP, buckets=HELD, period_s=PERIOD_S, dead_s=DEAD_S)
    state, watts, lengths, clocks = guard.start(config), [], [], []
    for period in range(round(seconds / PERIOD_S)):
        now_s = period * PERIOD_S
        busy = now_s % (busy_s + idle_s) < busy_s - 1e-9
        before, state = state, guard.dispose(config, state, proposal_hertz=wish(now_s, busy))
        for clock, length in ((before.clock_hertz, DEAD_S), (state.clock_hertz, PERIOD_S - DEAD_S)):
            power = CHIP.power_watts(clock, 1.0 if busy else WAIT.activity)
            state = guard.spend(config, state, power_watts=power, seconds=length)
            watts.append(power)
            lengths.append(length)
            if busy and now_s > seconds / 2:
                clocks.append((clock, length))
    return sum(c * s for c, s in clocks) / sum(s for _, s in clocks), Trace(watts, lengths)


def hooked() -> Wish:
    """Hooks fire where a phase changes."""
    state, was = FeedForwardState(), None

    def wish(now_s: float, busy: bool) -> float:
        nonlocal state, was
        if busy is not was:
            state, was = mark(CONFIG, state, GEMM if busy else WAIT, now_s=now_s), busy
        return propose(CONFIG, state, now_s=now_s)[0]

    return wish


# Where the length of a burst is the bound and not the mean power, the guard alone does almost as well.
@pytest.mark.parametrize(
    ("busy_s", "idle_s", "better"), [(1.2e-3, 0.8e-3, 1.01), (6e-3, 4e-3, 1.0), (6e-3, 2e-3, 1.01)]
)
def test_hooks_bring_the_bursts_to_the_oracle_and_break_nothing(busy_s: float, idle_s: float, better: float) -> None:
    alone, _ = run(lambda _now, _busy: math.inf, busy_s=busy_s, idle_s=idle_s)
    helped, trace = run(hooked(), busy_s=busy_s, idle_s=idle_s)
    forever = oracle_hertz(
        CHIP,
        duty=busy_s / (busy_s + idle_s),
        low=WAIT.activity,
        watts=HELD[-1].rate_watts,
        low_clock_hertz=CHIP.clock_min_hertz,
    )
    # Nor does a burst draw more than any window of its length may.
    could = min(forever, CHIP.clock_hertz(ENVELOPE.energy_joules(busy_s) / busy_s))
    assert helped >= better * alone
    assert 0.98 * could <= helped <= 1.001 * could
    worst = check_trace(module(), trace, [20e-6, 200e-6, 2e-3, 20e-3, 0.1])
    assert max(w.ratio for w in worst) <= 1 + TOLERANCE


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1e9, 5e9), min_size=1, max_size=50))
def test_a_wrong_proposal_is_never_unsafe(wishes: list[float]) -> None:
    _, trace = run(
        lambda now_s, _busy: wishes[round(now_s / PERIOD_S) % len(wishes)], busy_s=3e-3, idle_s=2e-3, seconds=0.03
    )
    worst = check_trace(module(), trace, [20e-6, 200e-6, 2e-3, 20e-3])
    assert max(w.ratio for w in worst) <= 1 + TOLERANCE


def test_what_is_proposed_and_why() -> None:
    state = FeedForwardState()
    assert propose(CONFIG, state, now_s=0.0) == (CHIP.clock_max_hertz, "no phase is known: the guard decides")
    state = mark(CONFIG, state, GEMM, now_s=0.0)
    assert "first step" in propose(CONFIG, state, now_s=0.001)[1]
    state = mark(CONFIG, state, WAIT, now_s=0.0012)
    assert propose(CONFIG, state, now_s=0.0015) == (CHIP.clock_min_hertz, "wait gains nothing from a higher clock")
    state = mark(CONFIG, state, GEMM, now_s=0.002)
    clock, why = propose(CONFIG, state, now_s=0.0021)
    assert clock == even_clock(CONFIG, state.phases)
    assert "spends what" in why
    spent = 0.6 * CHIP.power_watts(clock, 1.0) + 0.4 * CHIP.power_watts(CHIP.clock_min_hertz, 0.1)
    assert spent == pytest.approx(ENVELOPE.sustained_watts)
    assert "overdue" in propose(CONFIG, state, now_s=0.002 + 0.0026)[1]


def test_lengths_are_smoothed_and_names_are_bounded() -> None:
    state = mark(CONFIG, mark(CONFIG, FeedForwardState(), GEMM, now_s=0.0), WAIT, now_s=1.0)
    state = mark(CONFIG, mark(CONFIG, state, GEMM, now_s=1.5), WAIT, now_s=3.5)
    assert [p.seconds for p in state.phases] == [1.25, 0.5]
    for number in range(3 * MAX_PHASES):
        state = mark(CONFIG, state, Hook(name=str(number)), now_s=4.0 + number)
    assert len(state.phases) == MAX_PHASES
    assert "no phase" in propose(CONFIG, state, now_s=1e3)[1]


@given(st.integers(4, 60), st.floats(0.2, 0.8), st.integers(0, 59))
def test_a_cycle_is_found_whatever_its_phase(period: int, duty: float, phase: int) -> None:
    high = min(period - 1, max(1, round(duty * period)))
    watts = [900.0 if (n + phase) % period < high else 300.0 for n in range(6 * period)]
    assert find_cycle(watts, step_s=0.02) == Cycle(
        period_s=pytest.approx(period * 0.02),
        high_share=pytest.approx(high / period),
        high_watts=900.0,
        low_watts=300.0,
    )


@pytest.mark.parametrize(
    "watts", [[], [1.0, 2.0, 3.0], [500.0] * 100, [float(n) for n in range(200)], [0.1 * 3] * 50], ids=len
)
def test_no_cycle_where_there_is_none(watts: list[float]) -> None:
    assert find_cycle(watts, step_s=0.02) is None


def test_bad_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        find_cycle([0.0] * (MAX_SAMPLES + 1), step_s=0.02)
    with pytest.raises(ValueError, match="not finite"):
        find_cycle([1.0, math.nan, 1.0, 2.0], step_s=0.02)
