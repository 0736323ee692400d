"""Causal attention over sequences of different lengths, forward and backward, every sum in a fixed order.

Flash style: blocks of scores live in registers, a running maximum rescales what was added up. The backward pass is two
kernels, one a block of queries (dq), one a block of keys (dk, dv), so that nothing is added atomically.

All tensors are (total tokens, HEADS, DIM), sequences one after the other; `offsets` has their borders, `blocks` the
pairs (sequence, first token in it) of which each is one program. Results are float32: rounding would hide small errors.
"""

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 64


@triton.jit
def locate(blocks: "Any", offsets: "Any") -> Any:
    """The block of this program: (first token of the sequence, its length, first token of the block inside it)."""
    sequence = tl.load(blocks + 2 * tl.program_id(0))
    first = tl.load(blocks + 2 * tl.program_id(0) + 1)
    begin = tl.load(offsets + sequence)
    return begin, tl.load(offsets + sequence + 1) - begin, first


@triton.jit
def rows_of(  # noqa: PLR0917 - a kernel has no keywords
    tensor: "Any",
    begin: "Any",
    row: "Any",
    length: "Any",
    HEADS: tl.constexpr,  # noqa: N803 - compile-time constants are capitals in Triton
    DIM: tl.constexpr,  # noqa: N803
) -> Any:
    """Rows of one head, zeros beyond the end of the sequence."""
    where = ((begin + row).to(tl.int64) * HEADS + tl.program_id(1)) * DIM
    return tl.load(tensor + where[:, None] + tl.arange(0, DIM)[None, :], mask=(row < length)[:, None], other=0.0)


@triton.jit
def put_rows(  # noqa: PLR0917 - a kernel has no keywords
    tensor: "Any",
    values: "Any",
    begin: "Any",
    row: "Any",
    length: "Any",
    HEADS: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
) -> None:
    """Store rows of one head."""
    where = ((begin + row).to(tl.int64) * HEADS + tl.program_id(1)) * DIM
    tl.store(tensor + where[:, None] + tl.arange(0, DIM)[None, :], values, mask=(row < length)[:, None])


