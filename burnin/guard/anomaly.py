"""What makes a step look odd: a loss that jumps, a gradient norm that jumps, a number that is none. Pure.

An anomaly proves nothing; it makes the guard check a step that it would have passed over.
"""

import math
from collections import deque
from collections.abc import Sequence
from statistics import median

HISTORY = 64
"""Values that are looked back on."""
LEAST = 16
"""Values before anything is called odd."""
Z_MAX = 8.0
"""Robust standard deviations. Losses have heavy tails: 8 is rare enough that checks cost nothing, and a flipped
exponent bit is far beyond."""
_MAD = 1.4826
"""Median absolute deviation → standard deviation of a normal distribution."""


class Watch:
    """Looks at one series, such as the loss."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen: deque[float] = deque(maxlen=HISTORY)

    def see(self, value: float) -> str:
        """Take one value; return what is odd about it, or ""."""
        if not math.isfinite(value):
            return f"{self._name} is {value}"
        score = robust_z(value, self._seen) if len(self._seen) >= LEAST else 0.0
        self._seen.append(value)
        return f"{self._name} {value:.6g} is {score:.1f} robust deviations above the last" if score > Z_MAX else ""


def robust_z(value: float, history: Sequence[float] | deque[float]) -> float:
    """Return how far a value lies above the median of others, in robust standard deviations.

    The scale is the median absolute deviation, at least a thousandth of the median's magnitude, so that a series that
    hardly moves makes no alarm of rounding.
    """
    middle = median(history)
    scale = max(_MAD * median(abs(one - middle) for one in history), 1e-3 * abs(middle), 1e-12)
    return (value - middle) / scale
