"""Trials of set-points on a simulated part: a job's bursts for the speed, hostile loads beside them for the audit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleetd.core.power.chip import Chip
from fleetd.core.power.tune import Candidate, Trial, Work, weighted_speedup
from fleetd.model.envelope import Envelope
from fleetd.sim.audit import WindowAudit, window_steps
from fleetd.sim.plant import Activity, Floats, GuardedPlant, Loop, duty_cycle

WINDOWS = 80
"""Window lengths that the audit looks at, each at every offset."""
SQUARES = 6
"""Hostile square waves beside the job, from a millisecond up: idle for a time, then everything for as long."""
BLOCK = 50_000
"""Steps that the audit takes at once: its own arrays are as long."""
SETTLE = 0.3
"""Share of a trial before the clocks count: buckets begin empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """A part and a job; the same seed gives the same trials."""

    chip: Chip
    loop: Loop
    envelope: Envelope
    works: Sequence[Work]
    low: float
    """Activity between the bursts."""
    seed: int

    def run(self, candidates: Sequence[Candidate], seconds: float) -> Iterator[Trial]:
        """Try each for so long. All are tried under the same load."""
        for candidate in candidates:
            yield self.one(candidate, seconds)

    def samples(self, seconds: float) -> float:
        """Steps times scenarios of a trial; its arrays take 24 bytes for each."""
        return seconds / self.loop.step_s * (len(self.works) + SQUARES)

    def one(self, candidate: Candidate, seconds: float) -> Trial:
        """Try one. Raises Infeasible."""
        scenarios = len(self.works) + SQUARES
        cap = candidate.clock_cap_hertz
        plant = GuardedPlant(
            chip=self.chip,
            buckets=candidate.buckets(self.envelope),
            loop=self.loop,
            proposal_hertz=np.inf if cap is None else cap,
        )
        step_s = self.loop.step_s
        trace = plant.run(self._load(seconds), scenarios=scenarios, seconds=seconds)
        audit = WindowAudit(
            self.envelope, step_s=step_s, steps=window_steps(self.envelope, step_s, WINDOWS), scenarios=scenarios
        )
        for first in range(0, len(trace.power_watts), BLOCK):
            audit.push(trace.power_watts[first : first + BLOCK])
        clocks = trace.busy_clock_hertz(after_s=SETTLE * seconds)[: len(self.works)]
        boosts = [float(clock) / self.chip.clock_base_hertz for clock in clocks]
        return Trial(
            candidate=candidate,
            seconds=seconds,
            speedup=weighted_speedup(self.works, boosts),
            worst_ratio=float(audit.ratio.max()),
        )

    def _load(self, seconds: float) -> Activity:
        rng = np.random.default_rng(self.seed)
        duty = np.array([work.duty for work in self.works])
        kernel = np.array([work.kernel_s for work in self.works])
        job = duty_cycle(duty, kernel, low=self.low, phase_s=rng.random(len(duty)) * kernel / duty)
        half = np.geomspace(1e-3, seconds / 2, SQUARES)
        hostile = duty_cycle(np.full(SQUARES, 0.5), half, low=0.0, phase_s=half)  # idle first

        def activity(start_s: float, steps: int, step_s: float) -> Floats:
            return np.concatenate([job(start_s, steps, step_s), hostile(start_s, steps, step_s)])

        return activity
