"""The duty-cycle benchmark on simulated parts, under the guard or under the vendor's own limiter.

Every point and repeat is one scenario of one run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetd.core.power.buckets import Bucket
from fleetd.core.power.checker import TOLERANCE
from fleetd.core.power.chip import Chip
from fleetd.core.power.limiter import LimitedPart
from fleetd.model.envelope import Envelope
from fleetd.sim.audit import WindowAudit, window_steps
from fleetd.sim.limiter import LimitedPlant
from fleetd.sim.plant import Floats, GuardedPlant, Loop, duty_cycle

SETTLE_S = 0.5
"""Until the buckets of a second no longer remember the start."""
MEASURE_S = 1.1
"""More than the longest window of the shipped envelopes (1 s)."""
WINDOWS = 120
"""Window lengths that the audit looks at, each at every offset."""
BLOCK = 5000
MOST_SAMPLES = 50_000_000
"""Steps times scenarios of a run; its arrays take 24 bytes for each."""
TOUCHED = 1e-6
"""Activity beyond that of rest; less is rounding."""
LIMITER_SETTLE_S = 3.0
"""Until a limiter that averages over a second has settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPoint:
    """One point of one repeat."""

    repeat: int
    point: int | None
    """None: back to back."""
    rate: float
    """Of the work inside the bursts: the clock under the guard, the part's own work rate under its limiter."""
    clock_hertz: float
    """Mean inside the bursts."""
    power_watts: float
    violations: int | None
    """Window lengths whose worst average broke the envelope, of those that the audit looked at.

    None under the vendor's limiter: its firmware, not fleetd, holds the power, and promises no envelope.
    """


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
        duty, kernel, phase = _scenarios(self.duty, self.kernel_s, self.repeats, self.seed)
        plant = GuardedPlant(chip=self.chip, buckets=self.buckets, loop=self.loop)
        activity = duty_cycle(duty, kernel, low=self.low, phase_s=phase)
        trace = plant.run(activity, scenarios=len(duty), seconds=self.seconds)
        clock = trace.busy_clock_hertz(after_s=SETTLE_S)
        power = trace.mean_power_watts(after_s=SETTLE_S)
        broken = self._audit(trace.power_watts)
        return _points(len(self.duty), rate=clock, clock=clock, power=power, violations=[int(n) for n in broken])

    @property
    def seconds(self) -> float:
        """Simulated time of the run."""
        return SETTLE_S + _measure_s(self.duty, self.kernel_s)

    @property
    def samples(self) -> float:
        """Steps times scenarios."""
        return self.seconds / self.loop.step_s * self.repeats * (len(self.duty) + 1)

    def _audit(self, power_watts: Floats) -> Floats:
        steps = window_steps(self.envelope, self.loop.step_s, WINDOWS)
        audit = WindowAudit(self.envelope, step_s=self.loop.step_s, steps=steps, scenarios=power_watts.shape[1])
        for first in range(0, len(power_watts), BLOCK):
            audit.push(power_watts[first : first + BLOCK])
        return np.asarray((audit.ratio > 1.0 + TOLERANCE).sum(axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedBench:
    """The same on a part under its vendor's own limiter. Seconds, ratios."""

    part: LimitedPart
    duty: Sequence[float]
    kernel_s: Sequence[float]
    """As long as `duty`."""
    repeats: int
    seed: int

    def run(self) -> list[SimPoint]:
        """Run all of it; each repeat begins its cycles at random phases drawn from the seed."""
        duty, kernel, phase = _scenarios(self.duty, self.kernel_s, self.repeats, self.seed)
        plant = LimitedPlant(self.part)
        activity = duty_cycle(duty, kernel, low=self.part.low, phase_s=phase)
        limit = self.part.limiter.limit_watts
        trace = plant.run(activity, scenarios=len(duty), seconds=self.seconds, before_watts=limit)
        return _points(
            len(self.duty),
            rate=plant.busy_rate(trace, kernel, rested=duty < 1.0, after_s=LIMITER_SETTLE_S),
            # A burst shorter than a step fills no step by half: every step counts that a burst has touched.
            clock=trace.busy_clock_hertz(after_s=LIMITER_SETTLE_S, busy=self.part.low + TOUCHED),
            power=trace.mean_power_watts(after_s=LIMITER_SETTLE_S),
            violations=[None] * len(duty),
        )

    @property
    def seconds(self) -> float:
        """Simulated time of the run."""
        return LIMITER_SETTLE_S + _measure_s(self.duty, self.kernel_s)

    @property
    def samples(self) -> float:
        """Steps times scenarios."""
        return self.seconds / self.part.step_s * self.repeats * (len(self.duty) + 1)


def _measure_s(duty: Sequence[float], kernel_s: Sequence[float]) -> float:
    return max(MEASURE_S, 3.0 * max(kernel / share for kernel, share in zip(kernel_s, duty, strict=True)))


def _scenarios(
    duty: Sequence[float], kernel_s: Sequence[float], repeats: int, seed: int
) -> tuple[Floats, Floats, Floats]:
    """Duty, seconds of a kernel and of the phase, [repeats x (points + 1)]; the last of a repeat is back to back."""
    shares = np.tile(np.array([*duty, 1.0]), repeats)
    kernels = np.tile(np.array([*kernel_s, 1e-3]), repeats)
    return shares, kernels, np.random.default_rng(seed).random(len(shares)) * kernels / shares


def _points(
    points: int, *, rate: Floats, clock: Floats, power: Floats, violations: Sequence[int | None]
) -> list[SimPoint]:
    return [
        SimPoint(
            repeat=scenario // (points + 1),
            point=None if scenario % (points + 1) == points else scenario % (points + 1),
            rate=float(rate[scenario]),
            clock_hertz=float(clock[scenario]),
            power_watts=float(power[scenario]),
            violations=violations[scenario],
        )
        for scenario in range(len(rate))
    ]
