"""Fill a flat tensor from a counter; the same bits as the numpy definition in `burnin.seed`."""

from typing import Any

import torch
import triton
import triton.language as tl

from burnin.kernels.mix import mix32, segment_keys, unsigned
from burnin.words import RAW_BITS, segments, signed32

BLOCK = 4096
DIRECT = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int8)
"""Dtypes the kernel writes itself; those that are not in `FP8` either go through float32 (exact for integers)."""
FP8 = {
    torch.float8_e4m3fn: (3, 7, True),
    torch.float8_e4m3fnuz: (3, 8, False),
    torch.float8_e5m2: (2, 15, True),
    torch.float8_e5m2fnuz: (2, 16, False),
}
"""Formats the kernel writes as bytes: stored bits of the significand, exponent bias, whether there is a negative zero.
They are the bulk of the inputs of fp8 products, and not every device has a type for each."""
BUFFER = 1 << 24
"""Elements of that float32 buffer (64 MiB): bounded, and large enough to hide the launches."""


@triton.jit
def to_fp8(
    values: "Any",
    MANTISSA: tl.constexpr,  # noqa: N803
    BIAS: tl.constexpr,  # noqa: N803
    NEGATIVE_ZERO: tl.constexpr,  # noqa: N803
) -> Any:
    """The bytes of float32 values in an fp8 format that holds them all: to nearest, ties to even, in integers."""
    bits = values.to(tl.uint32, bitcast=True)
    size = bits & 0x7FFFFFFF
    drop: tl.constexpr = 23 - MANTISSA
    normal = ((size + ((1 << (drop - 1)) - 1) + ((size >> drop) & 1)) >> drop) - ((127 - BIAS) << MANTISSA)
    # Below the smallest normal number steps are even. They are the last bit of the float32 numbers from 2**step on:
    # adding that number rounds.
    step: tl.constexpr = 24 - BIAS - MANTISSA
    offset: tl.constexpr = (127 + step) << 23
    rounded = size.to(tl.float32, bitcast=True) + tl.full([1], offset, tl.uint32).to(tl.float32, bitcast=True)
    code = tl.where(size < ((128 - BIAS) << 23), rounded.to(tl.uint32, bitcast=True) - offset, normal)
    sign = (bits >> 31) << 7
    if not NEGATIVE_ZERO:
        sign = tl.where(code == 0, 0, sign)
    return (code | sign).to(tl.uint8)


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
    MANTISSA: tl.constexpr,  # noqa: N803
    BIAS: tl.constexpr,  # noqa: N803
    NEGATIVE_ZERO: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Write `count` elements from linear index `segment` * 2**32 + `low` on; the range stays inside the segment.

    MANTISSA, BIAS, NEGATIVE_ZERO: the fp8 format of `out`, which then is of bytes; MANTISSA is 0 for all other types.
    """
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
    if MANTISSA > 0:
        result = to_fp8(values.to(tl.float32), MANTISSA, BIAS, NEGATIVE_ZERO)
    elif out.dtype.element_ty == tl.bfloat16:
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
    mantissa, bias, negative_zero = FP8.get(flat.dtype, (0, 0, True))
    if mantissa:
        flat = flat.view(torch.uint8)
    elif flat.dtype not in DIRECT:
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
            MANTISSA=mantissa,
            BIAS=bias,
            NEGATIVE_ZERO=negative_zero,
            BLOCK=BLOCK,
        )
        done += count
