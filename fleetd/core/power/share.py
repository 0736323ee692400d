"""Sharing watts between those who want them: each gets its wish, cut at one level per host."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Share:
    """Who shares a budget: how many hosts it is, the least that it has, and what it wants (at least the least)."""

    weight: int
    floor: float
    want: float


def level(shares: Sequence[Share], watts: float) -> list[float]:
    """Give each its wish cut at one level per host, found by halving so that all together get at most `watts`.

    Floors are always given, also when they alone are more.
    """
    high = max((s.want / s.weight for s in shares if s.weight), default=0.0)
    if math.fsum(_cut(s, high) for s in shares) <= watts:
        return [_cut(s, high) for s in shares]
    low = 0.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.fsum(_cut(s, middle) for s in shares) <= watts else (low, middle)
    return [_cut(s, low) for s in shares]


def _cut(share: Share, per_host: float) -> float:
    return max(share.floor, min(share.want, per_host * share.weight))
