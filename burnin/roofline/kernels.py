"""Which kernels the library has for a product, and how near they come to what is published. Pure.

Two families. The newest have their operands brought by the part's copy engine, which wants rows aligned to 16 bytes
(CUDA driver API, `cuTensorMapEncodeTiled`: strides are multiples of 16); they come in many tiles, may split the length,
and hide memory behind the matrix units. The older ones, a generation back, load through the registers of the threads.
The library falls to them where rows are aligned to less, and has no others for some dtypes: `torch._int_mm` gives it no
workspace, so that it neither finds the newest nor may split (pytorch issue 187094).
"""

import math
from dataclasses import dataclass

from burnin.parts.part import Fitted, Older, Part, Tile

OPERAND_BYTES = dict.fromkeys(("fp8e4m3", "fp8e5m2", "fp8e4m3fnuz", "fp8e5m2fnuz", "int8"), 1) | {
    "bf16": 2,
    "fp16": 2,
    "tf32": 4,
    "fp32": 4,
    "fp64": 8,
}
SPLITS = (1, 2, 3, 4, 6, 8, 16, 32)
"""Pieces into which the length of a product may be cut, so that few tiles still keep all units busy."""
ALIGNED_BYTES = 16
"""Rows that are aligned to less cannot be fetched by the widest instructions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """One product."""

    m: int
    n: int
    k: int
    dtype: str
    output_bytes: int
    """Of one element of the result."""

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k

    @property
    def operand_bytes(self) -> int:
        """Of one element of what is multiplied."""
        return OPERAND_BYTES[self.dtype]

    @property
    def aligned_bytes(self) -> int:
        """To which all rows are aligned, 16 at most: those of both operands in either layout, and of the result."""
        return math.gcd(self.result_aligned_bytes, self.k * self.operand_bytes)

    @property
    def result_aligned_bytes(self) -> int:
        """To which rows of the result are aligned, 16 at most."""
        return math.gcd(ALIGNED_BYTES, self.n * self.output_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How near the library comes to what is published; of an unmeasured part: all of it."""

    kernels: str
    """Which family, and why."""
    tiles: tuple[Tile, ...]
    splits: tuple[int, ...]
    share: float
    """Of the matrix units' published rate, for the dtype."""
    family_share: float
    """Of that, what this family of kernels has."""
    highest_hertz: float
    launch_s: float
    fill_clocks: float
    tile_clocks: float
    l2_bytes_per_second: float
    hbm_bytes_per_second: float
    cache_bytes: int
    """Of the last cache before device memory, as far as it helps."""
    softness: float


def reach(part: Part, gemm: Gemm) -> Reach:
    """What the library reaches for a product of a dtype that the part multiplies."""
    fitted, cache = part.fitted, part.llc_bytes or part.l2_bytes
    if fitted is None:
        return Reach(
            kernels="the best there could be", tiles=part.tiles, splits=SPLITS, share=1.0, family_share=1.0,
            highest_hertz=part.clock_max_hertz, launch_s=0.0, fill_clocks=0.0, tile_clocks=0.0,
            l2_bytes_per_second=math.inf, hbm_bytes_per_second=part.hbm_bytes_per_second, cache_bytes=cache,
            softness=math.inf,
        )  # fmt: skip
    why = _why_older(fitted, gemm)
    old = fitted.older if why is not None else None
    return Reach(
        kernels="the newest kernels" if why is None else f"older kernels: {why}",
        tiles=part.tiles if old is None else old.tiles,
        splits=SPLITS if old is None else (1,),
        share=fitted.dtypes[gemm.dtype].share if gemm.dtype in fitted.dtypes else 1.0,
        family_share=fitted.unaligned.get(gemm.aligned_bytes, 1.0) * (1.0 if old is None else old.share),
        highest_hertz=fitted.clock_hertz,
        launch_s=fitted.launch_seconds,
        fill_clocks=fitted.fill_clocks or 0.0,
        tile_clocks=(fitted.tile_clocks or 0.0) if old is None else _tile_clocks(old, gemm),
        l2_bytes_per_second=fitted.l2_bytes_per_second or math.inf,
        hbm_bytes_per_second=part.hbm_bytes_per_second * fitted.hbm_share,
        cache_bytes=round(cache * (1.0 if fitted.cache_share is None else fitted.cache_share)),
        softness=(fitted.softness or math.inf) if old is None else old.softness,
    )


def _tile_clocks(old: Older, gemm: Gemm) -> float:
    """Of each tile, not hidden behind its neighbours."""
    return old.tile_clocks + (old.store_clocks if gemm.result_aligned_bytes < ALIGNED_BYTES else 0.0)


def _why_older(fitted: Fitted, gemm: Gemm) -> str | None:
    """Why the library takes older kernels; None: it does not, or nothing is known of them."""
    if fitted.older is not None and gemm.dtype in fitted.older.dtypes:
        return f"the library has no others for {gemm.dtype}"
    if gemm.aligned_bytes in fitted.unaligned:
        return f"rows are aligned to {gemm.aligned_bytes} bytes, not {ALIGNED_BYTES}"
    return None
