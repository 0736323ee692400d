"""The same tile on every multiprocessor, and which one it was: a vote inside one chip."""

from typing import Any

import torch
import triton
import triton.language as tl

EDGE = 128
"""Rows and columns of the tile for matrix units."""
EDGE_PLAIN = 64
"""The same for fused multiply-adds, which keep the whole tile in registers."""
BLOCK_K_BYTES = 128


@triton.jit
def unit_id(program: "Any", UNIT: tl.constexpr) -> Any:  # noqa: N803 - compile-time constants are capitals in Triton
    """The multiprocessor on which this program runs.

    NVIDIA: %smid. AMD: the number of the chiplet (XCC_ID) above shader engine, array and compute unit (HW_ID 15:8).
    Elsewhere (interpreted): the program modulo four.
    """
    if UNIT == "nvidia":
        found = tl.inline_asm_elementwise(
            "mov.u32 $0, %smid;", "=r,r", [program], dtype=tl.int32, is_pure=False, pack=1
        )
    elif UNIT == "amd":
        unit = tl.inline_asm_elementwise(
            "s_getreg_b32 $0, hwreg(HW_REG_HW_ID)", "=s,s", [program], dtype=tl.int32, is_pure=False, pack=1
        )
        chiplet = tl.inline_asm_elementwise(
            "s_getreg_b32 $0, hwreg(HW_REG_XCC_ID)", "=s,s", [program], dtype=tl.int32, is_pure=False, pack=1
        )
        found = ((chiplet & 15) << 8) | ((unit >> 8) & 255)
    else:
        found = program % 4
    return found


@triton.jit
def same_tile(  # noqa: PLR0917 - a kernel has no keywords
    a: "Any",
    bt: "Any",
    out: "Any",
    units: "Any",
    k: "Any",
    PLAIN: tl.constexpr,  # noqa: N803
    INTEGER: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
    UNIT: tl.constexpr,  # noqa: N803
    EDGE: tl.constexpr,  # noqa: N803
    BLOCK_K: tl.constexpr,  # noqa: N803
) -> None:
    """out[program] = a[EDGE, k] · bt[EDGE, k]ᵀ in every program; units[program] = where it ran.

    PLAIN: by multiply-adds of the vector units, not by matrix units.
    """
    program = tl.program_id(0)
    line = tl.arange(0, EDGE)
    total = tl.zeros([EDGE, EDGE], dtype=tl.int32 if INTEGER else tl.float32)
    if PLAIN:
        for at in range(k):
            left = tl.load(a + line * k + at)
            right = tl.load(bt + line * k + at)
            total += left[:, None] * right[None, :]
    else:
        depth = tl.arange(0, BLOCK_K)
        for first in range(0, k, BLOCK_K):
            left = tl.load(a + line[:, None] * k + first + depth[None, :])
            right = tl.load(bt + line[None, :] * k + first + depth[:, None])
            if INTEGER:
                total = tl.dot(left, right, total, out_dtype=tl.int32)
            else:
                total = tl.dot(left, right, total, input_precision=PRECISION, max_num_imprecise_acc=0)
    where = program.to(tl.int64) * EDGE * EDGE + line[:, None] * EDGE + line[None, :]
    tl.store(out + where, total)
    tl.store(units + program, unit_id(program, UNIT))


def launch(
    a: torch.Tensor, bt: torch.Tensor, out: torch.Tensor, units: torch.Tensor, *, plain: bool, precision: str, unit: str
) -> None:
    """Compute the tile once in each of `len(units)` programs.

    Args:
        a: (edge, k), contiguous, k a multiple of 128.
        bt: the same.
        out: (programs * edge, edge), float32 or int32.
        units: (programs,), int32: receives the numbers of the multiprocessors.
        plain: whether to use multiply-adds of the vector units (float32 or int32 operands).
        precision: `ieee` or `tf32`.
        unit: as in `burnin.arch.Arch.unit`.
    """
    edge, k = a.shape
    same_tile[(len(units),)](
        a,
        bt,
        out,
        units,
        k,
        PLAIN=plain,
        INTEGER=out.dtype is torch.int32,
        PRECISION=precision,
        UNIT=unit,
        EDGE=edge,
        BLOCK_K=BLOCK_K_BYTES // a.element_size(),
        num_warps=8,
    )
