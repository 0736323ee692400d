"""The fitting and scoring half of `bench_roofline.py`: plain search, no GPU.

Four steps. Two rest on what was measured and on no prediction: the times, at the clock that was read, and the watts, at
that clock. Then all is searched again at the clock that the model predicts, and what each kind of data draws is found.
The score predicts everything from the shape alone, the clock included.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline_search import ROUNDS, Term, search, summed
from roofline_shapes import held_out

from burnin.parts.part import CLOCK_REFERENCE_HERTZ, DtypeFit, Fitted, Older, Part, Power, Tile, Verified
from burnin.roofline.gemm import Expected, expect
from burnin.roofline.kernels import ALIGNED_BYTES, Gemm

TARGETS = {"median": 0.10, "p90": 0.25}
TINY_WATTS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured product."""

    name: str
    kind: str
    data: str
    gemm: Gemm
    seconds: float
    clock_hertz: float | None
    watts: float | None


def points_of(report: Mapping[str, Any]) -> list[Point]:
    """The points of a measurement's JSON."""
    return [
        Point(
            name=raw["name"],
            kind=raw["kind"],
            data=raw["data"],
            gemm=Gemm(m=raw["m"], n=raw["n"], k=raw["k"], dtype=raw["dtype"], output_bytes=raw["output_bytes"]),
            seconds=raw["seconds"],
            clock_hertz=raw["clock_hertz"],
            watts=raw["watts"],
        )
        for raw in report["points"]
    ]


