"""Simulated parts under their vendor's own power limiter (`fleetd.core.power.limiter`), many scenarios at once.

Shapes: S scenarios. Watts, hertz, seconds.
"""

import numpy as np
from numpy.typing import NDArray

from fleetd.core.power.limiter import LimitedPart
from fleetd.sim.plant import Activity, Curve, Floats, Trace


class LimitedPlant:
    """Runs a part."""

    def __init__(self, part: LimitedPart) -> None:
        """Nothing is simulated yet."""
        self.part = part

    def rate(self, clock_hertz: Floats) -> Floats:
        """Work a second at clocks, shape as given."""
        work = self.part.work
        return np.asarray(1.0 / (work.bound / clock_hertz + work.rest))

    def run(self, activity: Activity, *, scenarios: int, seconds: float, before_watts: Floats | float) -> Trace:
        """Run from the highest clock after a long time at a constant power (`before_watts`, [S] or a number)."""
        chip, own, step = self.part.chip, self.part.limiter, self.part.step_s
        curve = Curve(chip)
        each = round(own.period_s / step)
        steps = round(seconds / own.period_s) * each
        before = np.broadcast_to(np.asarray(before_watts, dtype=float), scenarios)
        box = np.tile(before, (round(own.box_s / step), 1))
        average, filtered = before.copy(), before.copy()
        clock = np.full(scenarios, chip.clock_max_hertz)
        trim = np.zeros(scenarios)
        power, clocks, acts = (np.empty((steps, scenarios)) for _ in range(3))
        for at in range(steps):
            if at % each == 0:
                block = activity(at * step, each, step)
                trim, slow = self._slow(trim, average - own.limit_watts)
                fast = own.fast_hertz_per_watt * np.maximum(filtered - own.fast_watts, 0.0)
                wanted = np.clip(chip.clock_max_hertz - fast - slow, chip.clock_min_hertz, chip.clock_max_hertz)
                fall, rise = own.fall_hertz_per_second * own.period_s, own.rise_hertz_per_second * own.period_s
                clock = np.clip(wanted, clock - fall, clock + rise)
            busy = block[:, at % each]
            watts = curve.power_watts(clock, busy)
            filtered = filtered + (watts - filtered) * step / own.filter_s
            average = average + (watts - box[at % len(box)]) / len(box)
            box[at % len(box)] = watts
            power[at], clocks[at], acts[at] = watts, clock, busy
        return Trace(power, clocks, acts, step)

    def _slow(self, trim: Floats, over_watts: Floats) -> tuple[Floats, Floats]:
        """The integral after one more period, and all that the slow loop takes off the clock; hertz, [S] each."""
        own = self.part.limiter
        gain = np.where(over_watts > 0.0, own.slow_hertz_per_watt, own.recover_hertz_per_watt)
        trim = np.clip(trim + gain * over_watts, 0.0, own.slow_hertz)
        return trim, trim + own.over_hertz_per_watt * np.maximum(over_watts, 0.0)

    def busy_rate(self, trace: Trace, kernel_s: Floats, *, rested: NDArray[np.bool_], after_s: float) -> Floats:
        """[S]: mean rate inside the bursts after a time; `rested`: whether a burst follows a rest (duty below 1)."""
        first = round(after_s / self.part.step_s)
        share = np.clip((trace.activity[first:] - self.part.low) / (1.0 - self.part.low), 0.0, 1.0)
        rate = (self.rate(trace.clock_hertz[first:]) * share).sum(axis=0) / share.sum(axis=0)
        lost = np.where(rested, self.part.work.launch_s / kernel_s, 0.0)
        return np.asarray(rate * (1.0 - lost))
