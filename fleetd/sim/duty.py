"""The duty-cycle benchmark on a simulated part under the guard: every point and repeat is one scenario of one run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetd.core.power.buckets import Bucket
from fleetd.core.power.checker import TOLERANCE
from fleetd.core.power.chip import Chip
from fleetd.model.envelope import Envelope
from fleetd.sim.audit import WindowAudit, window_steps
from fleetd.sim.plant import Floats, GuardedPlant, Loop, duty_cycle

SETTLE_S = 0.5
"""Until the buckets of a second no longer remember the start."""
MEASURE_S = 1.1
"""More than the longest window of the shipped envelopes (1 s)."""
WINDOWS = 120
"""Window lengths that the audit looks at, each at every offset."""
BLOCK = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPoint:
    """One point of one repeat."""

    repeat: int
    point: int | None
    """None: back to back."""
    clock_hertz: float
    """Mean inside the bursts: the rate of work that is bound by the clock."""
    power_watts: float
    violations: int
    """Window lengths whose worst average broke the envelope, of those that the audit looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimBench:
    """What to run. Seconds, ratios."""

    chip: Chip
    envelope: Envelope
    buckets: Sequence[Bucket]
    loop: Loop
    low: float
    """Activity between the bursts."""
    duty: Sequence[float]
    kernel_s: Sequence[float]
    """As long as `duty`."""
    repeats: int
    seed: int

    def run(self) -> list[SimPoint]:
        """Run all of it; each repeat begins its cycles at random phases drawn from the seed."""
        points = len(self.duty)
        duty = np.tile(np.array([*self.duty, 1.0]), self.repeats)
        kernel = np.tile(np.array([*self.kernel_s, 1e-3]), self.repeats)
        phase = np.random.default_rng(self.seed).random(len(duty)) * kernel / duty
        plant = GuardedPlant(chip=self.chip, buckets=self.buckets, loop=self.loop)
        activity = duty_cycle(duty, kernel, low=self.low, phase_s=phase)
        trace = plant.run(activity, scenarios=len(duty), seconds=self.seconds)
        clock = trace.busy_clock_hertz(after_s=SETTLE_S)
        power = trace.mean_power_watts(after_s=SETTLE_S)
        broken = self._audit(trace.power_watts)
        return [
            SimPoint(
                repeat=scenario // (points + 1),
                point=None if scenario % (points + 1) == points else scenario % (points + 1),
                clock_hertz=float(clock[scenario]),
                power_watts=float(power[scenario]),
                violations=int(broken[scenario]),
            )
            for scenario in range(len(duty))
        ]

    @property
    def seconds(self) -> float:
        """Simulated time of the run."""
        longest = max(kernel / duty for kernel, duty in zip(self.kernel_s, self.duty, strict=True))
        return SETTLE_S + max(MEASURE_S, 3.0 * longest)

    def _audit(self, power_watts: Floats) -> Floats:
        steps = window_steps(self.envelope, self.loop.step_s, WINDOWS)
        audit = WindowAudit(self.envelope, step_s=self.loop.step_s, steps=steps, scenarios=power_watts.shape[1])
        for first in range(0, len(power_watts), BLOCK):
            audit.push(power_watts[first : first + BLOCK])
        return np.asarray((audit.ratio > 1.0 + TOLERANCE).sum(axis=0))
