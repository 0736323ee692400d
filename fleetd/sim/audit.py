"""The checker over many simulated scenarios at once: worst averages of windows, and buckets for every window.

The twin of `fleetd.core.power.checker` for traces of equal steps (a test holds them equal); power arrives in blocks and
only what the longest window needs is kept. Shapes: N steps, S scenarios, K windows, J buckets.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetd.core.power.buckets import Bucket
from fleetd.core.power.checker import allowed_watts, log_spaced
from fleetd.model.envelope import Envelope

Floats = NDArray[np.float64]

_AT_ONCE = 512
"""Steps that every bucket looks at before the next ones: they stay in the processor's cache."""


def window_steps(envelope: Envelope, step_s: float, count: int) -> list[int]:
    """Windows of whole steps, log-spaced from one step to the longest row that binds; rising, each once."""
    longest = envelope.enforced[-1].over_s
    return sorted({max(1, round(w / step_s)) for w in log_spaced(step_s, longest, count)})


class WindowAudit:
    """The worst average of each of some windows, over all offsets of whole steps.

    Power is constant within a step, so that a window of whole steps is worst where it begins on an edge: this is exact.
    """

    def __init__(self, envelope: Envelope, *, step_s: float, steps: Sequence[int], scenarios: int) -> None:
        self._steps, self._step_s = steps, step_s
        self._allowed = [allowed_watts(envelope, k * step_s) * k * step_s for k in steps]
        self._tail = np.zeros((1, scenarios))
        self.ratio = np.zeros((len(steps), scenarios))
        """[K, S]: worst average to what the envelope allows, margin not taken; 0 before a whole window has passed."""

    def push(self, power_watts: Floats) -> None:
        """Take the next [N, S] steps."""
        drawn = self._tail[-1] + np.cumsum(power_watts, axis=0) * self._step_s
        energy = np.concatenate([self._tail, drawn])
        for row, (steps, allowed) in enumerate(zip(self._steps, self._allowed, strict=True)):
            first = max(len(self._tail), steps)  # only windows that end in the new steps
            if first < len(energy):
                worst = (energy[first:] - energy[first - steps : len(energy) - steps]).max(axis=0)
                self.ratio[row] = np.maximum(self.ratio[row], worst / allowed)
        kept = energy[-(max(self._steps) + 1) :]
        self._tail = kept - kept[0]  # from 0 again: differences keep their digits however long the run


class BucketAudit:
    """The largest fill of leaky buckets: within every depth, every window of any length at every offset is kept.

    `max over s < t of E(t) - E(s) - r·(t - s)` is the largest fill of a bucket that drains at r: a proof for all
    windows at once, whatever their length, of power that is constant within a step.
    """

    def __init__(self, buckets: Sequence[Bucket], *, step_s: float, scenarios: int) -> None:
        self._buckets, self._step_s = buckets, step_s
        self._fill = np.zeros((len(buckets), scenarios))
        self.excess_joules = np.full((len(buckets), scenarios), -np.inf)
        """[J, S]: largest fill above the depth; positive: some window was broken."""

    def push(self, power_watts: Floats) -> None:
        """Take the next [N, S] steps."""
        for first in range(0, len(power_watts), _AT_ONCE):
            self._push(power_watts[first : first + _AT_ONCE] * self._step_s)

    def _push(self, drawn_joules: Floats) -> None:
        net, low = np.empty_like(drawn_joules), np.empty_like(drawn_joules)
        for row, bucket in enumerate(self._buckets):
            np.subtract(drawn_joules, bucket.rate_watts * self._step_s, out=net)
            net[0] += self._fill[row]
            np.cumsum(net, axis=0, out=net)
            np.minimum.accumulate(net, axis=0, out=low)
            np.minimum(low, 0.0, out=low)
            net -= low
            self._fill[row] = net[-1]
            np.maximum(self.excess_joules[row], net.max(axis=0) - bucket.depth_joules, out=self.excess_joules[row])
