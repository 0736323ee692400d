"""Planted faults: models of broken hardware, applied to the output of a launch before its checksum is taken.

`FAULTS` is the table; the identifiers are those of the detection benchmark. Where a model sits inside the arithmetic
(a lane, a bit of a sum) it strikes the float32/int32 accumulator *before* rounding: injected afterwards, an exact hash
would find it by construction. Lane faults (F01, F03) are properties of the chip and stay where they are for a whole
run; of the others a persistent fault (rate 1) does the same at every launch, an intermittent one draws anew each time
it hits.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from burnin.spec import Case, Inject, SpecError
from burnin.words import derive

TILE = 128
"""Largest edge of the tile that a fault strikes; small outputs have smaller tiles, so that there are always several."""
HOLE_PERIOD = 131_101
"""Period of a firmware bug seen in the field: one element in this many was zero."""

WORD = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of an element → the integers through which its bits are seen."""
_MANTISSA = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}


class Accumulator(Protocol):
    """Recomputes a piece of the unrounded result (float32 or int32) for the model to strike."""

    def __call__(self, rows: slice, columns: slice) -> torch.Tensor:
        """Return the exact accumulator of these rows and columns of the output, a fresh tensor on its device."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row of the table."""

    what: str
    strike: Callable[[torch.Tensor, Accumulator | None, Draw], None]
    """Changes a contiguous two-dimensional output in place."""
    floats_only: bool = False


@dataclass(slots=True)
class Injector:
    """Plants one fault in the launches of one GPU; without a fault it does nothing and costs nothing.

    Args:
        inject: the fault, or None.
        launches: launches seen so far. It grows over the whole run, so that a retest of a seed draws anew.
        fired: launches whose bytes really changed.
    """

    inject: Inject | None
    launches: int = 0
    fired: int = 0

    def hit(self, output: torch.Tensor, accumulator: Accumulator | None = None) -> bool:
        """Count a launch and, if the fault strikes it, change its output in place.

        Args:
            output: contiguous result of the launch; more than two dimensions are read as rows of the last.
            accumulator: for a rounded output, recomputes pieces of it before rounding (rows and columns of the
                two-dimensional view); without it arithmetic faults strike the output itself.

        Returns:
            Whether any byte of the output changed (compared, not assumed; this copies the output and waits for the
            device, which only a run with a planted fault pays for).
        """
        launch = self.launches
        self.launches += 1
        if self.inject is None or not output.numel() or not self._strikes(launch):
            return False
        fault = FAULTS[self.inject.fault]
        chip = derive(self.inject.seed, self.inject.fault)
        key = derive(chip, "persistent" if self.inject.rate >= 1 else launch)
        matrix = output.detach().view(-1, output.shape[-1]) if output.dim() > 1 else output.detach().view(1, -1)
        before = matrix.clone()
        with torch.no_grad():
            fault.strike(matrix, accumulator, Draw(key, chip))
        changed = not torch.equal(before.view(torch.uint8), matrix.view(torch.uint8))
        self.fired += changed
        return changed

    def _strikes(self, launch: int) -> bool:
        inject = self.inject
        return inject is not None and derive(inject.seed, "strikes", launch) < inject.rate * 2**64


def stale_byte(dtype: torch.dtype) -> int:
    """Return the byte that outputs are poisoned with, and that a lost store leaves behind.

    0xFF repeated is NaN in every float format; 0x7F repeated is an integer far beyond any sum of a test.
    """
    return 0xFF if dtype.is_floating_point or dtype.is_complex else 0x7F


def check(inject: Inject, cases: Iterable[Case]) -> None:
    """Refuse a fault that cannot change anything.

    Args:
        inject: what the user asked for.
        cases: all cases of the chosen tests that hand their outputs through an `Injector`.

    Raises:
        SpecError: unknown fault, a rate outside (0, 1], or no chosen case that the fault can strike.
    """
    if inject.fault not in FAULTS:
        raise SpecError(f"inject: unknown fault {inject.fault!r}; known: {', '.join(FAULTS)}")
    if not 0 < inject.rate <= 1:
        raise SpecError(f"inject: rate {inject.rate:g} of {inject.fault} is not in (0, 1]; 1 strikes every launch")
    fault = FAULTS[inject.fault]
    chosen = list(cases)
    if not chosen:
        raise SpecError("inject: none of the chosen tests has results to strike; add --test gemm.exact")
    if fault.floats_only and all(case.dtype.startswith("int") for case in chosen):
        raise SpecError(f"inject: {inject.fault} ({fault.what}) needs floats, but all chosen cases are integer")


