"""Feed-forward: what a job says, or shows, of its next phase becomes a proposed clock. The guard still disposes.

A guard alone knows nothing of tomorrow: it spends on phases that gain nothing from clock what the next burst could have
used, and runs a long burst fast and then slow, although clock is concave in power and an even burst is faster. Who
knows the phases of a step proposes the lowest useful clock between the bursts, and in them the one even clock that
spends what the envelope allows: for ever, and over the length of a burst. A wrong proposal costs speed, never safety.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetd.core.power.buckets import Buckets
from fleetd.core.power.chip import Chip

MAX_PHASES = 64
"""Phases of a step; a job that names more names its steps, not its phases."""
MAX_SAMPLES = 2048
"""Of which a period is looked for: the search takes their square."""
OVERDUE = 2.0
"""A phase that lasts this many times as long as usual is another phase: nothing is known of it."""
SAME_CYCLE = 0.5
"""Correlation from which two stretches are taken for the same cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A job says that a phase begins."""

    name: str
    activity: float = 1.0
    """How much of the part toggles, 0 … 1."""
    clock_bound: bool = True
    """Whether the phase ends sooner at a higher clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What is known of one phase."""

    hook: Hook
    seconds: float | None
    """Smoothed length; None: it has not ended yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForwardConfig:
    """One part."""

    chip: Chip
    buckets: Buckets
    """Of the compiled envelope, margins taken off."""
    useful_hertz: float
    """Lowest clock at which phases that are not bound by it do not slow down."""
    share: float = 0.25
    """Of a new length in the smoothed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForwardState:
    """The phases of a step as far as they are known, and the one that runs."""

    phases: tuple[Phase, ...] = ()
    running: str | None = None
    since_s: float = 0.0


def mark(config: FeedForwardConfig, state: FeedForwardState, hook: Hook, *, now_s: float) -> FeedForwardState:
    """A hook fired: the running phase ends and is learnt from, the named one begins.

    Past `MAX_PHASES` new names are left out: then nothing is known of them, and the guard decides alone.
    """
    phases = {phase.hook.name: phase for phase in state.phases}
    ended = phases.get(state.running or "")
    if ended is not None and now_s > state.since_s:
        took = now_s - state.since_s
        smooth = took if ended.seconds is None else ended.seconds + config.share * (took - ended.seconds)
        phases[ended.hook.name] = replace(ended, seconds=smooth)
    known = phases.get(hook.name)
    if known is not None or len(phases) < MAX_PHASES:
        phases[hook.name] = Phase(hook=hook, seconds=known.seconds if known else None)
    return FeedForwardState(phases=tuple(phases.values()), running=hook.name, since_s=now_s)


def propose(config: FeedForwardConfig, state: FeedForwardState, *, now_s: float) -> tuple[float, str]:
    """Propose a clock in hertz for the phase that runs, and say why."""
    chip = config.chip
    phase = next((p for p in state.phases if p.hook.name == state.running), None)
    if phase is None:
        return chip.clock_max_hertz, "no phase is known: the guard decides"
    if phase.seconds is not None and now_s - state.since_s > OVERDUE * phase.seconds:
        return chip.clock_max_hertz, f"{phase.hook.name} is overdue: the guard decides"
    if not phase.hook.clock_bound:
        return config.useful_hertz, f"{phase.hook.name} gains nothing from a higher clock"
    if any(p.seconds is None for p in state.phases):
        return chip.clock_max_hertz, "the first step is still running: the guard decides"
    clock = even_clock(config, state.phases)
    return clock, f"{clock / 1e6:.0f} MHz in every burst spends what is allowed and no more"


def even_clock(config: FeedForwardConfig, phases: Sequence[Phase]) -> float:
    """The highest clock of all bursts, in hertz, at which a step draws the sustained power and no burst runs dry.

    One clock is best, since clock is concave in power. A burst may take what the buckets let through over its length.
    Bursts were timed at the clocks of before; at another one they take a little more or less: the next step tells.
    """
    low, high = config.chip.clock_min_hertz, config.chip.clock_max_hertz
    if _joules_left(config, phases, high) >= 0:
        return high
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _joules_left(config, phases, middle) >= 0 else (low, middle)
    return low


def _joules_left(config: FeedForwardConfig, phases: Sequence[Phase], clock_hertz: float) -> float:
    """What the tightest allowance would have left: the step's at the sustained power, or a burst's."""
    took = [phase.seconds or 0.0 for phase in phases]
    drawn = [
        seconds
        * config.chip.power_watts(clock_hertz if phase.hook.clock_bound else config.useful_hertz, phase.hook.activity)
        for phase, seconds in zip(phases, took, strict=True)
    ]
    left = [config.buckets.sustained_watts * sum(took) - sum(drawn)]
    for burst in _bursts(phases):
        length = sum(took[n] for n in burst)
        left.append(config.buckets.energy_joules(length) - sum(drawn[n] for n in burst))
    return min(left)


def _bursts(phases: Sequence[Phase]) -> list[list[int]]:
    """Phases bound by the clock that follow each other; the last of a step is followed by the first of the next one."""
    count = len(phases)
    first = next((n for n in range(count) if not phases[n].hook.clock_bound), None)
    if first is None:
        return []  # one burst without end: the sustained power is its bound
    bursts: list[list[int]] = [[]]
    for number in (n % count for n in range(first, first + count)):
        if phases[number].hook.clock_bound:
            bursts[-1].append(number)
        elif bursts[-1]:
            bursts.append([])
    return [burst for burst in bursts if burst]


# ── without hooks ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """What the power of a job without hooks shows."""

    period_s: float
    high_share: float
    """Of the time above the middle of its levels."""
    high_watts: float
    low_watts: float


def find_cycle(watts: Sequence[float], *, step_s: float) -> Cycle | None:
    """Find the shortest period of evenly spaced samples; None if they show none, or not twice.

    The first peak of the autocorrelation that is at least half of what repeats exactly would give, and as high as any
    later one but for a tenth: a multiple of a period is no shorter period.

    Raises:
        ValueError: There are more than `MAX_SAMPLES`, or one is not finite.
    """
    if len(watts) > MAX_SAMPLES:
        raise ValueError(f"{len(watts)} samples; a cycle is looked for in at most {MAX_SAMPLES}")
    if not all(math.isfinite(w) for w in watts):
        raise ValueError("a sample is not finite")
    count = len(watts)
    if count < 4:  # noqa: PLR2004 - two samples a period, twice
        return None
    mean = sum(watts) / count
    swing = [w - mean for w in watts]
    power = sum(s * s for s in swing) / count
    if power <= (1e-6 * max(abs(mean), 1.0)) ** 2:
        return None  # flat but for rounding
    alike = [
        sum(a * b for a, b in zip(swing, swing[lag:], strict=False)) / (count - lag) / power
        for lag in range(count // 2 + 1)
    ]
    peaks = [
        lag
        for lag in range(2, len(alike))
        if alike[lag] >= SAME_CYCLE
        and alike[lag] >= alike[lag - 1]
        and (lag + 1 == len(alike) or alike[lag] > alike[lag + 1])
        and min(alike[:lag]) < 0
    ]
    if not peaks:
        return None
    best = max(alike[lag] for lag in peaks)
    lag = next(n for n in peaks if alike[n] >= 0.9 * best)
    middle = (max(watts) + min(watts)) / 2
    high, low = [w for w in watts if w > middle], [w for w in watts if w <= middle]
    return Cycle(
        period_s=lag * step_s,
        high_share=len(high) / count,
        high_watts=sum(high) / len(high),
        low_watts=sum(low) / len(low),
    )
