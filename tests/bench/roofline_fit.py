"""The fitting and scoring half of `bench_roofline.py`: plain search, no GPU.

Four steps. Two rest on what was measured and on no prediction: the times, at the clock that was read, and the watts, at
that clock. Then all is searched again at the clock that the model predicts, and what each kind of data draws is found.
The score predicts everything from the shape alone, the clock included.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofline_points import Point, is_few, is_fresh, points_of
from roofline_power import KNOWN_DATA, fit_data, fit_power
from roofline_search import ROUNDS, Term, search, summed
from roofline_shapes import held_out

from burnin.parts.part import DtypeFit, Fitted, Older, Part, Tile, Verified
from burnin.roofline.gemm import expect
from burnin.roofline.kernels import ALIGNED_BYTES

TARGETS = {"median": 0.10, "p90": 0.25}


def fit(part: Part, report: Mapping[str, Any], *, rounds: int = ROUNDS, say: Callable[[str], None]) -> Fitted:
    """Fit a part's constants to the points that are not held out; to all points where there are only few."""
    every, few = points_of(report), is_few(report)
    points = [point for point in every if few or not held_out(point.name)]
    timed = [point for point in points if point.clock_hertz is not None]
    if not timed:
        raise SystemExit("bench_roofline: no point with a clock to fit on; measure where the clock can be read")
    fitted = _times(part, _start(part, report, timed, few=few, used=len(points)), timed, rounds, say)
    fitted = fit_power(part, fitted, points, report["idle_watts"])
    # The kinds of data are known only after the power, and the polish needs those alone that are not to be found.
    fitted = _polish(part, replace(fitted, data=dict(KNOWN_DATA)), points, rounds // 2, say)
    return replace(fitted, data=fit_data(part, fitted, every))


LAUNCH_FEW_S = 4.41e-6
"""Fitted to bursts of products that a program launched one by one on an H200 (`policies/plants/h200.yaml`)."""


def copy_share(part: Part, report: Mapping[str, Any]) -> float | None:
    """Of the published bandwidth, as a copy on the device was measured to reach; None: it was not measured."""
    copy = report.get("copy_bytes_per_second")
    return round(copy / part.hbm_bytes_per_second, 4) if copy else None


HOPPER = ("h100", "h200")
"""Parts of which this is known; to others it is nothing that could be fitted before somebody looks."""
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
        hbm_share=(few and share) or 0.85,  # a search begins at no copy, which may be slower than a product
        cache_share=None if few else 0.6,
        copy_share=share,
        softness=None if few else 4.0,
        unaligned={2: 0.3} if few else {8: 0.8, 4: 0.5, 2: 0.3},
        older=OLDER_START if part.name in HOPPER and not few else None,
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