def tile_edges(matrix: torch.Tensor) -> tuple[int, int]:
    """Return rows and columns of a tile: TILE, or about half the matrix where that is less."""
    rows, columns = matrix.shape
    return max(1, min(TILE, rows // 2)), max(1, min(TILE, columns // 2))


def _tile(matrix: torch.Tensor, number: int) -> tuple[slice, slice]:
    """Return the whole tile `number` modulo their count (partial tiles at the edges are never struck)."""
    height, width = tile_edges(matrix)
    down, across = max(1, matrix.shape[0] // height), max(1, matrix.shape[1] // width)
    row, column = divmod(number % (down * across), across)
    return slice(row * height, (row + 1) * height), slice(column * width, (column + 1) * width)


def _arithmetic(
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


def _mask(bits: Iterable[int], word: torch.Tensor) -> int:
    """Return the bits as a signed integer of the word's width."""
    width = 8 * word.element_size()
    value = sum({1 << bit % width for bit in bits})
    return value - (1 << width) if value >> (width - 1) and word.dtype is not torch.uint8 else value


def _stuck_lane(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F01: in the tiles of one multiprocessor, one lane of 32 has one result bit stuck at 0 or 1."""
    lane, stuck = draw.fixed(32, "lane"), draw.fixed(2, "value")
    floating = matrix.dtype.is_floating_point

    def change(word: torch.Tensor) -> None:
        # A bit that data exercise: the upper mantissa of a float, the low byte of an integer. Others rarely toggle.
        if floating:
            top = _MANTISSA[torch.float32 if accumulator else matrix.dtype] if word.element_size() > 1 else 2
            bit = max(0, top - 1 - draw.fixed(8, "bit"))
        else:
            bit = draw.fixed(8, "bit")
        lanes = word.view(-1)[lane % word.numel() :: 32]
        mask = _mask([bit], word)
        lanes.copy_(lanes | mask if stuck else lanes & ~mask)

    _arithmetic(matrix, accumulator, _tile(matrix, draw.fixed(2**31, "tile")), change)


def _strided_bits(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F03: two to six bits flipped in every 16th … 128th element of a tile."""
    stride = 16 << draw.fixed(4, "stride")
    bits = [draw.fixed(64, "bit", number) for number in range(2 + draw.fixed(5, "count"))]

    def change(word: torch.Tensor) -> None:
        # Modulo the width two draws may name one bit: `_mask` is a union, so at least one bit always flips.
        word.view(-1)[draw.fixed(min(stride, word.numel()), "phase") :: stride] ^= _mask(bits, word)

    _arithmetic(matrix, accumulator, _tile(matrix, draw.fixed(2**31, "tile")), change)


def _flip(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw, bits_from: int) -> None:
    """Flip one of the lowest `bits_from` bits (0: any) of one element."""
    row, column = draw.below(matrix.shape[0], "row"), draw.below(matrix.shape[1], "column")

    def change(word: torch.Tensor) -> None:
        word ^= _mask([draw.below(bits_from or 8 * word.element_size(), "bit")], word)

    _arithmetic(matrix, accumulator, (slice(row, row + 1), slice(column, column + 1)), change)


def _single_bit(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F04: one bit of one element, uniform over the width of the accumulator."""
    _flip(matrix, accumulator, draw, 0)


def _low_mantissa(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F05: one of the low four bits of one accumulator."""
    _flip(matrix, accumulator, draw, 4)


def _lost_tile(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F10: a tile is zero, or holds the poison as if its stores had been lost."""
    del accumulator
    piece = matrix[_tile(matrix, draw.below(2**31, "tile"))]
    if draw.below(2, "stale"):
        piece.view(torch.uint8).fill_(stale_byte(matrix.dtype))
    else:
        piece.zero_()


def _swapped_tiles(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F11: two different tiles change places."""
    del accumulator
    height, width = tile_edges(matrix)
    tiles = max(1, matrix.shape[0] // height) * max(1, matrix.shape[1] // width)
    first = draw.below(tiles, "tile")
    second = (first + 1 + draw.below(max(1, tiles - 1), "other")) % tiles
    one, other = _tile(matrix, first), _tile(matrix, second)
    kept = matrix[one].clone()
    matrix[one] = matrix[other]
    matrix[other] = kept


def _shifted_rows(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F11.rows: the rows of one tile are stored one row too low."""
    del accumulator
    piece = matrix[_tile(matrix, draw.below(2**31, "tile"))]
    piece.copy_(piece.roll(1, dims=0))


def _holes(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F11.holes: every 131,101-th element is zero."""
    del accumulator
    flat = matrix.view(-1)
    flat[draw.below(min(HOLE_PERIOD, len(flat)), "phase") :: HOLE_PERIOD] = 0


def _not_finite(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F12: one element is NaN or an infinity."""
    del accumulator
    if matrix.dtype.is_floating_point:
        value = (float("nan"), float("inf"), float("-inf"))[draw.below(3, "value")]
        matrix.view(-1)[draw.below(matrix.numel(), "element")] = value


def _even_flips(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F13: the same bit flips in 2, 4, 6 or 8 elements at equal distances, which an XOR hash cannot see."""
    del accumulator
    flat = matrix.view(-1).view(WORD[matrix.element_size()])
    count = min(2 + 2 * draw.below(4, "count"), len(flat) // 2 * 2)
    step = 1 + draw.below(max(1, len(flat) // max(1, count) - 1), "step")
    first = draw.below(max(1, len(flat) - step * (count - 1)), "first") if count else 0
    flat[first : first + step * count : step] ^= _mask([draw.below(8 * flat.element_size(), "bit")], flat)


FAULTS: dict[str, Fault] = {
    "F01": Fault(what="lane stuck-at on the accumulator", strike=_stuck_lane),
    "F03": Fault(what="multi-bit XOR, stride 16-128", strike=_strided_bits),
    "F04": Fault(what="single bit, uniform over the width", strike=_single_bit),
    "F05": Fault(what="single bit, low mantissa", strike=_low_mantissa),
    "F10": Fault(what="zero or stale tile", strike=_lost_tile),
    "F11": Fault(what="two tiles swapped", strike=_swapped_tiles),
    "F11.rows": Fault(what="rows of a tile shifted", strike=_shifted_rows),
    "F11.holes": Fault(what="every 131,101-th element zero", strike=_holes),
    "F12": Fault(what="a NaN or an infinity", strike=_not_finite, floats_only=True),
    "F13": Fault(what="even count of identical flips", strike=_even_flips),
}
"""The models by identifier. To add one, write `strike` and a line here; the tests go through the table."""
