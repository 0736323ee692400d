"""Faults inside the arithmetic: they strike the float32/int32 accumulator before it is rounded.

Injected after rounding, an exact hash would find them by construction; before it, some are rounded away, as in a chip.
"""

import torch

from burnin.inject.models import MANTISSA, Accumulator, Draw, SteppedAccumulator, mask, strike_sums, tile

PATTERN_BITS = (8, 12)
"""Widths of the data patterns that a fault may wait for."""
STEPS = 16
"""Parts of the sum of which one is lost, where the accumulator cannot be computed without a step."""


def stuck_lane(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F01, F02: in the tiles of one multiprocessor, one lane of 32 has one result bit stuck at 0 or 1."""
    lane, stuck = draw.fixed(32, "lane"), draw.fixed(2, "value")
    floating = matrix.dtype.is_floating_point

    def change(word: torch.Tensor) -> None:
        # A bit that data exercise: the upper mantissa of a float, the low byte of an integer. Others rarely toggle.
        if floating:
            top = MANTISSA[torch.float32 if accumulator else matrix.dtype] if word.element_size() > 1 else 2
            bit = max(0, top - 1 - draw.fixed(8, "bit"))
        else:
            bit = draw.fixed(8, "bit")
        lanes = word.view(-1)[lane % word.numel() :: 32]
        broken = mask([bit], word)
        lanes.copy_(lanes | broken if stuck else lanes & ~broken)

    strike_sums(matrix, accumulator, tile(matrix, draw.fixed(2**31, "tile")), change)


def strided_bits(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F03: two to six bits flipped in every 16th … 128th element of a tile."""
    stride = 16 << draw.fixed(4, "stride")
    bits = [draw.fixed(64, "bit", number) for number in range(2 + draw.fixed(5, "count"))]

    def change(word: torch.Tensor) -> None:
        # Modulo the width two draws may name one bit: `mask` is a union, so at least one bit always flips.
        word.view(-1)[draw.fixed(min(stride, word.numel()), "phase") :: stride] ^= mask(bits, word)

    strike_sums(matrix, accumulator, tile(matrix, draw.fixed(2**31, "tile")), change)


def _flip(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw, bits_from: int) -> None:
    """Flip one of the lowest `bits_from` bits (0: any) of one element."""
    row, column = draw.below(matrix.shape[0], "row"), draw.below(matrix.shape[1], "column")

    def change(word: torch.Tensor) -> None:
        word ^= mask([draw.below(bits_from or 8 * word.element_size(), "bit")], word)

    strike_sums(matrix, accumulator, (slice(row, row + 1), slice(column, column + 1)), change)


def single_bit(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F04: one bit of one element, uniform over the width of the accumulator."""
    _flip(matrix, accumulator, draw, 0)


def low_mantissa(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F05: one of the low four bits of one accumulator."""
    _flip(matrix, accumulator, draw, 4)


def matched_data(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F06: one bit is flipped wherever 8 to 12 bits of the data have a certain pattern.

    The pattern is looked for in the upper significand of the unrounded sum (the low bits of an integer): operands are
    not known here, and these bits are as busy as theirs.
    """
    low, high = PATTERN_BITS
    wanted = low + draw.fixed(high - low + 1, "width")
    floating = matrix.dtype.is_floating_point

    def change(word: torch.Tensor) -> None:
        top = _top(matrix, accumulator, word) if floating else wanted
        width = min(wanted, top + 2, 8 * word.element_size() - 1)
        shift = max(0, top - width)
        found = (word >> shift & (1 << width) - 1) == draw.fixed(1 << width, "pattern")
        flip = mask([shift + draw.fixed(width, "bit")], word)
        word.copy_(torch.where(found, word ^ flip, word))

    strike_sums(matrix, accumulator, tile(matrix, draw.fixed(2**31, "tile")), change)


def _top(matrix: torch.Tensor, accumulator: Accumulator | None, word: torch.Tensor) -> int:
    """Stored bits of the significand of a floating-point word."""
    return MANTISSA[torch.float32 if accumulator else matrix.dtype] if word.element_size() > 1 else 2


def dropped_step(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F09: in one tile, one step of the summation over K is left out.

    Where the accumulator cannot tell what that step would have added, the tile loses one part in `STEPS` of its sums,
    in whole units where it holds whole numbers.
    """
    where = tile(matrix, draw.below(2**31, "tile"))
    piece = matrix[where]
    if isinstance(accumulator, SteppedAccumulator):
        piece.copy_(accumulator.without_step(*where, draw.below(2**31, "step")))
        return
    sums = (piece if accumulator is None else accumulator(*where)).to(torch.float64)
    lost = sums / STEPS
    whole = bool((sums == sums.round()).all())
    piece.copy_(sums - (lost.sign() * lost.abs().ceil() if whole else lost))