@triton.jit
def forward(  # noqa: PLR0917 - a kernel has no keywords
    q: "Any",
    k: "Any",
    v: "Any",
    o: "Any",
    lse: "Any",
    offsets: "Any",
    blocks: "Any",
    scale: "Any",
    HEADS: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Write o, and lse = log2 of the sum of 2**scores; `scale` includes log2(e), so that scores are powers of two."""
    begin, length, first = locate(blocks, offsets)
    row = first + tl.arange(0, BLOCK)
    query = rows_of(q, begin, row, length, HEADS, DIM)
    highest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    weight = tl.zeros([BLOCK], dtype=tl.float32)
    total = tl.zeros([BLOCK, DIM], dtype=tl.float32)
    for start in range(0, first + BLOCK, BLOCK):
        column = start + tl.arange(0, BLOCK)
        key = rows_of(k, begin, column, length, HEADS, DIM)
        value = rows_of(v, begin, column, length, HEADS, DIM)
        scores = tl.dot(query, tl.trans(key)) * scale
        scores = tl.where(column[None, :] <= row[:, None], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        shares = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        weight = weight * shrink + tl.sum(shares, axis=1)
        total = total * shrink[:, None] + tl.dot(shares.to(value.dtype), value)
        highest = higher
    put_rows(o, total / weight[:, None], begin, row, length, HEADS, DIM)
    where = (begin + row).to(tl.int64) * HEADS + tl.program_id(1)
    tl.store(lse + where, highest + tl.log2(weight), mask=row < length)


@triton.jit
def backward_q(  # noqa: PLR0917 - a kernel has no keywords
    q: "Any",
    k: "Any",
    v: "Any",
    o: "Any",
    lse: "Any",
    do: "Any",
    dq: "Any",
    offsets: "Any",
    blocks: "Any",
    scale: "Any",
    unit: "Any",
    HEADS: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Write the gradient of the queries; `unit` is the scale without log2(e)."""
    begin, length, first = locate(blocks, offsets)
    row = first + tl.arange(0, BLOCK)
    query = rows_of(q, begin, row, length, HEADS, DIM)
    slope = rows_of(do, begin, row, length, HEADS, DIM)
    delta = tl.sum(rows_of(o, begin, row, length, HEADS, DIM) * slope.to(tl.float32), axis=1)
    where = (begin + row).to(tl.int64) * HEADS + tl.program_id(1)
    norm = tl.load(lse + where, mask=row < length, other=0.0)
    total = tl.zeros([BLOCK, DIM], dtype=tl.float32)
    for start in range(0, first + BLOCK, BLOCK):
        column = start + tl.arange(0, BLOCK)
        key = rows_of(k, begin, column, length, HEADS, DIM)
        value = rows_of(v, begin, column, length, HEADS, DIM)
        scores = tl.dot(query, tl.trans(key)) * scale
        inside = (column[None, :] <= row[:, None]) & (row < length)[:, None]
        shares = tl.where(inside, tl.exp2(scores - norm[:, None]), 0.0)
        change = shares * (tl.dot(slope, tl.trans(value)) - delta[:, None])
        total += tl.dot(change.to(key.dtype), key)
    put_rows(dq, total * unit, begin, row, length, HEADS, DIM)


@triton.jit
def backward_kv(  # noqa: PLR0917 - a kernel has no keywords
    q: "Any",
    k: "Any",
    v: "Any",
    o: "Any",
    lse: "Any",
    do: "Any",
    dk: "Any",
    dv: "Any",
    offsets: "Any",
    blocks: "Any",
    scale: "Any",
    unit: "Any",
    HEADS: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Write the gradients of keys and values: from the first query that sees them to the last, in that order."""
    begin, length, first = locate(blocks, offsets)
    column = first + tl.arange(0, BLOCK)
    key = rows_of(k, begin, column, length, HEADS, DIM)
    value = rows_of(v, begin, column, length, HEADS, DIM)
    keys = tl.zeros([BLOCK, DIM], dtype=tl.float32)
    values = tl.zeros([BLOCK, DIM], dtype=tl.float32)
    for start in range(first, length, BLOCK):
        row = start + tl.arange(0, BLOCK)
        query = rows_of(q, begin, row, length, HEADS, DIM)
        slope = rows_of(do, begin, row, length, HEADS, DIM)
        delta = tl.sum(rows_of(o, begin, row, length, HEADS, DIM) * slope.to(tl.float32), axis=1)
        where = (begin + row).to(tl.int64) * HEADS + tl.program_id(1)
        norm = tl.load(lse + where, mask=row < length, other=0.0)
        scores = tl.dot(query, tl.trans(key)) * scale
        inside = (column[None, :] <= row[:, None]) & (row < length)[:, None]
        shares = tl.where(inside, tl.exp2(scores - norm[:, None]), 0.0)
        values += tl.dot(tl.trans(shares.to(slope.dtype)), slope)
        change = shares * (tl.dot(slope, tl.trans(value)) - delta[:, None])
        keys += tl.dot(tl.trans(change.to(query.dtype)), query)
    put_rows(dk, keys * unit, begin, column, length, HEADS, DIM)
    put_rows(dv, values, begin, column, length, HEADS, DIM)


def launch(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    outputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    lse: torch.Tensor,
    offsets: torch.Tensor,
    blocks: torch.Tensor,
) -> None:
    """Run forward and backward.

    Args:
        inputs: q, k, v and the gradient of the output, (tokens, heads, dim), bf16 or fp16; dim a power of two.
        outputs: o, dq, dk, dv, the same shape, float32.
        lse: (tokens, heads), float32, working memory.
        offsets: (sequences + 1,) int32.
        blocks: (blocks, 2) int32: sequence and first token of each block of `BLOCK` tokens.
    """
    q, k, v, do = inputs
    o, dq, dk, dv = outputs
    heads, dim = q.shape[1:]
    unit = dim**-0.5
    scale = unit * 1.4426950408889634
    grid, constants = (len(blocks), heads), {"HEADS": heads, "DIM": dim, "BLOCK": BLOCK}
    forward[grid](q, k, v, o, lse, offsets, blocks, scale, **constants)
    backward_q[grid](q, k, v, o, lse, do, dq, offsets, blocks, scale, unit, **constants)
    backward_kv[grid](q, k, v, o, lse, do, dk, dv, offsets, blocks, scale, unit, **constants)
