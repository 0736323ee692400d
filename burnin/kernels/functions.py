"""Special functions, integer arithmetic and sums by atomic addition: the units beside the matrix units."""

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 1024
ROWS = 64
"""Rows that a program adds up before it adds to the result of all."""
COLUMNS = 128


@triton.jit
def special(
    out: "Any",
    x: "Any",
    count: "Any",
    OP: tl.constexpr,  # noqa: N803 - compile-time constants are capitals in Triton
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Write OP(x), float32; logarithm and reciprocal root of the magnitude. tanh by way of exp2 and a division."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < count, other=1.0)
    if OP == "exp2":
        value = tl.exp2(value)
    elif OP == "log2":
        value = tl.log2(tl.abs(value))
    elif OP == "rcp":
        value = 1.0 / value
    elif OP == "rsqrt":
        value = tl.rsqrt(tl.abs(value))
    elif OP == "sin":
        value = tl.sin(value)
    elif OP == "tanh":
        value = 2.0 / (1.0 + tl.exp2(value * -2.8853900817779268)) - 1.0
    else:
        value = tl.erf(value)
    tl.store(out + at, value, mask=at < count)


@triton.jit
def rotate(word: "Any", by: "Any") -> Any:
    """Rotate uint32 to the right."""
    return (word >> by) | (word << (32 - by))


@triton.jit
def integers(  # noqa: PLR0917 - a kernel has no keywords
    sha: "Any",
    crc: "Any",
    mad: "Any",
    ones: "Any",
    words: "Any",
    count: "Any",
    ROUNDS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """The functions of `burnin.workloads.integers` on int32 words; that module has the definition."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    word = tl.load(words + at, mask=inside, other=0).to(tl.uint32, bitcast=True)
    a, b, c, d = word ^ 0x6A09E667, word ^ 0xBB67AE85, word ^ 0x3C6EF372, word ^ 0xA54FF53A
    e, f, g, h = word ^ 0x510E527F, word ^ 0x9B05688C, word ^ 0x1F83D9AB, word ^ 0x5BE0CD19
    remainder = word ^ 0xFFFFFFFF
    wide = (word.to(tl.uint64) << 32) | word.to(tl.uint64)
    constant = tl.zeros([BLOCK], dtype=tl.uint32)
    for _ in range(ROUNDS):
        constant += 0x9E3779B9
        first = (
            h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ ((e ^ 0xFFFFFFFF) & g)) + constant + word
        )
        second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        h, g, f, e, d, c, b, a = g, f, e, d + first, c, b, a, first + second
        wide = wide * 6364136223846793005 + 1442695040888963407
    for _ in range(32):
        remainder = tl.where((remainder & 1) == 1, (remainder >> 1) ^ 0x82F63B78, remainder >> 1)
    tl.store(sha + at, (a ^ b ^ c ^ d ^ e ^ f ^ g ^ h).to(tl.int32, bitcast=True), mask=inside)
    tl.store(crc + at, (remainder ^ 0xFFFFFFFF).to(tl.int32, bitcast=True), mask=inside)
    tl.store(mad + at, wide.to(tl.int64, bitcast=True), mask=inside)
    pairs = wide - ((wide >> 1) & 0x5555555555555555)
    fours = (pairs & 0x3333333333333333) + ((pairs >> 2) & 0x3333333333333333)
    bytes_ = (fours + (fours >> 4)) & 0x0F0F0F0F0F0F0F0F
    tl.store(ones + at, ((bytes_ * 0x0101010101010101) >> 56).to(tl.int32), mask=inside)


@triton.jit
def atomic_sums(  # noqa: PLR0917 - a kernel has no keywords
    out: "Any",
    matrix: "Any",
    rows: "Any",
    columns: "Any",
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
) -> None:
    """out[column] += sum over rows; each program adds up a block and adds that atomically: any order, one result."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    values = tl.load(matrix + row.to(tl.int64)[:, None] * columns + column[None, :], mask=inside, other=0)
    tl.atomic_add(out + column, tl.sum(values, axis=0), mask=column < columns)


def launch_special(out: torch.Tensor, x: torch.Tensor, op: str) -> None:
    """Apply `op` (exp2, log2, rcp, rsqrt, sin, tanh, erf) to the flat float32 tensor `x`."""
    special[(triton.cdiv(x.numel(), BLOCK),)](out, x, x.numel(), OP=op, BLOCK=BLOCK)


def launch_integers(outputs: tuple[torch.Tensor, ...], words: torch.Tensor, rounds: int) -> None:
    """Compute sha, crc (int32), mad (int64) and ones (int32) of the flat int32 tensor `words`."""
    integers[(triton.cdiv(words.numel(), BLOCK),)](*outputs, words, words.numel(), ROUNDS=rounds, BLOCK=BLOCK)


def launch_atomic_sums(out: torch.Tensor, matrix: torch.Tensor) -> None:
    """Set out[column] to the sum of a contiguous matrix's column; int32, int64 or float32."""
    out.zero_()
    rows, columns = matrix.shape
    grid = (triton.cdiv(rows, ROWS), triton.cdiv(columns, COLUMNS))
    atomic_sums[grid](out, matrix, rows, columns, ROWS=ROWS, COLUMNS=COLUMNS)
