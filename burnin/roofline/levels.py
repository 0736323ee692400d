"""How many bytes a product moves between the levels of memory. Pure arithmetic on (m, n, k), tiles and caches.

Every count grows with m, n and k, so that no larger product is expected to be faster.
"""

import math
from dataclasses import dataclass

PARTIAL_BYTES = 4
"""Of one element of a partial sum, where the length of a product is split."""
STEPS = 60
"""Of the fixed point below: it converges by at least half a digit in each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """C[m, n] = A[m, k] · B[k, n], and what an element takes."""

    m: int
    n: int
    k: int
    operand_bytes: int
    output_bytes: int

    @property
    def operands(self) -> int:
        """Bytes of A and B."""
        return (self.m + self.n) * self.k * self.operand_bytes

    @property
    def output(self) -> int:
        """Bytes of C."""
        return self.m * self.n * self.output_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The pieces of an output, and into how many the length is split."""

    rows: int
    columns: int
    split: int


def read_by_tiles(shape: Shape, grid: Grid) -> float:
    """Bytes that all tiles read and write in the cache next to them: every tile reads its own rows and columns."""
    read = (shape.m * grid.columns + shape.n * grid.rows) * shape.k * shape.operand_bytes
    partial = 2 * grid.split * shape.m * shape.n * PARTIAL_BYTES if grid.split > 1 else 0
    return float(read + partial + shape.output)


def missed(shape: Shape, grid: Grid, *, units: int, cache_bytes: int) -> float:
    """Bytes that a cache which `units` share has to fetch or write back.

    The units work on a window of a·b neighbouring tiles at once, so that A is read columns/b times and B rows/a times,
    with a·b = units and the a that makes the sum least. Of operands that fit into the cache as a whole nothing is read
    twice, whatever the window; in between, the share that fits is.
    """
    window = max(1.0, units / grid.split)
    a = min(max(1.0, math.sqrt(window * shape.n * grid.rows / (shape.m * grid.columns))), float(grid.rows))
    b = min(max(1.0, window / a), float(grid.columns))
    a = min(max(a, window / b), float(grid.rows))
    streamed = (shape.m * grid.columns / b + shape.n * grid.rows / a) * shape.k * shape.operand_bytes
    kept = min(1.0, cache_bytes / shape.operands)
    return kept * shape.operands + (1.0 - kept) * max(streamed, shape.operands) + shape.output


def hit_share(bytes_in_turn: float, cache_bytes: float) -> float:
    """Share of hits when the same bytes are read over and over, with random replacement.

    A line is still there after a round of (1 - h)·N misses in a cache of C lines with probability exp(-(1 - h)·N/C),
    which is h itself: the fixed point below 1, and 1 where all fits.
    """
    ratio = bytes_in_turn / cache_bytes
    if ratio <= 1.0:
        return 1.0
    hits = 0.0
    for _ in range(STEPS):
        hits = math.exp(-(1.0 - hits) * ratio)
    return hits
