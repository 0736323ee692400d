"""Sharing watts between those who want them: each gets its wish, cut at one level per host."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """Who shares a budget: how many hosts it is, the least that it has, and what it wants (at least the least)."""

    weight: int
    floor: float
    want: float


def level(shares: Sequence[Share], watts: float) -> list[float]:
    """Give each its wish cut at one level per host, the highest at which all together get at most `watts`.

    Floors are always given, also when they alone are more. What all get grows with the level in straight pieces: from
    a share's floor on until its wish; so one walk along the corners finds the level.
    """
    corners = sorted(
        corner
        for s in shares
        if s.weight and s.want > s.floor
        for corner in ((s.floor / s.weight, s.weight), (s.want / s.weight, -s.weight))
    )
    given, at, slope = math.fsum(s.floor for s in shares), 0.0, 0
    per_host = math.inf
    for corner, change in corners:
        more = slope * (corner - at)
        if given + more > watts:
            per_host = at + max(0.0, watts - given) / slope if slope else at
            break
        given, at, slope = given + more, corner, slope + change
    return [max(s.floor, min(s.want, per_host * s.weight)) for s in shares]
