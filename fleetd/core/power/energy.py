"""Energy of a step and of a job, with how wrong the sensor may make it."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Joules, and the most by which they may be off."""

    joules: float
    error_joules: float

    def __add__(self, other: "Energy") -> "Energy":
        """Add two energies of the same sensor: a gain error is common to both, so that the errors add."""
        return Energy(joules=self.joules + other.joules, error_joules=self.error_joules + other.error_joules)


def from_counter(
    first_joules: float, last_joules: float, *, resolution_joules: float, gain_error: float
) -> Energy | None:
    """Energy between two readings of a counter; None if it went backward: it was reset, and what passed is unknown.

    Args:
        first_joules: Reading at the beginning.
        last_joules: Reading at the end.
        resolution_joules: What one reading may lack: the draw between two updates of the counter.
        gain_error: Ratio by which the sensor may read too little or too much.
    """
    if last_joules < first_joules:
        return None
    joules = last_joules - first_joules
    return Energy(joules=joules, error_joules=gain_error * joules + resolution_joules)


def from_samples(
    samples: Sequence[tuple[float, float]], *, since_s: float, until_s: float, gain_error: float, gap_max_s: float
) -> Energy | None:
    """Energy between two times from samples `(at_s, watts)`: straight lines between them.

    Between two samples the power is unknown; the error takes half their difference over the whole time between them, as
    if it had been one of the two throughout.

    Args:
        samples: In the order of time.
        since_s: Beginning, of a step or of a job.
        until_s: End.
        gain_error: Ratio by which the sensor may read too little or too much.
        gap_max_s: Two samples further apart than this hide too much.

    Returns:
        None if the samples do not cover the time, or have a gap in it: an unknown energy is not a small one.

    Raises:
        ValueError: The samples are out of order or not finite, or the time ends before it begins.
    """
    if until_s < since_s:
        raise ValueError("the time ends before it begins")
    if any(b[0] <= a[0] for a, b in itertools.pairwise(samples)):
        raise ValueError("the samples are out of order")
    if not all(math.isfinite(value) for sample in samples for value in sample):
        raise ValueError("a sample is not finite")
    if len(samples) < 2 or samples[0][0] > since_s or samples[-1][0] < until_s:  # noqa: PLR2004 - a line has two ends
        return None
    joules = unsure = 0.0
    for (a_s, a_watts), (b_s, b_watts) in itertools.pairwise(samples):
        low, high = max(a_s, since_s), min(b_s, until_s)
        if high <= low:
            continue
        if b_s - a_s > gap_max_s:
            return None
        slope = (b_watts - a_watts) / (b_s - a_s)
        joules += (a_watts + slope * ((low + high) / 2 - a_s)) * (high - low)
        unsure += abs(b_watts - a_watts) / 2 * (high - low)
    return Energy(joules=joules, error_joules=gain_error * joules + unsure)


def steps(
    samples: Sequence[tuple[float, float]], edges_s: Sequence[float], *, gain_error: float, gap_max_s: float
) -> list[Energy | None]:
    """Energy of each step between two marks; the job is what lies between the first and the last one."""
    return [
        from_samples(samples, since_s=a, until_s=b, gain_error=gain_error, gap_max_s=gap_max_s)
        for a, b in itertools.pairwise(edges_s)
    ]