def fit(part: Part, report: Mapping[str, Any], *, rounds: int = ROUNDS, say: Callable[[str], None]) -> Fitted:
    """Fit a part's constants to the points that are not held out; to all points where there are only few."""
    every, few = points_of(report), is_few(report)
    points = [point for point in every if few or not held_out(point.name)]
    timed = [point for point in points if point.clock_hertz is not None]
    if not timed:
        raise SystemExit("bench_roofline: no point with a clock to fit on; measure where the clock can be read")
    fitted = _times(part, _start(part, report, timed, few=few, used=len(points)), timed, rounds, say)
    fitted = _power(part, fitted, points, report["idle_watts"])
    # The kinds of data are known only after the power, and the polish needs those alone that are not to be found.
    fitted = _polish(part, replace(fitted, data=dict(KNOWN_DATA)), points, rounds // 2, say)
    return replace(fitted, data=_data(part, fitted, every))


KNOWN_DATA = {"normal": 1.0, "zeros": 0.0}
FEW = 40
"""With fewer points the constants of small products cannot be told apart; they stay null, and nothing is held out."""


def is_few(report: Mapping[str, Any]) -> bool:
    """Whether all points are needed for the fit, so that there is nothing to score."""
    return len(report["points"]) < FEW and not is_fresh(report)


def is_fresh(report: Mapping[str, Any]) -> bool:
    """Whether no point may be fitted to: all are held out."""
    return bool(report.get("set") == "fresh")


LAUNCH_FEW_S = 4.41e-6
"""Fitted to bursts of products that a program launched one by one on an H200 (`policies/plants/h200.yaml`)."""


def copy_share(part: Part, report: Mapping[str, Any]) -> float | None:
    """Of the published bandwidth, as a copy on the device was measured to reach; None: it was not measured."""
    copy = report.get("copy_bytes_per_second")
    return round(copy / part.hbm_bytes_per_second, 4) if copy else None


OLDER_DTYPES = ("int8",)
"""That the library multiplies by older kernels only; see `burnin.roofline.kernels`."""
OLDER_TILES = (Tile(m=128, n=128),)
"""The commonest in such kernels' names in public profiler traces (`cutlass_75_tensorop_bf16_…_128x128_nn_align1`).
2-byte rows of fitted shapes take 59 to 61 clocks a step for each wave of such tiles (8192x4096x1025, 4096x4096x4097,
2047x2050x2049, 6001x2003x3001; 1500x9000x2999, with 76, stands alone); waves of larger tiles differ by a third."""
OLDER_SHARE = 0.63
"""Of the published rate that `mma.sync` reaches on Hopper, 62.9 % on average (arXiv 2402.13499); not fitted."""
OLDER_START = Older(
    dtypes=OLDER_DTYPES, tiles=OLDER_TILES, share=OLDER_SHARE, tile_clocks=1000.0, store_clocks=1000.0, softness=3.0
)


def _start(part: Part, report: Mapping[str, Any], timed: Sequence[Point], *, few: bool, used: int) -> Fitted:
    """Where the search begins."""
    share = copy_share(part, report)
    return Fitted(
        verified=Verified(date=report["date"], driver=str(report["driver"]), torch=report["torch"], points=used),
        error_p90=None,
        clock_hertz=min(part.clock_max_hertz, max(point.clock_hertz or 0.0 for point in timed)),
        launch_seconds=LAUNCH_FEW_S if few else 1.5e-6,
        fill_clocks=None if few else 1500.0,
        tile_clocks=None if few else 500.0,
        l2_bytes_per_second=None if few else 1.0e13,
        hbm_share=0.85,
        cache_share=None if few else 0.6,
        copy_share=share,
        softness=None if few else 4.0,
        unaligned={2: 0.3} if few else {8: 0.8, 4: 0.5, 2: 0.3},
        older=None if few else OLDER_START,
        power=None,
        data=dict(KNOWN_DATA),
        dtypes={dtype: DtypeFit(share=0.9, watts=None) for dtype in sorted({point.gemm.dtype for point in timed})},
    )


def _times(part: Part, start: Fitted, points: Sequence[Point], rounds: int, say: Callable[[str], None]) -> Fitted:
    """Search the constants of time, one after the other, for the least mean error."""
    free = [name for name in _TIMES if getattr(start, name) is not None] if start.fill_clocks is not None else []

    def term(p: Point) -> Term:
        def error(values: Mapping[str, float]) -> float:
            trial = replace(part, fitted=_made(start, values))
            return _off(expect(trial, p.gemm, clock_hertz=p.clock_hertz).seconds, p)

        return Term(names=_touching(start, values, p), error=error)

    values = _values(start, free)
    return _made(start, search(values, summed([term(p) for p in points]), rounds, say))


TAIL_WEIGHT = 3.0
"""Of the squared error beside the error itself: one shape in ten is judged as well as the median."""


def _off(seconds: float, point: Point) -> float:
    """Loss of one predicted time."""
    error = math.log(seconds / point.seconds)
    return abs(error) + TAIL_WEIGHT * error**2


_TIMES = ("launch_seconds", "fill_clocks", "tile_clocks", "l2_bytes_per_second", "hbm_share", "softness", "cache_share")
_OLDER = ("tile_clocks", "store_clocks", "softness")
_POWER = ("clock_watts", "memory_watts", "voltage_per_gigahertz")


def _values(fitted: Fitted, names: Sequence[str]) -> dict[str, float]:
    """The constants that a search may change, by name."""
    return {
        **{name: getattr(fitted, name) for name in names},
        **({f"older {name}": getattr(fitted.older, name) for name in _OLDER} if fitted.older is not None else {}),
        **{f"unaligned {key}": value for key, value in fitted.unaligned.items()},
        **{f"share {name}": one.share for name, one in fitted.dtypes.items()},
        **{f"watts {name}": one.watts for name, one in fitted.dtypes.items() if one.watts},
        **({name: getattr(fitted.power, name) for name in _POWER} if fitted.power is not None else {}),
    }


def _touching(fitted: Fitted, names: Iterable[str], point: Point) -> tuple[str, ...]:
    """The constants that the time of one product can depend on."""
    dtype, aligned = point.gemm.dtype, point.gemm.aligned_bytes
    old = fitted.older is not None and (dtype in fitted.older.dtypes or aligned in fitted.unaligned)

    def touches(name: str) -> bool:
        match name.split():
            case ["share" | "watts", of]:
                return of == dtype
            case ["unaligned", of]:
                return int(of) == aligned
            case ["older", "store_clocks"]:
                return old and point.gemm.result_aligned_bytes < ALIGNED_BYTES
            case ["older", _]:
                return old
            case ["tile_clocks" | "softness"]:
                return not old
            case _:
                return True

    return tuple(name for name in names if touches(name))


def _made(fitted: Fitted, values: Mapping[str, float]) -> Fitted:
    """The constants with what a search tries."""
    times = {name: values[name] for name in _TIMES if name in values}
    for name in ("hbm_share", "cache_share"):
        if name in times:
            times[name] = min(1.0, times[name])
    if "softness" in times:
        times["softness"] = max(1.0, times["softness"])
    older = fitted.older
    if older is not None:
        found = {name: values.get(f"older {name}", getattr(older, name)) for name in _OLDER}
        older = replace(older, **found | {"softness": max(1.0, found["softness"])})
    return replace(
        fitted,
        older=older,
        unaligned={key: min(1.0, values[f"unaligned {key}"]) for key in fitted.unaligned},
        dtypes={
            name: DtypeFit(share=min(1.0, values[f"share {name}"]), watts=values.get(f"watts {name}", one.watts))
            for name, one in fitted.dtypes.items()
        },
        power=replace(fitted.power, **{name: values[name] for name in _POWER}) if fitted.power is not None else None,
        **times,
    )


def _polish(part: Part, start: Fitted, points: Sequence[Point], rounds: int, say: Callable[[str], None]) -> Fitted:
    """Search the terms of power again, now at the clock that the model predicts: what the score will ask."""
    asked = [point for point in points if point.data in KNOWN_DATA and point.gemm.dtype in start.dtypes]

    def term(p: Point) -> Term:
        def error(values: Mapping[str, float]) -> float:
            told = expect(replace(part, fitted=_made(start, values)), p.gemm, data=p.data)
            clock = abs(math.log(told.clock_hertz / p.clock_hertz)) if p.clock_hertz else 0.0
            return _off(told.seconds, p) + CLOCK_WEIGHT * clock

        return Term(names=_touching(start, values, p), error=error)

    values = _values(start, ())
    names = [name for name in values if not name.startswith(("share ", "older "))]
    names = [name for name in names if start.fill_clocks is None or not name.startswith("unaligned ")]
    return _made(start, search(values, summed([term(p) for p in asked]), rounds, say, step=POLISH_STEP, names=names))


CLOCK_WEIGHT = 1.0
"""Of an error of the predicted clock beside one of the time."""
POLISH_STEP = 0.1


def _features(part: Part, point: Point) -> tuple[float, float, float]:
    """(clock and voltage apart) clock, matrix units' busy share at the time measured, share of memory bandwidth."""
    assert point.clock_hertz is not None
    expected = expect(part, point.gemm, clock_hertz=point.clock_hertz)
    peak = part.units * part.flops_per_clock[point.gemm.dtype] * point.clock_hertz
    fetched = expected.seconds_by["device memory"] * part.fitted.hbm_share if part.fitted else 0.0
    return point.clock_hertz, point.gemm.flops / (peak * point.seconds), fetched / point.seconds


def _scale(clock: float, slope: float) -> float:
    return clock / CLOCK_REFERENCE_HERTZ * (1.0 + slope * (clock - CLOCK_REFERENCE_HERTZ) / 1e9) ** 2


def _power(part: Part, fitted: Fitted, points: Sequence[Point], idle_watts: float) -> Fitted:
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


def _data(part: Part, fitted: Fitted, points: Sequence[Point]) -> dict[str, float]:
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


def errors(part: Part, report: Mapping[str, Any], *, held: bool) -> dict[str, list[tuple[float, Point]]]:
    """Class of shapes → (relative error of the expected rate, point); the clock is predicted, too."""
    found: dict[str, list[tuple[float, Point]]] = defaultdict(list)
    for point in points_of(report):
        if point.data != "normal" or point.kind == "data":
            continue
        if (is_fresh(report) or held_out(point.name)) != held:
            continue
        if part.fitted is not None and point.gemm.dtype not in part.fitted.dtypes:
            continue
        rate = point.gemm.flops / point.seconds
        error = expect(part, point.gemm).flops_per_second / rate - 1.0
        for group in (point.kind, point.gemm.dtype, "all"):
            found[group].append((error, point))
    return dict(found)


def summary(found: Sequence[tuple[float, Point]]) -> dict[str, float]:
    """Count, median and 90th percentile of the absolute error, and the median with its sign."""
    sizes = sorted(abs(error) for error, _ in found)
    return {
        "count": len(sizes),
        "median": statistics.median(sizes),
        "p90": sizes[min(len(sizes) - 1, math.ceil(0.9 * len(sizes)) - 1)],
        "bias": statistics.median(error for error, _ in found),
    }
