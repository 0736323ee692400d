"""When pulses begin: a grid on a clock that all GPUs of a host share, so that they step together without talking."""

import math
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Beats at `start_s + n · period_s`, n = 0, 1, and so on."""

    start_s: float
    period_s: float

    def moment_s(self, beat: int) -> float:
        """When a beat is."""
        return self.start_s + beat * self.period_s

    def following(self, beat: int, now_s: float) -> int:
        """The beat after `beat` (-1: the first) that is not over yet: who is late skips beats and stays in phase."""
        ahead = math.ceil((now_s - self.start_s) / self.period_s - 1e-6)
        return max(beat + 1, ahead)


def worst_error(intervals_s: list[float], beats: list[int], period_s: float) -> float:
    """Largest share of a period by which two pulses were farther apart, or nearer, than their beats.

    Args:
        intervals_s: from each pulse to the next, as measured.
        beats: of the pulses, one more than intervals.
        period_s: of the grid.
    """
    wanted = [(after - before) * period_s for before, after in pairwise(beats)]
    errors = [abs(got - want) / period_s for got, want in zip(intervals_s, wanted, strict=True)]
    return max(errors, default=0.0)


def percentile(values: list[float], share: float) -> float | None:
    """The value below which about this share of them lie (nearest rank); None of no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
