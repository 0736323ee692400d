"""What a part draws, fitted to the watts that were read: a half of `roofline_fit.py`."""

from collections.abc import Sequence
from dataclasses import replace

from roofline_points import Point

from burnin.parts.part import CLOCK_REFERENCE_HERTZ, Fitted, Part, Power
from burnin.roofline.gemm import Expected, expect

KNOWN_DATA = {"normal": 1.0, "zeros": 0.0}
"""Kinds of data whose share of the matrix units' power is one or nothing by definition."""
TINY_WATTS = 1e-3


def _features(part: Part, point: Point) -> tuple[float, float, float]:
    """(clock and voltage apart) clock, matrix units' busy share at the time measured, share of memory bandwidth."""
    assert point.clock_hertz is not None
    expected = expect(part, point.gemm, clock_hertz=point.clock_hertz)
    peak = part.units * part.flops_per_clock[point.gemm.dtype] * point.clock_hertz
    fetched = expected.seconds_by["device memory"] * part.fitted.hbm_share if part.fitted else 0.0
    return point.clock_hertz, point.gemm.flops / (peak * point.seconds), fetched / point.seconds


def _scale(clock: float, slope: float) -> float:
    return clock / CLOCK_REFERENCE_HERTZ * (1.0 + slope * (clock - CLOCK_REFERENCE_HERTZ) / 1e9) ** 2


def fit_power(part: Part, fitted: Fitted, points: Sequence[Point], idle_watts: float) -> Fitted:
    """Least squares of the watts above idle over clocked units, memory, each dtype's matrix units; none below zero."""
    trial = replace(part, fitted=fitted)
    seen = [(p, _features(trial, p)) for p in points if p.watts and p.clock_hertz and p.data in {"normal", "zeros"}]
    dtypes = sorted({point.gemm.dtype for point, _ in seen})
    if len(seen) < len(dtypes) + 1:
        return fitted
    above = [(point.watts or 0.0) - idle_watts for point, _ in seen]
    best: tuple[float, float, list[float]] | None = None
    for slope in (0.03, 0.06, 0.09, 0.12, 0.15, 0.2, 0.25, 0.3):
        rows = []
        for point, (clock, busy, memory) in seen:
            scale = _scale(clock, slope)
            of = [busy * scale if point.gemm.dtype == dtype and point.data == "normal" else 0.0 for dtype in dtypes]
            rows.append([scale, memory, *of])
        found = _least_squares(rows, above)
        error = sum(
            (sum(c * x for c, x in zip(found, row, strict=True)) - watts) ** 2
            for row, watts in zip(rows, above, strict=True)
        )
        if best is None or error < best[0]:
            best = (error, slope, found)
    assert best is not None
    _, slope, (clocked, memory, *matrix) = best
    watts = dict(zip(dtypes, matrix, strict=True))
    return replace(
        fitted,
        power=Power(base_watts=idle_watts, clock_watts=clocked, memory_watts=memory, voltage_per_gigahertz=slope),
        dtypes={name: replace(one, watts=watts.get(name)) for name, one in fitted.dtypes.items()},
    )


def _least_squares(rows: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """Coordinate descent on the normal equations, held at or above zero."""
    width = len(rows[0])
    gram = [[sum(row[i] * row[j] for row in rows) for j in range(width)] for i in range(width)]
    right = [sum(row[i] * y for row, y in zip(rows, wanted, strict=True)) for i in range(width)]
    found = [TINY_WATTS] * width
    for _ in range(20_000):
        for i in range(width):
            rest = right[i] - sum(gram[i][j] * found[j] for j in range(width) if j != i)
            found[i] = max(0.0, rest / gram[i][i]) if gram[i][i] else 0.0
    return found


def fit_data(part: Part, fitted: Fitted, points: Sequence[Point]) -> dict[str, float]:
    """Kind of data → its share of the matrix units' power, from the watts of the same product."""
    shares = dict(KNOWN_DATA)
    if fitted.power is None:
        return shares
    for point in points:
        if point.data not in shares and point.gemm.dtype in fitted.dtypes:
            shares[point.data] = round(_share_of(part, fitted, point), 3)
    return shares


def _share_of(part: Part, fitted: Fitted, point: Point) -> float:
    """The share with which the model draws what was measured if it runs as fast, or runs as fast at the limit."""

    def told(share: float) -> Expected:
        return expect(replace(part, fitted=replace(fitted, data={"it": share})), point.gemm, data="it")

    low, high = 0.0, 1.5
    for _ in range(30):
        middle = (low + high) / 2
        here = told(middle)
        held = here.clock_hertz < fitted.clock_hertz
        over = here.seconds > point.seconds if held else (here.watts or 0.0) > (point.watts or 0.0)
        low, high = (low, middle) if over else (middle, high)
    return low
