"""Fill a flat tensor from a counter; the same bits as the numpy definition in `burnin.seed`."""

from typing import Any

import torch
import triton
import triton.language as tl

from burnin.kernels.mix import mix32, segment_keys, unsigned
from burnin.words import RAW_BITS, segments, signed32

BLOCK = 4096
DIRECT = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int8)
"""Dtypes the kernel writes itself; the others go through float32 (exact for integers) and torch's own rounding."""
BUFFER = 1 << 24
"""Elements of that float32 buffer (64 MiB): bounded, and large enough to hide the launches."""


@triton.jit(do_not_specialize=["key_low", "key_high", "segment", "low", "magnitude"])
def fill(  # noqa: PLR0917 - a kernel has no keywords
    out: "Any",
    count: "Any",
    key_low: "Any",
    key_high: "Any",
    segment: "Any",
    low: "Any",
    magnitude: "Any",
    NORMAL: tl.constexpr,  # noqa: N803 - compile-time constants are capitals in Triton
    BITS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Write `count` elements from linear index `segment` * 2**32 + `low` on; the range stays inside the segment."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a, b = segment_keys(unsigned(key_low), unsigned(key_high), unsigned(segment))
    first = mix32((unsigned(low) + offsets.to(tl.uint32)) ^ a)
    words = mix32(first + b)
    if BITS:
        values = words.to(tl.int32, bitcast=True)
    elif NORMAL:
        pairs = (first & 0x00FF00FF) + ((first >> 8) & 0x00FF00FF)
        total = ((pairs & 0xFFFF) + (pairs >> 16)).to(tl.int32) - 510
        whole = total * 32768 + (words & 0x7FFF).to(tl.int32)
        spread = tl.where(((words >> 18) & 3) == 0, (words >> 15) & 7, 0).to(tl.int32)
        # The power of two 2**(-22 - spread) is put together from its exponent bits: no rounding, no libm.
        values = whole.to(tl.float32) * ((105 - spread) << 23).to(tl.float32, bitcast=True)
    else:
        scaled = ((words >> 16) * (2 * magnitude + 1).to(tl.uint32)) >> 16
        values = scaled.to(tl.int32) - magnitude
    if out.dtype.element_ty == tl.bfloat16:
        # Rounded here, to nearest and ties to even: not every vendor's conversion is one instruction that does so.
        bits = values.to(tl.float32).to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        result = bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        result = values.to(out.dtype.element_ty)
    tl.store(out + offsets, result, mask=offsets < count)


def launch(flat: torch.Tensor, key: int, start: int, mode: int) -> None:
    """Fill a flat contiguous tensor on its device.

    Args:
        flat: one-dimensional, contiguous; int32 for raw bits.
        key: 64-bit key.
        start: linear index of the first element.
        mode: magnitude of integers, 0 for near-normal floats, `RAW_BITS` for the words.
    """
    if flat.dtype not in DIRECT:
        for begin in range(0, flat.numel(), BUFFER):
            piece = flat[begin : begin + BUFFER]
            buffer = torch.empty(piece.numel(), dtype=torch.float32, device=flat.device)
            launch(buffer, key, start + begin, mode)
            piece.copy_(buffer)
        return
    done = 0
    for segment, low, count in segments(start, flat.numel(), 1 << 32):
        fill[(triton.cdiv(count, BLOCK),)](
            flat[done : done + count],
            count,
            signed32(key),
            signed32(key >> 32),
            signed32(segment),
            signed32(low),
            max(mode, 0),
            NORMAL=mode == 0,
            BITS=mode == RAW_BITS,
            BLOCK=BLOCK,
        )
        done += count
