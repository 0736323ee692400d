"""Judging a duty-cycle benchmark: how much faster the bursts run than the same work back to back, and how sure that is.

Machines are noisy and drift with temperature, so a burst's rate is only ever compared with back-to-back measurements of
the same repeat: with the mean of the last one before it and the first one after it.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t, two-sided 95 %, for 1 … 15 degrees of freedom; beyond them the normal's 1.96 is within 8 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """One measurement."""

    repeat: int
    point: int | None
    """None: back to back."""
    rate: float
    """Work a second inside the bursts, in any unit, the same for all."""
    work: str = ""
    """What the bursts are made of; only bursts of the same are compared."""
    limited: str = ""
    """Why it says nothing about power; such a measurement is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    count: int


def interval(values: Sequence[float]) -> Interval | None:
    """Student's interval of the mean; None without a value. One value has no interval: infinite on both sides."""
    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    if count == 1:
        return Interval(mean=mean, low=-math.inf, high=math.inf, count=1)
    t = T_95[count - 2] if count - 2 < len(T_95) else 1.96
    half = t * statistics.stdev(values) / math.sqrt(count)
    return Interval(mean=mean, low=mean - half, high=mean + half, count=count)


def boosts(bursts: Sequence[Burst]) -> dict[int, list[float]]:
    """Point → its boost in each repeat that measured it, in the order of the measurements.

    A measurement that was limited, or has no usable back-to-back one in its repeat, gives none.
    """
    found: dict[int, list[float]] = {}
    for place, burst in enumerate(bursts):
        if burst.point is None or burst.limited:
            continue
        base = _base(bursts, place)
        if base is not None:
            found.setdefault(burst.point, []).append(burst.rate / base)
    return found


def _base(bursts: Sequence[Burst], place: int) -> float | None:
    repeat, work = bursts[place].repeat, bursts[place].work
    usable = [
        (at, b.rate)
        for at, b in enumerate(bursts)
        if (b.point, b.repeat, b.work) == (None, repeat, work) and not b.limited and b.rate
    ]
    before = [rate for at, rate in usable if at < place][-1:]
    after = [rate for at, rate in usable if at > place][:1]
    near = before + after
    return statistics.fmean(near) if near else None
