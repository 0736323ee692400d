"""What one part (a model of GPU) is made of, and what was fitted to measurements on it. Plain data, torch-free.

Published constants say what cannot be exceeded. `Fitted` says how near the vendor's library comes to it; where it is
missing, nobody has run the part, and what is computed from the rest is a ceiling.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Rows and columns of a piece of the output."""

    m: int
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What connects the GPUs of one host."""

    topology: str
    """`switch`: any pair may use all links; `mesh`: one link to each other GPU."""
    links: int
    link_bytes_per_second: float
    """Of one link, in one direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """On what the constants were fitted."""

    date: str
    driver: str
    torch: str
    points: int
    """Measurements that the fit used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeFit:
    """What one dtype reaches, and what it costs."""

    share: float
    """Of the matrix units' published rate that the library's main loop reaches when nothing else holds it back."""
    watts: float | None
    """Of matrix units that are always busy with random data at `CLOCK_REFERENCE_HERTZ`; None: not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What a part draws: base + clock · v(f) + data · dtype's watts · busy · v(f) + memory · (share of its bandwidth).

    v(f) is f · V(f)² relative to `CLOCK_REFERENCE_HERTZ`, with a voltage that is linear in the clock.
    """

    base_watts: float
    clock_watts: float
    """What clocked units draw while they multiply zeros, at `CLOCK_REFERENCE_HERTZ`."""
    memory_watts: float
    """Of device memory at its full bandwidth."""
    voltage_per_gigahertz: float
    """Relative to the voltage at `CLOCK_REFERENCE_HERTZ`."""


CLOCK_REFERENCE_HERTZ = 1.5e9
"""At which the terms of the power model are stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFit:
    """What collectives reach."""

    verified: Verified
    gpus: int
    """Up to so many it was measured."""
    share: float
    """Of the links' published bandwidth."""
    step_seconds: float | None
    """Latency of one step of an algorithm; None: never told apart from the rest."""
    launch_seconds: float
    """Beside the bytes and the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Older:
    """The library's kernels of the generation before: for rows that are not aligned, and for some dtypes always."""

    dtypes: tuple[str, ...]
    """Of which the library has no newer ones."""
    tiles: tuple[Tile, ...]
    """What they cut an output into; they do not split its length."""
    share: float
    """Of the newest matrix instructions' rate that the older ones reach."""
    tile_clocks: float
    """As `Fitted.tile_clocks`; without warps of their own for loading they hide less."""
    store_clocks: float
    """Of each tile, beside these, where rows of the result are not aligned to 16 bytes: they are stored piecemeal."""
    softness: float
    """As `Fitted.softness`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What was fitted to measurements on one part."""

    verified: Verified
    error_p90: float | None
    """Of the expected rate, relative, on shapes that the fit did not see; None: not scored yet."""
    clock_hertz: float
    """Highest clock that matrix work was seen to hold for long."""
    launch_seconds: float
    """From one product to the next, beside the work."""
    fill_clocks: float | None
    """To fill the pipeline of the first tile and to drain that of the last; None: not measured, taken as nothing."""
    tile_clocks: float | None
    """Of each tile, not hidden behind its neighbours; None: as above."""
    l2_bytes_per_second: float | None
    """As tiles read from it, what a cluster shares counted as if each had read it; None: as above."""
    hbm_share: float
    """Of the published bandwidth that products reach."""
    cache_share: float | None
    """Of the last cache before device memory that keeps what is read again: where a cache has two halves, what units of
    both read is held twice. None: all of it."""
    copy_share: float | None
    """Of the published bandwidth that a copy on the device reaches, counting both ways."""
    softness: float | None
    """Exponent p of the norm by which the times of the levels add up: 1, one after the other; None: side by side."""
    unaligned: Mapping[int, float]
    """Bytes to which rows are aligned, below 16 → share of the rate that is left, beside `older`."""
    older: Older | None
    """Kernels that such rows get; None: not told apart from the newest."""
    power: Power | None
    data: Mapping[str, float]
    """Kind of operand values → their share of the power that random ones cost."""
    dtypes: Mapping[str, DtypeFit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part. None stands for what is neither published nor measured."""

    name: str
    title: str
    vendor: str
    skus: tuple[str, ...]
    """Names that the vendor's library gives to exactly this part."""
    units: int
    """Streaming multiprocessors or compute units."""
    chiplets: int
    """Dies with a second-level cache of their own, over which work is dealt."""
    clock_max_hertz: float
    flops_per_clock: Mapping[str, int]
    """dtype → multiplications and additions of one unit in one clock, without sparsity."""
    shared_bytes_per_clock: int | None
    """That one unit reads from its shared memory (LDS)."""
    wave_tile: Tile
    """What one warp group or wavefront multiplies at most, reading its operands once."""
    tiles: tuple[Tile, ...]
    """What the library cuts an output into."""
    l2_bytes: int
    """Of all chiplets."""
    llc_bytes: int | None
    """Of a cache between L2 and memory; None: there is none."""
    llc_bytes_per_second: float | None
    hbm_bytes: int
    hbm_bytes_per_second: float
    tdp_watts: float
    peer: Peer
    sources: Mapping[str, str]
    """Constant → where it comes from."""
    fitted: Fitted | None
    peer_fitted: PeerFit | None

    @property
    def unknown(self) -> tuple[str, ...]:
        """What a ceiling leaves out, because nobody has measured it."""
        fitted = self.fitted
        if fitted is None:
            return ("clock under load", "library's share of the peak", "L2 bandwidth", "power")
        known = {
            "first fill and last drain": fitted.fill_clocks,
            "ends of tiles": fitted.tile_clocks,
            "L2 bandwidth": fitted.l2_bytes_per_second,
            "power": fitted.power,
        }
        return tuple(what for what, value in known.items() if value is None)
