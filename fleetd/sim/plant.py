"""Simulated parts under a guard, many scenarios at once: the plant of the power tests and of the duty-cycle benchmark.

One row is one scenario: its own activity, sensor gain and envelope, stepped together in numpy. The guard in here is the
vector twin of `fleetd.core.power.guard` (a test holds them equal): a fast loop of a 20 µs step in plain Python would
take hours. Shapes: S scenarios, J buckets, n steps of a loop period. Watts, joules, hertz, seconds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetd.core.power.buckets import Bucket
from fleetd.core.power.chip import Chip

Floats = NDArray[np.float64]

_TABLE = 4096
"""Points of P(f, 1): linear interpolation of a convex curve overstates the power, so a clock read from it is safe."""

Activity = Callable[[float, int, float], Floats]
"""(start_s, steps, step_s) → activity 0 … 1, shape [S, steps], each the mean over its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Timing of the closed loop. A period and the dead time are whole steps."""

    period_s: float
    dead_s: float
    step_s: float

    @property
    def steps(self) -> int:
        """Steps of a period."""
        return round(self.period_s / self.step_s)

    @property
    def dead_steps(self) -> int:
        """Steps from a decision until the clock follows."""
        return round(self.dead_s / self.step_s)

    def __post_init__(self) -> None:
        for name, seconds in (("period_s", self.period_s), ("dead_s", self.dead_s)):
            if abs(seconds / self.step_s - round(seconds / self.step_s)) > 1e-6:  # noqa: PLR2004 - rounding only
                raise ValueError(f"{name} is no whole number of steps of {self.step_s:g} s")
        if not 0 <= self.dead_steps <= self.steps or self.steps < 1:
            raise ValueError("a loop needs 0 <= dead_s <= period_s")


class Curve:
    """The power of a chip over arrays."""

    def __init__(self, chip: Chip) -> None:
        """Tabulate P(f, 1)."""
        self.chip = chip
        self.clocks: Floats = np.linspace(chip.clock_min_hertz, chip.clock_max_hertz, _TABLE)
        self.full: Floats = np.array([chip.power_watts(float(clock), 1.0) for clock in self.clocks])

    def power_watts(self, clock_hertz: Floats, activity: Floats) -> Floats:
        """P(f, a); the shapes broadcast."""
        chip = self.chip
        volts = np.maximum(chip.v_min, chip.v_ref + chip.slope_volts_per_hertz * (clock_hertz - chip.clock_ref_hertz))
        uncore = chip.uncore_low_watts + (chip.uncore_high_watts - chip.uncore_low_watts) * activity
        watts: Floats = chip.leak_watts + uncore + activity * chip.capacitance * volts**2 * clock_hertz
        return watts

    def clock_hertz(self, power_watts: Floats) -> Floats:
        """The highest clock whose worst-case draw stays within a power, shape as given."""
        clocks: Floats = np.asarray(np.interp(power_watts, self.full, self.clocks), dtype=np.float64)
        return clocks


@dataclass(frozen=True, slots=True)
class Trace:
    """What a run left. S scenarios, N steps."""

    power_watts: Floats
    """[N, S]: the mean of each step."""
    clock_hertz: Floats
    """[N, S]"""
    activity: Floats
    """[N, S]"""
    step_s: float

    def busy_clock_hertz(self, *, after_s: float, busy: float = 0.5) -> Floats:
        """[S]: the mean clock while the activity is above `busy`, after a time."""
        first = round(after_s / self.step_s)
        high = self.activity[first:] > busy
        return np.asarray((self.clock_hertz[first:] * high).sum(axis=0) / np.maximum(high.sum(axis=0), 1))

    def mean_power_watts(self, *, after_s: float) -> Floats:
        """[S]: the average power after a time."""
        return np.asarray(self.power_watts[round(after_s / self.step_s) :].mean(axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedPlant:
    """A part whose own fast loop is the guard: it sees the power of every step, through a gain that may be wrong."""

    chip: Chip
    buckets: Sequence[Bucket]
    """Margins taken off."""
    loop: Loop
    gain: Floats | float = 1.0
    """[S] or a number: what the sensor says for one true watt."""
    proposal_hertz: Floats | float = np.inf
    """[S] or a number: what the optimiser wants."""

    def run(self, activity: Activity, *, scenarios: int, seconds: float) -> Trace:
        """Run from empty buckets and the lowest clock, whole periods; keeps everything: for runs of seconds."""
        blocks = list(self.blocks(activity, scenarios=scenarios, seconds=seconds, block_s=seconds))
        return blocks[0]

    def blocks(self, activity: Activity, *, scenarios: int, seconds: float, block_s: float) -> Iterator[Trace]:
        """The same run in pieces of at most `block_s`, one after the other: memory is that of one piece."""
        curve, loop = Curve(self.chip), self.loop
        state = _State(
            levels=np.zeros((scenarios, len(self.buckets))), clock=np.full(scenarios, self.chip.clock_min_hertz)
        )
        wish = np.broadcast_to(np.asarray(self.proposal_hertz, dtype=float), scenarios)
        periods, at_once = round(seconds / loop.period_s), max(1, round(block_s / loop.period_s))
        for first in range(0, periods, at_once):
            yield self._block(curve, state, wish, activity, range(first, min(first + at_once, periods)))

    def _block(self, curve: Curve, state: "_State", wish: Floats, activity: Activity, periods: range) -> Trace:
        """A stretch of periods; carries the state on."""
        loop = self.loop
        scenarios, total = len(wish), len(periods) * loop.steps
        power, clocks, acts = np.empty((total, scenarios)), np.empty((total, scenarios)), np.empty((total, scenarios))
        rates = np.array([b.rate_watts for b in self.buckets])
        depths = np.array([b.depth_joules for b in self.buckets])
        gone_s = loop.step_s * np.arange(1, loop.steps + 1)
        gain = np.broadcast_to(np.asarray(self.gain, dtype=float), scenarios)
        for number, period in enumerate(periods):
            granted = np.minimum(self._most(curve, state, rates, depths), wish)
            granted = np.maximum(granted, self.chip.clock_min_hertz)
            at = slice(number * loop.steps, (number + 1) * loop.steps)
            acts[at] = activity(period * loop.period_s, loop.steps, loop.step_s).T
            clocks[at] = granted
            clocks[at][: loop.dead_steps] = state.clock
            power[at] = curve.power_watts(clocks[at], acts[at])
            # A bucket that is filled and drained for n steps ends at C_n + min(level, depth - max_k C_k), where C_k is
            # its net inflow up to step k: full at some step k, it has lost what came in before.
            spent = np.cumsum(power[at] * gain, axis=0) * loop.step_s
            inflow = rates[None, :, None] * gone_s[:, None, None] - spent[:, None, :]
            state.levels = (inflow[-1] + np.minimum(state.levels.T, depths[:, None] - inflow.max(axis=0))).T
            state.clock = granted
        return Trace(power, clocks, acts, loop.step_s)

    def _most(self, curve: Curve, state: "_State", rates: Floats, depths: Floats) -> Floats:
        in_flight = curve.power_watts(state.clock, np.ones_like(state.clock))
        then = np.minimum(depths, state.levels + (rates - in_flight[:, None]) * self.loop.dead_s)
        return curve.clock_hertz((rates + then / self.loop.period_s).min(axis=1))


@dataclass(slots=True)
class _State:
    """Between two periods."""

    levels: Floats
    """[S, J] joules left."""
    clock: Floats
    """[S] in force."""


def duty_cycle(duty: Floats, kernel_s: Floats, *, low: float, phase_s: Floats | float = 0.0) -> Activity:
    """Kernels of a length at full activity, then the low phase; duty 1 is back to back. [S] each.

    `phase_s`: how far into its cycle each scenario begins.
    """
    period = kernel_s / duty
    into = np.broadcast_to(np.asarray(phase_s, dtype=float), period.shape)

    def activity(start_s: float, steps: int, step_s: float) -> Floats:
        begin = into[:, None] + start_s + step_s * np.arange(steps)[None, :]
        high = _overlap(begin, step_s, period[:, None], kernel_s[:, None])
        return low + (1.0 - low) * high

    return activity


def _overlap(begin: Floats, step: float, period: Floats, high: Floats) -> Floats:
    """The share of each step that lies in the high phase; exact for any phase of the step."""
    end = begin + step
    return (_high_before(end, period, high) - _high_before(begin, period, high)) / step


def _high_before(at: Floats, period: Floats, high: Floats) -> Floats:
    cycles = np.floor(at / period)
    return cycles * high + np.minimum(at - cycles * period, high)
