"""The independent golden: a product of integer matrices, proved or refuted on the CPU without computing it again.

Inputs are integers in [-a, a] whose partial sums stay inside the accumulator's exact range, so every order of
summation, split and device gives the same bits. Freivalds' check then needs three matrix-vector products instead of one
matrix product: for a random vector x, C·x = A·(B·x) holds if C = A·B, and for a wrong C fails for all but one x in p.

Why it is a proof (what is required is checked at run time, not assumed):

1. Every element of C must be a finite integer of magnitude at most K·a², which bounds every true element, and no
   negative zero: sums that begin at +0 and are rounded to nearest never are, and -0 = +0 would let a flipped sign pass.
   So the values fix the bits.
2. Work modulo the prime p = 2**31 - 1. A wrong element differs from the true one by D with 0 < |D| <= 2·K·a² < p
   (required), hence D is not 0 modulo p. For a row of C with a wrong element and x uniform modulo p, the wrong row
   times x equals the true one with probability 1/p: a wrong matrix passes one vector with probability at most 1/p, and
   two independent ones with at most p**-2 < 2.2e-19.
3. The products run in float64, exactly: x is cut into limbs of w bits so that columns·bound·2**w <= 2**53, where
   `bound` is the largest magnitude in the matrix. Then every partial sum in every order is an integer of at most 2**53
   (fused multiply-add included), and the limbs are put together in int64: (2**31)·(2**31) + 2**31 < 2**63.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from burnin.crew import spread
from burnin.keys import derive
from burnin.seed import random_words

PRIME = 2**31 - 1
VECTORS = 2
"""Independent random vectors; the error bound is PRIME ** -VECTORS."""
BLOCK_BYTES = 1 << 23
"""Float64 bytes of one block of rows: bounds the memory of a proof and the time between two calls of `alive`."""

SIGNIFICAND_BITS = {
    torch.float64: 53,
    torch.float32: 24,
    torch.float16: 11,
    torch.bfloat16: 8,
    torch.float8_e4m3fn: 4,
    torch.float8_e4m3fnuz: 4,
    torch.float8_e5m2: 3,
    torch.float8_e5m2fnuz: 3,
}
"""Bits of the significand, the hidden one included: integers up to 2**bits are exact."""

Rows = Callable[[int, int], torch.Tensor]
"""(first, after) → these rows of an operand on the CPU, made from the seed and never read back from the device. May be
called by several threads at once."""

_Range: TypeAlias = tuple[int, int]
"""(first, after) of some rows."""


def largest_integer(dtype: torch.dtype) -> int:
    """Return the largest a such that all integers in [-a, a] are exact in `dtype` (127 for int8)."""
    if dtype is torch.int8:
        return 127
    return int(2 ** SIGNIFICAND_BITS[dtype])


def exact_magnitude(dtype: torch.dtype, k: int, *, accumulator_bits: int = 24) -> int:
    """Return the largest operand magnitude a with K·a² <= 2**accumulator_bits that `dtype` holds exactly.

    Args:
        dtype: operand dtype; for tf32 pass float32 and cap the result at 2**11 yourself (it never binds for K >= 4).
        k: length of the sums, at least 1.
        accumulator_bits: 24 for float32; 30 for int32 (one bit is the sign, one keeps 2·K·a² below the prime).

    Raises:
        ValueError: no magnitude of at least 1 is exact.
    """
    magnitude = min(largest_integer(dtype), math.isqrt(2**accumulator_bits // k))
    if magnitude < 1:
        raise ValueError(f"sums of {k} products of integers do not fit {accumulator_bits} bits")
    return magnitude


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """An integer product C[m, n] = A[m, k] · Bt[n, k]ᵀ as the CPU knows it."""

    a_rows: Rows
    bt_rows: Rows
    m: int
    n: int
    k: int
    magnitude: int
    """Largest magnitude of an element of A and of B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refutation:
    """Why a result is wrong, and where the first wrong element is."""

    row: int
    why: str


def refute(output: torch.Tensor, product: Product, *, seed: int, alive: Callable[[], None]) -> Refutation | None:
    """Prove or refute that `output` is the product.

    Args:
        output: the unrounded result, float32 or int32, shape (m, n), any device.
        product: the operands as the CPU makes them.
        seed: makes the random vectors; they do not depend on the result.
        alive: called after each block of rows (about 8 MiB of work).

    Returns:
        None when the output is right, bit by bit (a wrong one gets here with probability below 2.2e-19), else what is
        wrong.

    Raises:
        ValueError: shape or sizes outside the range in which the check is a proof.
    """
    bound = product.k * product.magnitude**2
    if tuple(output.shape) != (product.m, product.n):
        raise ValueError(f"the output has shape {tuple(output.shape)}, the product ({product.m}, {product.n})")
    if 2 * bound >= PRIME:
        raise ValueError(f"K·a² = {bound} is too large for a proof modulo {PRIME}")
    x = _vectors(product.n, seed)
    left = _output_times(output, x, bound, alive)
    if isinstance(left, Refutation):
        return left
    return _compared(left, product, _b_times(x, product, alive), alive)


