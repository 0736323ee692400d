"""Faults on the way of a result: lost, misplaced or damaged after the arithmetic, in stores, caches and links."""

import torch

from burnin.inject.models import HOLE_PERIOD, WORD, Accumulator, Draw, mask, stale_byte, tile, tile_edges

SECTOR_BYTES = 32
"""What a cache or a link moves at once."""
BURST_BYTES = 64
"""Cells of one memory burst."""


def lost_tile(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F10: a tile is zero, or holds the poison as if its stores had been lost."""
    del accumulator
    piece = matrix[tile(matrix, draw.below(2**31, "tile"))]
    if draw.below(2, "stale"):
        piece.view(torch.uint8).fill_(stale_byte(matrix.dtype))
    else:
        piece.zero_()


def lost_output(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F22: no store arrives, as if nothing had been launched."""
    del accumulator, draw
    matrix.view(torch.uint8).fill_(stale_byte(matrix.dtype))


def swapped_tiles(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F11: two different tiles change places."""
    del accumulator
    height, width = tile_edges(matrix)
    tiles = max(1, matrix.shape[0] // height) * max(1, matrix.shape[1] // width)
    first = draw.below(tiles, "tile")
    second = (first + 1 + draw.below(max(1, tiles - 1), "other")) % tiles
    one, other = tile(matrix, first), tile(matrix, second)
    kept = matrix[one].clone()
    matrix[one] = matrix[other]
    matrix[other] = kept


def shifted_rows(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F11.rows: the rows of one tile are stored one row too low."""
    del accumulator
    piece = matrix[tile(matrix, draw.below(2**31, "tile"))]
    piece.copy_(piece.roll(1, dims=0))


def holes(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F11.holes: every 131,101-th element is zero."""
    del accumulator
    flat = matrix.view(-1)
    flat[draw.below(min(HOLE_PERIOD, len(flat)), "phase") :: HOLE_PERIOD] = 0


def not_finite(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F12: one element is NaN or an infinity."""
    del accumulator
    if matrix.dtype.is_floating_point:
        value = (float("nan"), float("inf"), float("-inf"))[draw.below(3, "value")]
        matrix.view(-1)[draw.below(matrix.numel(), "element")] = value


def even_flips(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F13: the same bit flips in 2, 4, 6 or 8 elements at equal distances, which an XOR hash cannot see."""
    del accumulator
    flat = matrix.view(-1).view(WORD[matrix.element_size()])
    count = min(2 + 2 * draw.below(4, "count"), len(flat) // 2 * 2)
    step = 1 + draw.below(max(1, len(flat) // max(1, count) - 1), "step")
    first = draw.below(max(1, len(flat) - step * (count - 1)), "first") if count else 0
    flat[first : first + step * count : step] ^= mask([draw.below(8 * flat.element_size(), "bit")], flat)


def _bytes(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.view(-1).view(torch.uint8)


def stuck_cell(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F14: one memory cell under the output is stuck at 0 or 1, always the same cell."""
    del accumulator
    cells = _bytes(matrix)
    # Every 4096th byte shares the broken column, so that one of the cells holds data that toggle.
    column = cells[draw.fixed(min(4096, len(cells)), "column") :: 4096]
    bit = 1 << draw.fixed(8, "bit")
    column.copy_(column | bit if draw.fixed(2, "value") else column & (0xFF ^ bit))


def coupled_cell(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F14.coupled: in one column of cells a bit follows its neighbour."""
    del accumulator
    cells = _bytes(matrix)
    column = cells[draw.fixed(min(4096, len(cells)), "column") :: 4096]
    bit = draw.fixed(7, "bit")
    column.copy_(column & (0xFF ^ 2 << bit) | (column & 1 << bit) << 1)


def leaking_cells(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F14.retention: the ones of a few cells of one burst have leaked away when they are read."""
    del accumulator
    cells = _bytes(matrix)
    first = draw.below(max(1, len(cells) - BURST_BYTES + 1), "burst")
    burst = cells[first : first + BURST_BYTES]
    burst &= 0xFF ^ (1 << draw.fixed(8, "bit"))


def wrong_sector(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F15: a cache gives one sector in place of its neighbour."""
    del accumulator
    cells = _bytes(matrix)
    sectors = len(cells) // SECTOR_BYTES
    if sectors > 1:
        first = draw.below(sectors - 1, "sector") * SECTOR_BYTES
        cells[first : first + SECTOR_BYTES] = cells[first + SECTOR_BYTES : first + 2 * SECTOR_BYTES].clone()


def damaged_sector(matrix: torch.Tensor, accumulator: Accumulator | None, draw: Draw) -> None:
    """F16, F17, F18: one bit of one sector that was moved or reduced is flipped."""
    del accumulator
    cells = _bytes(matrix)
    cells[draw.below(len(cells), "byte")] ^= 1 << draw.below(8, "bit")
