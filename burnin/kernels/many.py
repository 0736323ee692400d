"""The checksums of many tensors in one launch: tensor by tensor, 190 gradients cost 2 ms, and a step only 28.

The definition is that of `burnin.checksum`, for each tensor by itself, wherever it lies. A *plan* lists the pieces of
all tensors; it depends on their sizes only and stays on the device. A call uploads two integers a tensor, in one copy
from pinned memory, and waits for nothing: almost all of its cost is what the host does, so that it does little.
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

PIECE = 1 << 14
"""Words of one piece, the work of one program: a divisor of 2**32, so that a piece lies in one segment. 64 KiB: nine
waves of programs over 600 MB on 132 multiprocessors, so that the last, partly filled one costs little."""
BLOCK = 4096
"""Words a program reads at a time; as in `burnin.kernels.checksum`."""
WARPS = 8
PLANS_MAX = 32
"""Layouts that are kept; a model has about three (gradients, parameters and optimizer state, micro-batch)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where the pieces of a list of tensors lie; all on the device."""

    sizes: torch.Tensor
    """int64, bytes by tensor."""
    tensor_of: torch.Tensor
    """int32, by piece."""
    piece_of: torch.Tensor
    """int32, by piece: its number within its tensor."""


def plan_of(sizes: Sequence[int], device: torch.device) -> Plan:
    """Lay out tensors of so many bytes; an empty one has no piece."""
    counts = torch.tensor([-(-size // (4 * PIECE)) for size in sizes], dtype=torch.int64)
    tensor_of = torch.repeat_interleave(torch.arange(len(sizes)), counts)
    piece_of = torch.arange(len(tensor_of)) - (counts.cumsum(0) - counts)[tensor_of]
    return Plan(
        sizes=torch.tensor(sizes, dtype=torch.int64).to(device),
        tensor_of=tensor_of.to(torch.int32).to(device),
        piece_of=piece_of.to(torch.int32).to(device),
    )


@triton.jit(do_not_specialize=["count", "key_low", "key_high"])
def piece_sums(  # noqa: PLR0917 - a kernel has no keywords
    told: "Any",
    count: "Any",
    sizes: "Any",
    tensor_of: "Any",
    piece_of: "Any",
    key_low: "Any",
    key_high: "Any",
    PIECE: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Add one piece to the sum of its tensor. told: `count` addresses, then `count` sums (int64).

    Additions modulo 2**64 give the same in any order, so atomic ones do.
    """
    program = tl.program_id(0)
    tensor = tl.load(tensor_of + program)
    first = tl.load(piece_of + program).to(tl.int64) * PIECE
    size = tl.load(sizes + tensor)
    address = tl.load(told + tensor)
    n_words = size // 4
    a, b = segment_keys(unsigned(key_low), unsigned(key_high), (first >> 32).to(tl.uint32))
    lane = tl.arange(0, BLOCK)
    spread_lane = spread(lane)
    total = tl.zeros([BLOCK], dtype=tl.uint64)
    if (address % 16 == 0) & (first + PIECE <= n_words):
        # Rounded down, though it is round already: so the compiler knows that it may load 16 bytes at a time.
        words = tl.multiple_of((address // 16 * 16).to(tl.pointer_type(tl.int32)), 16)
        for step in range(PIECE // BLOCK):
            base = first + step * BLOCK
            total += weigh(tl.load(words + base + lane), spread_lane + (spread(base) + a), b)
    else:
        words = address.to(tl.pointer_type(tl.int32))
        for begin in range(0, tl.minimum(n_words - first, PIECE).to(tl.int32), BLOCK):
            base = first + begin
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
    tl.atomic_add(told + count + tensor, result.to(tl.int64, bitcast=True), sem="relaxed")


def launch(
    addresses: Sequence[int],
    sizes: Sequence[int],
    lengths: Sequence[int],
    *,
    key: int,
    device: torch.device,
    plans: dict[Any, Plan],
) -> torch.Tensor:
    """Return the checksum of each tensor: int64, one a tensor, on the device; waits for nothing.

    Args:
        addresses: where each tensor begins on the device, divisible by four; anything for an empty one. The memory
            must not be given back before this returns (afterwards the stream's order protects it).
        sizes: of the tensors, in bytes.
        lengths: the length term of each tensor, as a signed 64-bit integer.
        key: 64-bit key.
        device: where all tensors lie.
        plans: the layouts that were made so far, at most `PLANS_MAX`.
    """
    layout = (tuple(sizes), device)
    plan = plans.get(layout)
    if plan is None:
        if len(plans) >= PLANS_MAX:
            plans.clear()
        plan = plans[layout] = plan_of(sizes, device)
    count, pieces = len(addresses), len(plan.tensor_of)
    # Pinned: a copy from other memory would wait for everything that the stream has still to do. Torch's allocator of
    # pinned memory hands a block out again only after the copy.
    here = torch.empty(2 * count, dtype=torch.int64, pin_memory=device.type == "cuda")
    here.numpy()[:] = [*addresses, *lengths]
    told = here.to(device, non_blocking=True)
    if pieces:
        with torch.cuda.device_of(told):  # type: ignore[no-untyped-call]
            piece_sums[(pieces,)](
                told,
                count,
                plan.sizes,
                plan.tensor_of,
                plan.piece_of,
                signed32(key),
                signed32(key >> 32),
                PIECE=PIECE,
                BLOCK=BLOCK,
                num_warps=WARPS,
            )
    return told[count:]