def _output_times(
    output: torch.Tensor, x: torch.Tensor, bound: int, alive: Callable[[], None]
) -> torch.Tensor | Refutation:
    """Return C·x, unless C has elements that no sums are."""
    rows, columns = output.shape
    left = torch.zeros(rows, VECTORS, dtype=torch.int64, device="cpu")

    def multiply(some: _Range) -> Refutation | None:
        block = output[some[0] : some[1]].cpu().to(torch.float64)
        refuted = _impossible(block, some, bound)
        if refuted is None:
            left[some[0] : some[1]] = times_mod(block, x, bound)
        return refuted

    for refuted in spread(multiply, _blocks(rows, columns), torch_inside=True):
        if refuted is not None:
            return refuted
        alive()
    return left


def _b_times(x: torch.Tensor, product: Product, alive: Callable[[], None]) -> torch.Tensor:
    """Return B·x: what each block of rows of B transposed adds to it, summed up."""

    def multiply(rows: _Range) -> torch.Tensor:
        block = product.bt_rows(*rows).to(torch.float64)
        return times_mod(block.t(), x[rows[0] : rows[1]], product.magnitude)

    y = torch.zeros(product.k, VECTORS, dtype=torch.int64, device="cpu")
    for part in spread(multiply, _blocks(product.n, product.k), torch_inside=True):
        y = (y + part) % PRIME
        alive()
    return y


def _compared(left: torch.Tensor, product: Product, y: torch.Tensor, alive: Callable[[], None]) -> Refutation | None:
    """Compare A·y with C·x, row by row."""

    def compare(rows: _Range) -> Refutation | None:
        right = times_mod(product.a_rows(*rows).to(torch.float64), y, product.magnitude)
        wrong = (right != left[rows[0] : rows[1]]).any(dim=1).nonzero().flatten()
        if not len(wrong):
            return None
        row = rows[0] + int(wrong[0])
        why = f"row {row} is not the product of the inputs ({len(wrong)} rows of {rows[0]}..{rows[1] - 1})"
        return Refutation(row=row, why=why)

    for refuted in spread(compare, _blocks(product.m, product.k), torch_inside=True):
        if refuted is not None:
            return refuted
        alive()
    return None


def _impossible(block: torch.Tensor, rows: _Range, bound: int) -> Refutation | None:
    """Say which elements of these rows (float64) cannot be sums of at most `bound`: see point 1 above."""
    wrong = ~(torch.isfinite(block) & (block == block.round()) & (block.abs() <= bound))
    wrong |= (block == 0) & block.signbit()
    if not bool(wrong.any()):
        return None
    row, column = (int(i) for i in wrong.nonzero()[0])
    why = (
        f"{int(wrong.sum())} elements of rows {rows[0]}..{rows[1] - 1} cannot be sums of these integers, "
        f"first [{rows[0] + row}, {column}] = {float(block[row, column]):g} (bound {bound})"
    )
    return Refutation(row=rows[0] + row, why=why)


def times_mod(matrix: torch.Tensor, x: torch.Tensor, bound: int) -> torch.Tensor:
    """Return matrix · x modulo PRIME, exactly.

    Args:
        matrix: float64 integers of magnitude at most `bound`, shape (r, c).
        x: int64 in [0, PRIME), shape (c, v).
        bound: at least 1.

    Returns:
        int64 in [0, PRIME), shape (r, v).

    Raises:
        ValueError: c·bound is above 2**52, so not even one-bit limbs are exact.
    """
    width = 53 - (x.shape[0] * bound - 1).bit_length()
    if width < 1:
        raise ValueError(f"sums of {x.shape[0]} products up to {bound} are not exact in float64")
    width = min(width, 31)
    shifts = range(0, 31, width)
    limbs = torch.cat([(x >> shift) & ((1 << width) - 1) for shift in shifts], dim=1).to(torch.float64)
    sums = (matrix @ limbs).to(torch.int64) % PRIME
    result = torch.zeros(matrix.shape[0], x.shape[1], dtype=torch.int64, device="cpu")
    for index, shift in enumerate(shifts):
        part = sums[:, index * x.shape[1] : (index + 1) * x.shape[1]]
        result = (result + part * (2**shift % PRIME)) % PRIME
    return result


def _vectors(count: int, seed: int) -> torch.Tensor:
    """Uniform integers modulo PRIME from 64 random bits each (bias below 2**-32), shape (count, VECTORS)."""
    words = torch.from_numpy(random_words(derive(seed, "freivalds"), 0, 2 * count * VECTORS).astype("int64"))
    high, low = words.view(2, count, VECTORS)
    vectors: torch.Tensor = ((high % PRIME) * (2**32 % PRIME) + low) % PRIME
    return vectors


def _blocks(rows: int, columns: int) -> list[_Range]:
    step = max(1, BLOCK_BYTES // (8 * columns))
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]
