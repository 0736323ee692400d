"""The checksums of many tensors in two launches: tensor by tensor, 190 gradients cost 2 ms, and a step only 28.

The definition is that of `burnin.checksum`, for each tensor by itself. A *plan* lists the pieces of all tensors; it
depends on their sizes only and stays on the device, so that a launch copies no more than one address a tensor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from burnin.kernels.checksum import spread, weigh
from burnin.kernels.mix import segment_keys, unsigned
from burnin.words import signed32

PIECE = 1 << 15
"""Words of one piece, the work of one program: a divisor of 2**32, so that a piece lies in one segment."""
BLOCK = 2048
"""Words a program reads at a time."""
ADD_BLOCK = 1024
"""Partial sums read at a time."""
PLANS_MAX = 32
"""Layouts that are kept; a model has about three (gradients, parameters, optimizer state)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where the pieces of a list of tensors lie; all on the device."""

    sizes: torch.Tensor
    """int64, bytes by tensor."""
    tensor_of: torch.Tensor
    """int32, by piece."""
    piece_of: torch.Tensor
    """int32, by piece: its number within its tensor."""
    bounds: torch.Tensor
    """int64, tensors + 1: the first piece of each tensor."""


def plan_of(sizes: Sequence[int], device: torch.device) -> Plan:
    """Lay out tensors of so many bytes; an empty one has one piece, too."""
    counts = torch.tensor([max(1, -(-size // (4 * PIECE))) for size in sizes], dtype=torch.int64)
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    tensor_of = torch.repeat_interleave(torch.arange(len(sizes)), counts)
    piece_of = torch.arange(len(tensor_of)) - bounds[tensor_of]
    return Plan(
        sizes=torch.tensor(sizes, dtype=torch.int64).to(device),
        tensor_of=tensor_of.to(torch.int32).to(device),
        piece_of=piece_of.to(torch.int32).to(device),
        bounds=bounds.to(device),
    )


@triton.jit(do_not_specialize=["key_low", "key_high"])
def piece_sums(  # noqa: PLR0917 - a kernel has no keywords
    partials: "Any",
    addresses: "Any",
    sizes: "Any",
    tensor_of: "Any",
    piece_of: "Any",
    key_low: "Any",
    key_high: "Any",
    ALIGNED: tl.constexpr,  # noqa: N803
    PIECE: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """One partial sum a piece."""
    program = tl.program_id(0)
    tensor = tl.load(tensor_of + program)
    first = tl.load(piece_of + program).to(tl.int64) * PIECE
    size = tl.load(sizes + tensor)
    address = tl.load(addresses + tensor)
    words = address.to(tl.pointer_type(tl.int32))
    if ALIGNED:
        words = tl.multiple_of(words, 16)
    n_words = size // 4
    a, b = segment_keys(unsigned(key_low), unsigned(key_high), (first >> 32).to(tl.uint32))
    lane = tl.arange(0, BLOCK)
    spread_lane = spread(lane)
    total = tl.zeros([BLOCK], dtype=tl.uint64)
    if first + PIECE <= n_words:
        for step in range(PIECE // BLOCK):
            base = first + step * BLOCK
            total += weigh(tl.load(words + base + lane), spread_lane + (spread(base) + a), b)
    else:
        for step in range(PIECE // BLOCK):
            base = first + step * BLOCK
            inside = base + lane < n_words
            found = tl.load(words + base + lane, mask=inside, other=0)
            total += tl.where(inside, weigh(found, spread_lane + (spread(base) + a), b), 0)
    result = tl.sum(total, axis=0)
    tail = (size - n_words * 4).to(tl.int32)
    if tail > 0 and n_words // PIECE == first // PIECE:
        byte = tl.arange(0, 4)
        raw = address.to(tl.pointer_type(tl.uint8)) + n_words * 4
        word = tl.sum(tl.load(raw + byte, mask=byte < tail, other=0).to(tl.int32) << (8 * byte), axis=0)
        result += weigh(word, spread(n_words) + a, b)
    tl.store(partials + program, result.to(tl.int64, bitcast=True))


@triton.jit
def add_pieces(out: "Any", partials: "Any", bounds: "Any", lengths: "Any", BLOCK: tl.constexpr) -> None:  # noqa: N803
    """Per tensor: the sum of its partial sums and its length term."""
    tensor = tl.program_id(0)
    first, after = tl.load(bounds + tensor), tl.load(bounds + tensor + 1)
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.int64)
    for base in range(first, after, BLOCK):
        total += tl.load(partials + base + lane, mask=base + lane < after, other=0)
    tl.store(out + tensor, tl.sum(total, axis=0) + tl.load(lengths + tensor))


def launch(
    out: torch.Tensor, raws: Sequence[torch.Tensor], lengths: Sequence[int], key: int, plans: dict[Any, Plan]
) -> None:
    """Write the checksum of each tensor into `out`; waits for nothing.

    Args:
        out: int64, one a tensor.
        raws: flat uint8 tensors on the device of `out`; an empty one may lie anywhere.
        lengths: the length term of each tensor, as a signed 64-bit integer.
        key: 64-bit key.
        plans: the layouts that were made so far, at most `PLANS_MAX`.
    """
    raws = [raw.clone() if raw.data_ptr() % 4 else raw for raw in raws]
    sizes = tuple(raw.numel() for raw in raws)
    if (sizes, out.device) not in plans:
        if len(plans) >= PLANS_MAX:
            plans.clear()
        plans[sizes, out.device] = plan_of(sizes, out.device)
    plan = plans[sizes, out.device]
    addresses = [raw.data_ptr() if raw.numel() else 0 for raw in raws]
    # Pinned: a copy from other memory would wait for everything that the stream has still to do.
    told = torch.tensor([addresses, list(lengths)], dtype=torch.int64, pin_memory=out.is_cuda)
    told = told.to(out.device, non_blocking=True)
    partials = torch.empty(len(plan.tensor_of), dtype=torch.int64, device=out.device)
    piece_sums[(len(plan.tensor_of),)](
        partials,
        told[0],
        plan.sizes,
        plan.tensor_of,
        plan.piece_of,
        signed32(key),
        signed32(key >> 32),
        ALIGNED=all(address % 16 == 0 for address in addresses),
        PIECE=PIECE,
        BLOCK=BLOCK,
        num_warps=8,
    )
    add_pieces[(len(raws),)](out, partials, plan.bounds, told[1], BLOCK=ADD_BLOCK)
