"""What all models of faults share: where a fault sits, which words it sees, how it strikes before rounding."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from burnin.keys import derive

TILE = 128
"""Largest edge of the tile that a fault strikes; small outputs have smaller tiles, so that there are always several."""
HOLE_PERIOD = 131_101
"""Period of a firmware bug seen in the field: one element in this many was zero."""

WORD = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of an element → the integers through which its bits are seen."""
MANTISSA = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
"""Bits of the significand that are stored."""


class Accumulator(Protocol):
    """Recomputes a piece of the unrounded result (float32 or int32) for the model to strike."""

    def __call__(self, rows: slice, columns: slice) -> torch.Tensor:
        """Return the exact accumulator of these rows and columns of the output, a fresh tensor on its device."""


@runtime_checkable
class SteppedAccumulator(Accumulator, Protocol):
    """An accumulator that can also leave a step of the summation out."""

    def without_step(self, rows: slice, columns: slice, number: int) -> torch.Tensor:
        """Return the piece without one step of K; `number` modulo the steps says which."""


@dataclass(slots=True)
class Draw:
    """Numbers of one hit, each from a hash of (key, what it is for)."""

    key: int
    chip: int
    """Key that does not change from launch to launch: which lane, which bit is broken."""

    def below(self, bound: int, *what: str | int) -> int:
        """Return an integer in [0, bound) of this hit."""
        return derive(self.key, *what) % bound

    def fixed(self, bound: int, *what: str | int) -> int:
        """Return an integer in [0, bound) of this chip."""
        return derive(self.chip, *what) % bound


Strike = Callable[[torch.Tensor, Accumulator | None, Draw], None]
"""Changes a contiguous two-dimensional output in place."""


def stale_byte(dtype: torch.dtype) -> int:
    """Return the byte that outputs are poisoned with, and that a lost store leaves behind.

    0xFF repeated is NaN in every float format; 0x7F repeated is an integer far beyond any sum of a test.
    """
    return 0xFF if dtype.is_floating_point or dtype.is_complex else 0x7F


def tile_edges(matrix: torch.Tensor) -> tuple[int, int]:
    """Return rows and columns of a tile: TILE, or about half the matrix where that is less."""
    rows, columns = matrix.shape
    return max(1, min(TILE, rows // 2)), max(1, min(TILE, columns // 2))


def tile(matrix: torch.Tensor, number: int) -> tuple[slice, slice]:
    """Return the whole tile `number` modulo their count (partial tiles at the edges are never struck)."""
    height, width = tile_edges(matrix)
    down, across = max(1, matrix.shape[0] // height), max(1, matrix.shape[1] // width)
    row, column = divmod(number % (down * across), across)
    return slice(row * height, (row + 1) * height), slice(column * width, (column + 1) * width)


def strike_sums(
    matrix: torch.Tensor,
    accumulator: Accumulator | None,
    where: tuple[slice, slice],
    change: Callable[[torch.Tensor], None],
) -> None:
    """Apply `change` to the integer view of the accumulator of a piece, and round it into the output.

    An element whose recomputed accumulator does not round to what the launch gave is left alone: the launch may have
    added in another order, and a difference in rounding is not the fault.
    """
    piece = matrix[where]
    exact = (piece if accumulator is None else accumulator(*where)).contiguous()
    struck = exact.clone(memory_format=torch.contiguous_format)
    change(struck.view(WORD[struck.element_size()]))
    same = exact.to(piece.dtype) == piece
    bits = WORD[piece.element_size()]
    if accumulator is None:
        piece.copy_(struck)
    else:
        piece.view(bits).copy_(torch.where(same, struck.to(piece.dtype).view(bits), piece.view(bits)))


def mask(bits: Iterable[int], word: torch.Tensor) -> int:
    """Return the bits as a signed integer of the word's width."""
    width = 8 * word.element_size()
    value = sum({1 << bit % width for bit in bits})
    return value - (1 << width) if value >> (width - 1) and word.dtype is not torch.uint8 else value
