"""A part under its vendor's own power limiter: what an H200 does by itself, without anything being set.

Two loops, as the measured boost profile shows them: a fast one on filtered power that lets a burst run at the full
clock until the filter has filled and then slides the clock down at a limited pace, and a slow one that trims the clock
until the average over a second meets the limit. Shapes: S scenarios. Watts, hertz, seconds.
"""

from dataclasses import dataclass

import numpy as np

from fleetd.core.power.chip import Chip
from fleetd.sim.plant import Activity, Curve, Floats, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Limiter:
    """The firmware's loops; fitted, not documented."""

    limit_watts: float
    """What the average over `box_s` is trimmed to."""
    fast_watts: float
    """Filtered power above which the fast loop lowers the clock."""
    filter_s: float
    fast_hertz_per_watt: float
    fall_hertz_per_second: float
    rise_hertz_per_second: float
    box_s: float
    slow_hertz_per_watt: float
    """Trim of the clock for a watt above the limit, each period."""
    slow_hertz: float
    """The most that the slow loop takes off."""
    period_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRate:
    """Rate of a kind of work over the clock: `1 / (bound / f + rest)`: a part that scales, a part that does not."""

    bound: float
    """Hertz per unit of rate."""
    rest: float
    """Per unit of rate."""
    launch_s: float
    """Lost at the start of each burst after a rest."""

    def rate(self, clock_hertz: Floats) -> Floats:
        """Work a second at a clock."""
        return np.asarray(1.0 / (self.bound / clock_hertz + self.rest))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedPlant:
    """A chip, its limiter, and the work it does. Activity 1 is the work, `low` what runs between bursts."""

    name: str
    chip: Chip
    limiter: Limiter
    work: WorkRate
    low: float
    step_s: float

    def run(self, activity: Activity, *, scenarios: int, seconds: float, before_watts: Floats | float) -> Trace:
        """Run from the highest clock after a long time at a constant power (`before_watts`, [S] or a number)."""
        curve, own, step = Curve(self.chip), self.limiter, self.step_s
        each = round(own.period_s / step)
        steps = round(seconds / own.period_s) * each
        before = np.broadcast_to(np.asarray(before_watts, dtype=float), scenarios)
        box = np.tile(before, (round(own.box_s / step), 1))
        average, filtered = before.copy(), before.copy()
        clock = np.full(scenarios, self.chip.clock_max_hertz)
        trim = np.zeros(scenarios)
        power, clocks, acts = (np.empty((steps, scenarios)) for _ in range(3))
        for at in range(steps):
            if at % each == 0:
                block = activity(at * step, each, step)
                trim = np.clip(trim + own.slow_hertz_per_watt * (average - own.limit_watts), 0.0, own.slow_hertz)
                over = np.maximum(filtered - own.fast_watts, 0.0)
                wanted = np.clip(
                    self.chip.clock_max_hertz - own.fast_hertz_per_watt * over - trim,
                    self.chip.clock_min_hertz,
                    self.chip.clock_max_hertz,
                )
                fall, rise = own.fall_hertz_per_second * own.period_s, own.rise_hertz_per_second * own.period_s
                clock = np.clip(wanted, clock - fall, clock + rise)
            busy = block[:, at % each]
            watts = curve.power_watts(clock, busy)
            filtered = filtered + (watts - filtered) * step / own.filter_s
            average = average + (watts - box[at % len(box)]) / len(box)
            box[at % len(box)] = watts
            power[at], clocks[at], acts[at] = watts, clock, busy
        return Trace(power, clocks, acts, step)

    def busy_rate(self, trace: Trace, kernel_s: Floats, *, rested: Floats, after_s: float) -> Floats:
        """[S]: mean rate inside the bursts after a time; `rested`: whether a burst follows a rest (duty below 1)."""
        first = round(after_s / self.step_s)
        share = np.clip((trace.activity[first:] - self.low) / (1.0 - self.low), 0.0, 1.0)
        rate = (self.work.rate(trace.clock_hertz[first:]) * share).sum(axis=0) / share.sum(axis=0)
        lost = np.where(rested, self.work.launch_s / kernel_s, 0.0)
        return np.asarray(rate * (1.0 - lost))
