"""Which elements of a wrong result are wrong: bits, count and period of a signature, from the results themselves."""

import math
from collections import Counter
from itertools import pairwise

import torch

from burnin.inject import WORD
from burnin.spec import Elements

ADDRESSES_MAX = 4096
"""Wrong elements whose addresses are kept: enough for the period."""


class Comparison:
    """Adds up the differences of a result from the right one, piece by piece."""

    def __init__(self, columns: int) -> None:
        """`columns`: of the whole result, for its addresses."""
        self._columns = columns
        self._compared = 0
        self._count = 0
        self._bits = Counter[int]()
        self._addresses: list[int] = []

    def add(self, wrong: torch.Tensor, right: torch.Tensor, *, row: int = 0, column: int = 0) -> None:
        """Compare a piece bit by bit.

        Args:
            wrong: two-dimensional piece of the result.
            right: the same piece of the right one: same shape, dtype and device.
            row: of the piece's first element in the whole result.
            column: the same.
        """
        word = WORD[wrong.element_size()]
        flipped = wrong.contiguous().view(word) ^ right.contiguous().view(word)
        rows, columns = flipped.nonzero(as_tuple=True)
        values = flipped[rows, columns]
        self._compared += flipped.numel()
        self._count += len(values)
        for bit in range(8 * wrong.element_size()):
            self._bits[bit] += int((values >> bit & 1).sum())
        free = ADDRESSES_MAX - len(self._addresses)
        self._addresses += ((rows[:free] + row) * self._columns + columns[:free] + column).tolist()

    def elements(self) -> Elements | None:
        """What was found; None when nothing differs."""
        if not self._count:
            return None
        addresses = sorted(self._addresses)
        distances = [after - before for before, after in pairwise(addresses)]
        row, column = divmod(addresses[0], self._columns)
        return Elements(
            count=self._count,
            compared=self._compared,
            bits=tuple((bit, times) for bit, times in sorted(self._bits.items()) if times),
            period=math.gcd(*distances) if distances else None,
            first=(row, column),
        )
