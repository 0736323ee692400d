"""A matrix product of our own, in a fixed order: no split, no atomics, no autotuning.

It is a second code path through the matrix units, beside the vendor's library, and the same source on every vendor.
"""

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK_M = 128
BLOCK_N = 128
BLOCK_K_BYTES = 128
"""Bytes of one row of an operand tile: 64 bf16, 128 fp8, 32 float32 elements."""
GROUP = 8
"""Tile rows that run together, so that their B tiles meet in the second-level cache."""


@triton.jit
def gemm(  # noqa: PLR0917 - a kernel has no keywords
    a: "Any",
    bt: "Any",
    out: "Any",
    m: "Any",
    n: "Any",
    k: "Any",
    PRECISION: tl.constexpr,  # noqa: N803
    INTEGER: tl.constexpr,  # noqa: N803
    BLOCK_M: tl.constexpr,  # noqa: N803
    BLOCK_N: tl.constexpr,  # noqa: N803
    BLOCK_K: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
) -> None:
    """out[m, n] = a[m, k] · bt[n, k]ᵀ, all row-major; one program a tile, ascending K, float32 or int32 sums."""
    program = tl.program_id(0)
    across = tl.cdiv(n, BLOCK_N)
    down = tl.cdiv(m, BLOCK_M)
    group = program // (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    tile_m = group * GROUP + program % (GROUP * across) % height
    tile_n = program % (GROUP * across) // height
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    # Rows beyond the edge read row 0 instead: their results are not stored, and the loads need no second mask.
    a_tile = a + tl.where(row < m, row, 0).to(tl.int64)[:, None] * k + depth[None, :]
    b_tile = bt + tl.where(column < n, column, 0).to(tl.int64)[None, :] * k + depth[:, None]
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.int32 if INTEGER else tl.float32)
    for first in range(0, k, BLOCK_K):
        inside = depth < k - first
        left = tl.load(a_tile + first, mask=inside[None, :], other=0.0)
        right = tl.load(b_tile + first, mask=inside[:, None], other=0.0)
        if INTEGER:
            total = tl.dot(left, right, total, out_dtype=tl.int32)
        else:
            # fp8 on Hopper: the tensor core keeps about 14 bits between two additions to the float32 accumulator.
            # 0 makes it add after every instruction, which is exact for the integers of `burnin.golden`.
            total = tl.dot(left, right, total, input_precision=PRECISION, max_num_imprecise_acc=0)
    where = out + row.to(tl.int64)[:, None] * n + column[None, :]
    tl.store(where, total, mask=(row < m)[:, None] & (column < n)[None, :])


def launch(a: torch.Tensor, bt: torch.Tensor, out: torch.Tensor, *, precision: str = "ieee") -> None:
    """Multiply on the device of the operands.

    Args:
        a: (m, k), contiguous: bf16, fp16, fp8, float32 or int8.
        bt: (n, k), contiguous, same dtype: B transposed, the layout of a linear layer's weight.
        out: (m, n), contiguous: int32 for int8 operands, else float32.
        precision: for float32 operands `ieee` or, where the hardware has it, `tf32`.
    """
    m, k = a.shape
    n = bt.shape[0]
    gemm[(triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N),)](
        a,
        bt,
        out,
        m,
        n,
        k,
        PRECISION=precision,
        INTEGER=a.dtype is torch.int8,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K_BYTES // a.element_size(),
        GROUP=GROUP,
        num_warps=8,
        num_stages=3,
    )
