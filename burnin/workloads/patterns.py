"""Operands of `gemm.pattern`: bit patterns that random data rarely make, and that some faults wait for.

All of it is integer arithmetic on the bits of an element, so every device makes the same operands.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from burnin.inject import WORD
from burnin.keys import derive
from burnin.seed import fill_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the fields of an element are."""

    mantissa: int
    """Bits of it; for an integer all bits but the sign."""
    exponent: int
    """Bits of it; 0 for an integer."""

    @property
    def bias_field(self) -> int:
        """The exponent field of 1.0."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def mantissa_mask(self) -> int:
        """The bits of the mantissa."""
        return (1 << self.mantissa) - 1


LAYOUTS = {
    torch.bfloat16: Layout(mantissa=7, exponent=8),
    torch.float16: Layout(mantissa=10, exponent=5),
    torch.float8_e4m3fn: Layout(mantissa=3, exponent=4),
    torch.float8_e4m3fnuz: Layout(mantissa=3, exponent=4),
    torch.int8: Layout(mantissa=7, exponent=0),
}
PERIOD = 32
"""Elements of K after which `toggle` changes between zeros and random data: the depth of a matrix instruction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Positions in an operand, and random bits for each."""

    row: torch.Tensor
    k: torch.Tensor
    random: torch.Tensor
    layout: Layout
    left: bool
    """Whether it is the left operand."""

    def near_one(self) -> torch.Tensor:
        """Random sign and mantissa; an exponent field in the middle, so that its inverse is finite too."""
        layout = self.layout
        if not layout.exponent:
            return self.random & 0xFF
        field = (1 << (layout.exponent - 1)) - 4 + (self.random >> 16 & 7)
        return self._float(self.random >> 20 & 1, field, self.random & layout.mantissa_mask)

    def _float(self, sign: torch.Tensor, field: torch.Tensor, mantissa: torch.Tensor) -> torch.Tensor:
        return sign << (self.layout.mantissa + self.layout.exponent) | field << self.layout.mantissa | mantissa

    def checkerboard(self) -> torch.Tensor:
        """All bits alternate: 0xAA… in one operand, 0x55… in the other; along K both change places."""
        turned = (self.k + int(self.left)) & 1
        width = 1 + self.layout.exponent + self.layout.mantissa
        ones = 0xAAAA & ((1 << width) - 1)
        return torch.where(turned == 1, ones, ones >> 1)

    def inverse(self) -> torch.Tensor:
        """Random data, and at every odd k the inverse of all bits of its left neighbour's."""
        width = 1 + self.layout.exponent + self.layout.mantissa
        base = self.near_one()
        before = torch.roll(base, 1, dims=1)
        return torch.where(self.k & 1 == 1, before ^ ((1 << width) - 1), base)

    def walking(self) -> torch.Tensor:
        """One set bit walks through the mantissa (an integer's bits); random signs."""
        bit = (self.row + self.k) % max(1, self.layout.mantissa + (0 if self.layout.exponent else 1))
        walking = torch.ones_like(bit) << bit
        if not self.layout.exponent:
            return walking
        return self._float(self.random & 1, torch.full_like(bit, self.layout.bias_field), walking)

    def subnormal(self) -> torch.Tensor:
        """Subnormal numbers times the largest powers of two that stay finite."""
        layout = self.layout
        mantissa = self.random & layout.mantissa_mask
        if self.left:
            return self._float(self.random >> 20 & 1, torch.zeros_like(mantissa), mantissa | 1)
        field = (1 << layout.exponent) - 3 - (self.random >> 16 & 1)
        return self._float(self.random >> 20 & 1, field, mantissa)

    def toggle(self) -> torch.Tensor:
        """Blocks of zeros and of random data in turn along K."""
        return torch.where(self.k // PERIOD & 1 == 1, self.near_one(), 0)

    def sweep(self) -> torch.Tensor:
        """Every mantissa (every integer) in order, against every other; random signs of floats."""
        layout = self.layout
        step = self.k if self.left else self.row * 7 + self.k
        if not layout.exponent:
            return step & 0xFF
        field = torch.full_like(step, layout.bias_field)
        return self._float(self.random & 1, field, step & layout.mantissa_mask)


_MAKERS: dict[str, Callable[[_Grid], torch.Tensor]] = {
    "checkerboard": _Grid.checkerboard,
    "inverse": _Grid.inverse,
    "walking": _Grid.walking,
    "subnormal": _Grid.subnormal,
    "toggle": _Grid.toggle,
    "sweep": _Grid.sweep,
}
FLOATS = tuple(_MAKERS)
INTEGERS = tuple(name for name in _MAKERS if name != "subnormal")
PATTERNS = {"bf16": FLOATS, "fp16": FLOATS, "fp8": FLOATS, "int8": INTEGERS}
"""Dtype → its patterns."""
BLOCK = 1 << 22
"""Elements made at a time: bounds the integers behind them (32 MiB each)."""


def fill_pattern(operand: torch.Tensor, pattern: str, seed: int, *, left: bool) -> None:
    """Fill an operand with a pattern.

    Args:
        operand: matrix (rows, k), contiguous; a dtype of `LAYOUTS`.
        pattern: a name of `PATTERNS`.
        seed: of what is random in it; no pattern makes a NaN or an infinity.
        left: whether it is the left operand; the right one has the other half of a pattern of pairs.
    """
    columns = operand.shape[1]
    bits = operand.view(WORD[operand.element_size()])
    step = max(1, BLOCK // columns)
    for first in range(0, len(operand), step):
        piece = bits[first : first + step]
        random = torch.empty(piece.shape, dtype=torch.int32, device=operand.device)
        fill_bits(random, derive(seed, pattern, "left" if left else "right", first))
        grid = _Grid(
            row=torch.arange(first, first + len(piece), device=operand.device)[:, None].expand(piece.shape),
            k=torch.arange(columns, device=operand.device)[None, :].expand(piece.shape),
            random=random.to(torch.int64) & 0xFFFF_FFFF,
            layout=LAYOUTS[operand.dtype],
            left=left,
        )
        piece.copy_(_MAKERS[pattern](grid))  # only the low bits are kept, which is what a cast of integers does
