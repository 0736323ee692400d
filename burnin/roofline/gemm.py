"""How long the vendor's library takes for a matrix product on a healthy part, and what bounds it. Pure.

A hierarchy: matrix instructions fed from shared memory make a tile; tiles are dealt to the units in whole waves; their
operands come through L2 (and a last-level cache) from device memory; the levels overlap as far as the softness of the
norm says; a power limit lowers the clock of the units, not the bandwidth of the levels. The library is taken to choose
the fastest tile and split.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

from burnin.parts.part import Part, Tile
from burnin.roofline.clock import allowed, drawn
from burnin.roofline.kernels import Gemm, Reach, reach
from burnin.roofline.levels import Grid, Shape, hit_share, missed, read_by_tiles
from burnin.spec import SpecError

K_GRAIN_BYTES = 64
"""By which the length of a piece is rounded up: what a stage of the pipeline takes at least."""
SIZE_MAX = 1 << 20
"""Of m, n and k; larger ones fit into no memory."""
LAUNCH_BOUND = 0.5
"""Share of the time beside the work from which on that is what bounds a product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step down from the peak."""

    what: str
    flops_per_second: float
    """What is left after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a product should take."""

    part: str
    seconds: float
    flops_per_second: float
    bound: str
    clock_hertz: float
    watts: float | None
    """None: the part's power was never measured."""
    tile: Tile
    split: int
    kernels: str
    """Which of the library's families of kernels, and why."""
    seconds_by: Mapping[str, float]
    """Level → seconds that it alone would take."""
    steps: tuple[Step, ...]
    """From the peak down to the expected rate."""
    unknown: tuple[str, ...]
    """What is left out; empty: nothing. With anything in it, this is a ceiling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is asked for."""

    part: Part
    gemm: Gemm
    data: str
    reach: Reach
    limit_watts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """One way to cut a product, and what it costs the units."""

    tile: Tile
    split: int
    grid: Grid
    matrix_clocks: float
    """Of the busiest unit, for its multiplications."""
    shared_clocks: float
    """For reading its operands from shared memory, beside them."""
    tile_clocks: float
    fill_clocks: float

    @property
    def clocks(self) -> float:
        """Of the busiest unit, between the first fill and the last drain."""
        return max(self.matrix_clocks, self.shared_clocks) + self.tile_clocks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A cut, and what it costs the levels of memory."""

    cut: _Cut
    level_seconds: Mapping[str, float]
    memory_bytes: float


def expect(
    part: Part, gemm: Gemm, *, limit_watts: float | None = None, clock_hertz: float | None = None,
    data: str = "normal", warm: bool = True,
) -> Expected:  # fmt: skip
    """The time of one product among many that run back to back.

    Args:
        part: what it runs on.
        gemm: the product.
        limit_watts: power limit; the part's own if None.
        clock_hertz: a clock that is known; else the highest that the limit allows.
        data: kind of operand values, which decide what they draw.
        warm: whether the product before had the same operands, so that caches hold what fits.

    Raises:
        SpecError: the part does not multiply this dtype, or a size or a kind of data that makes no sense.
    """
    _check(part, gemm, data)
    within = reach(part, gemm)
    limit = part.tdp_watts if limit_watts is None else limit_watts
    asked = _Asked(part=part, gemm=gemm, data=data, reach=within, limit_watts=limit)
    highest = clock_hertz or within.highest_hertz
    cuts = [_cut(asked, tile, split) for tile in within.tiles for split in within.splits]
    # Best first: by what the units need at the highest clock, then with memory, then at the clock that power allows.
    # Each is at least the one before, so that whatever is behind the first that got to its end cannot win.
    queue: list[tuple[float, int, _Way | None]] = [
        (within.launch_s + (cut.fill_clocks + cut.clocks) / highest, number, None) for number, cut in enumerate(cuts)
    ]
    heapq.heapify(queue)
    best: tuple[float, float, _Way] | None = None
    while queue and (best is None or queue[0][0] < best[0]):
        _, number, way = heapq.heappop(queue)
        if way is None:
            way = _way(asked, cuts[number], warm=warm)
            heapq.heappush(queue, (_seconds(way, within, highest), number, way))
            continue
        clock = clock_hertz or _clock(asked, way)
        seconds = _seconds(way, within, clock)
        if best is None or seconds < best[0]:
            best = (seconds, clock, way)
    assert best is not None  # noqa: S101 - a part has tiles
    return _told(asked, *best)


def _check(part: Part, gemm: Gemm, data: str) -> None:
    if gemm.dtype not in part.flops_per_clock:
        raise SpecError(
            f"{part.name} has no matrix rate for dtype {gemm.dtype!r}; there are {', '.join(part.flops_per_clock)}"
        )
    if not all(0 < size <= SIZE_MAX for size in (gemm.m, gemm.n, gemm.k)):
        raise SpecError(f"a product of {gemm.m}x{gemm.n}x{gemm.k}: sizes are 1 to {SIZE_MAX}")
    if part.fitted is not None and data not in part.fitted.data:
        raise SpecError(f"data {data!r} were never measured on {part.name}; there are {', '.join(part.fitted.data)}")


def _cut(asked: _Asked, tile: Tile, split: int) -> _Cut:
    """What one tile and split cost the units."""
    part, gemm, within = asked.part, asked.gemm, asked.reach
    size = gemm.operand_bytes
    grain = K_GRAIN_BYTES // size
    grid = Grid(rows=math.ceil(gemm.m / tile.m), columns=math.ceil(gemm.n / tile.n), split=split)
    dealt = math.ceil(math.ceil(grid.rows * grid.columns * split / part.chiplets) / (part.units // part.chiplets))
    length = math.ceil(gemm.k / (split * grain)) * grain
    wave = Tile(m=min(tile.m, part.wave_tile.m), n=min(tile.n, part.wave_tile.n))
    waves = math.ceil(tile.m / wave.m) * math.ceil(tile.n / wave.n)
    shared = waves * (wave.m + wave.n) * size / part.shared_bytes_per_clock if part.shared_bytes_per_clock else 0.0
    matrix = 2 * tile.m * tile.n / (part.flops_per_clock[gemm.dtype] * within.share * within.family_share)
    return _Cut(
        tile=tile,
        split=split,
        grid=grid,
        matrix_clocks=dealt * length * matrix,
        shared_clocks=dealt * length * shared,
        tile_clocks=dealt * within.tile_clocks,
        fill_clocks=within.fill_clocks * (1 if split == 1 else 2),
    )


def _way(asked: _Asked, cut: _Cut, *, warm: bool) -> _Way:
    """What one cut costs the levels of memory."""
    part, gemm, within = asked.part, asked.gemm, asked.reach
    shape = Shape(m=gemm.m, n=gemm.n, k=gemm.k, operand_bytes=gemm.operand_bytes, output_bytes=gemm.output_bytes)
    levels = {"L2": read_by_tiles(shape, cut.grid) / within.l2_bytes_per_second}
    if part.llc_bytes is not None and part.llc_bytes_per_second is not None:
        each = part.units // part.chiplets
        below = missed(shape, cut.grid, units=each, cache_bytes=part.l2_bytes // part.chiplets)
        levels["last-level cache"] = below / part.llc_bytes_per_second
    fetched = missed(shape, cut.grid, units=part.units, cache_bytes=within.cache_bytes)
    if warm:
        fetched *= 1.0 - hit_share(shape.operands + shape.output, within.cache_bytes)
    levels["device memory"] = fetched / within.hbm_bytes_per_second
    return _Way(cut=cut, level_seconds=levels, memory_bytes=fetched)


def _work_seconds(way: _Way, within: Reach, clock: float) -> float:
    """Units and levels together, side by side as far as the softness says."""
    terms = [way.cut.clocks / clock, *way.level_seconds.values()]
    longest = max(terms)
    if math.isinf(within.softness):
        return longest
    return float(longest * sum((term / longest) ** within.softness for term in terms) ** (1.0 / within.softness))


def _seconds(way: _Way, within: Reach, clock: float) -> float:
    return within.launch_s + way.cut.fill_clocks / clock + _work_seconds(way, within, clock)


def _watts(asked: _Asked, way: _Way, clock: float) -> float | None:
    """What is drawn at a clock; None where that was never measured."""
    part, gemm, fitted = asked.part, asked.gemm, asked.part.fitted
    dtype = fitted.dtypes.get(gemm.dtype) if fitted is not None else None
    if fitted is None or fitted.power is None or dtype is None or dtype.watts is None:
        return None
    seconds = _seconds(way, asked.reach, clock)
    peak = part.units * part.flops_per_clock[gemm.dtype] * clock
    return drawn(
        fitted.power,
        clock_hertz=clock,
        dtype_watts=dtype.watts * fitted.data[asked.data],
        busy=gemm.flops / (peak * seconds),
        memory=way.memory_bytes / (part.hbm_bytes_per_second * seconds),
    )


def _clock(asked: _Asked, way: _Way) -> float:
    """What the limit allows; where the power was never measured, only the highest clock is known."""
    return allowed(
        lambda clock: _watts(asked, way, clock) or 0.0, asked.limit_watts, highest_hertz=asked.reach.highest_hertz
    )


def _told(asked: _Asked, seconds: float, clock: float, way: _Way) -> Expected:
    part, gemm, within, cut = asked.part, asked.gemm, asked.reach, way.cut
    peak = part.units * part.flops_per_clock[gemm.dtype]
    by = {
        "matrix units": cut.matrix_clocks / clock,
        "shared memory": cut.shared_clocks / clock,
        **way.level_seconds,
        "launch": within.launch_s + cut.fill_clocks / clock,
    }
    fed = within.share * within.family_share
    if cut.shared_clocks:
        fed *= min(1.0, cut.matrix_clocks / cut.shared_clocks)
    busiest = max(cut.matrix_clocks, cut.shared_clocks) / clock
    rates = (
        (f"{part.units} units at {part.clock_max_hertz / 1e9:.2f} GHz", peak * part.clock_max_hertz),
        (f"the clock that is held, {clock / 1e9:.2f} GHz", peak * clock),
        (f"what the library's main loop reaches ({within.kernels})", peak * clock * fed),
        (f"whole tiles of {cut.tile.m}x{cut.tile.n}, whole waves, split by {cut.split}", gemm.flops / busiest),
        ("waiting for caches and memory, ends of tiles", gemm.flops / _work_seconds(way, within, clock)),
        ("launch, first fill and last drain", gemm.flops / seconds),
    )
    unknown = list(part.unknown)
    if part.fitted is not None and gemm.dtype not in part.fitted.dtypes:
        unknown.append(f"what {gemm.dtype} reaches")
    return Expected(
        part=part.name,
        seconds=seconds,
        flops_per_second=gemm.flops / seconds,
        bound=_bound(by, seconds, limited=clock < within.highest_hertz),
        clock_hertz=clock,
        watts=_watts(asked, way, clock),
        tile=cut.tile,
        split=cut.split,
        kernels=within.kernels,
        seconds_by=by,
        steps=tuple(Step(what=what, flops_per_second=rate) for what, rate in rates),
        unknown=tuple(unknown),
    )


def _bound(by: Mapping[str, float], seconds: float, *, limited: bool) -> str:
    """What a product waits for most."""
    if by["launch"] > LAUNCH_BOUND * seconds:
        return "launch"
    most = max((name for name in by if name != "launch"), key=lambda name: by[name])
    return "power limit" if most == "matrix units" and limited else most
