"""The checksums of many tensors in one launch: tensor by tensor, 190 gradients cost 2 ms, and a step only 28.

The definition is that of `burnin.checksum`, for each tensor by itself, wherever it lies; only the length terms are left
to whoever reads the sums. A *plan* lists the pieces of all tensors; it depends on their sizes only and stays on the
device, with a few *rows* of addresses. The device does its part at the speed of memory, so that what the host does is
most of the cost: where the addresses are in a row already, it clears the sums, starts one kernel, and that is all.

Everything of a plan is made, written and read on one stream, that of the plan: its order is what keeps a row from being
overwritten while an earlier launch still reads it, and a plan that is thrown away from being somebody else's memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
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
ROWS = 4
"""Lists of addresses that a plan keeps. The allocator gives the gradients of a step mostly the memory of those before;
original and replay have different ones."""
LAUNCHER_TAKES_CONSTANTS = (3, 3)
"""Since this Triton a compiled kernel is called with all arguments, compile-time constants among them."""

Addresses = tuple[int, ...]


class Rows:
    """Which row of a table holds which list of addresses; the least recently used one is given up."""

    def __init__(self, count: int) -> None:
        """`count` rows, all free."""
        self._free = list(range(count))
        self._row_of: dict[Addresses, int] = {}

    def find(self, addresses: Addresses) -> int | None:
        """Return the row of these addresses; None: there is none."""
        row = self._row_of.pop(addresses, None)
        if row is not None:
            self._row_of[addresses] = row  # as the last one
        return row

    def take(self) -> int:
        """Give up what was in a row, and return it; it is free until it is `filled`, whatever goes wrong meanwhile."""
        if not self._free:
            self._free.append(self._row_of.pop(next(iter(self._row_of))))
        return self._free[-1]

    def filled(self, row: int, addresses: Addresses) -> None:
        """Remember what was written."""
        self._free.remove(row)
        self._row_of[addresses] = row


@dataclass(slots=True, kw_only=True)
class Plan:
    """Where the pieces of a list of tensors lie; tensors on the device."""

    pieces: int
    sizes: torch.Tensor
    """int64, bytes by tensor."""
    tensor_of: torch.Tensor
    """int32, by piece."""
    piece_of: torch.Tensor
    """int32, by piece: its number within its tensor."""
    tables: torch.Tensor
    """int64, shape (rows, tensors): addresses."""
    rows: Rows
    start: list[Callable[..., None]] = field(default_factory=list)
    """What starts the kernel, once it is compiled."""


def plan_of(sizes: Sequence[int], device: torch.device) -> Plan:
    """Lay out tensors of so many bytes; an empty one has no piece."""
    counts = torch.tensor([-(-size // (4 * PIECE)) for size in sizes], dtype=torch.int64, device="cpu")
    tensor_of = torch.repeat_interleave(torch.arange(len(sizes), device="cpu"), counts)
    piece_of = torch.arange(len(tensor_of), device="cpu") - (counts.cumsum(0) - counts)[tensor_of]
    return Plan(
        pieces=len(tensor_of),
        sizes=torch.tensor(sizes, dtype=torch.int64, device=device),
        tensor_of=tensor_of.to(torch.int32).to(device),
        piece_of=piece_of.to(torch.int32).to(device),
        tables=torch.empty((ROWS, len(sizes)), dtype=torch.int64, device=device),
        rows=Rows(ROWS),
    )


@triton.jit(
    do_not_specialize=["tables", "row", "count", "sums", "sizes", "tensor_of", "piece_of", "key_low", "key_high"]
)
def piece_sums(  # noqa: PLR0917 - a kernel has no keywords
    tables: "Any",
    row: "Any",
    count: "Any",
    sums: "Any",
    sizes: "Any",
    tensor_of: "Any",
    piece_of: "Any",
    key_low: "Any",
    key_high: "Any",
    PIECE: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Add one piece to the sum of its tensor, whose address is in a row of `count` addresses.

    Additions modulo 2**64 give the same in any order, so atomic ones do. No argument is specialised: one binary fits
    all, and may be started without looking at its arguments again.
    """
    program = tl.program_id(0)
    tensor = tl.load(tensor_of + program)
    first = tl.load(piece_of + program).to(tl.int64) * PIECE
    size = tl.load(sizes + tensor)
    address = tl.load(tables + row * count + tensor)
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
    tl.atomic_add(sums + tensor, result.to(tl.int64, bitcast=True), sem="relaxed")


def launch(
    addresses: Addresses, sizes: tuple[int, ...], *, key: int, device: torch.device, stream: int, plans: dict[Any, Plan]
) -> torch.Tensor:
    """Return the sum over the words of each tensor: int64, one a tensor, on the device; waits for nothing.

    With `burnin.checksum.length_term` added, modulo 2**64, it is the checksum.

    Args:
        addresses: where each tensor begins on the device, divisible by four; anything for an empty one. The memory
            must not be given back before this returns. Afterwards the order of the stream protects it, as with any
            operation of torch: memory of another stream's pool needs `record_stream` before it is given back.
        sizes: of the tensors, in bytes.
        key: 64-bit key.
        device: where all tensors lie; the current one.
        stream: its current stream, by its handle.
        plans: the layouts that were made so far, at most `PLANS_MAX`.
    """
    layout = (sizes, device, stream)
    plan = plans.get(layout)
    if plan is None:
        if len(plans) >= PLANS_MAX:
            plans.clear()
        plan = plans[layout] = plan_of(sizes, device)
    sums = torch.zeros(len(sizes), dtype=torch.int64, device=device)
    if plan.pieces:
        _start(plan, (plan.tables, row_of(plan, addresses), len(sizes), sums, plan.sizes, plan.tensor_of,
                      plan.piece_of, signed32(key), signed32(key >> 32)))  # fmt: skip
    return sums


def row_of(plan: Plan, addresses: Addresses) -> int:
    """Return the row of the plan's table in which these addresses stand by the time the stream comes to it.

    Nothing is waited for: what was started before reads the old row before the copy overwrites it, in stream order. The
    memory copied from is new each time; torch's allocator of pinned memory hands a block out again only after the copy.
    """
    row = plan.rows.find(addresses)
    if row is None:
        row = plan.rows.take()
        # Pinned: a copy from other memory would wait for everything that the stream has still to do.
        here = torch.empty(len(addresses), dtype=torch.int64, device="cpu", pin_memory=plan.tables.is_cuda)
        here.numpy()[:] = addresses
        plan.tables[row].copy_(here, non_blocking=True)
        plan.rows.filled(row, addresses)
    return row


def _start(plan: Plan, args: tuple[Any, ...]) -> None:
    """Start the kernel; the second time on without Triton's look at each argument, most of what a launch costs.

    As in Triton's own tutorial of the fused softmax: `warmup` compiles, and what it returns is called.
    """
    if not plan.start:
        constants = {"PIECE": PIECE, "BLOCK": BLOCK}
        if plan.tables.is_cuda and _version() >= LAUNCHER_TAKES_CONSTANTS:
            compiled = piece_sums.warmup(*args, **constants, num_warps=WARPS, grid=(plan.pieces,))
            call = compiled[plan.pieces, 1, 1]
            plan.start.append(lambda *given: call(*given, *constants.values()))
        else:
            plan.start.append(partial(piece_sums[plan.pieces,], **constants, num_warps=WARPS))
    plan.start[0](*args)


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in triton.__version__.split(".")[:2])
