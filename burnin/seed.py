"""Inputs from a counter: the value at a linear index is a hash of (key, index), so every device makes the same bits.

`torch.randn` is no use here: its stream depends on the number of multiprocessors. Everything below is integer
arithmetic modulo 2**32 plus exact conversions, written twice: in numpy (the definition, for the CPU) and in Triton
(`burnin.kernels.fill`, for CUDA and ROCm); tests hold them equal.
"""

import numpy as np
import numpy.typing as npt
import torch

from burnin.kernels import fill_on_device, on_device
from burnin.words import RAW_BITS, Words, counters, mix32, segment_keys, segments

MAGNITUDE_MAX = 32_767
"""Integers are drawn from the upper 16 bits of a word, so at most 2**16 values."""
CHUNK = 1 << 16
"""Elements made at a time on the CPU: the temporaries stay in the second-level cache."""


def random_words(key: int, start: int, count: int) -> Words:
    """Return `count` words of 32 random bits for the linear indices from `start` on: the second of each pair."""
    return word_pairs(key, start, count)[1]


def word_pairs(key: int, start: int, count: int) -> tuple[Words, Words]:
    """Return two words of 32 random bits for each linear index from `start` on.

    The definition: first = mix32(low ^ a), second = mix32(first + b) with (a, b) = segment_keys(key, segment).
    """
    firsts, seconds = np.empty(count, dtype=np.uint32), np.empty(count, dtype=np.uint32)
    done = 0
    for segment, low, piece in segments(start, count, CHUNK):
        a, b = segment_keys(key, segment)
        first = mix32(counters(low, piece) ^ np.uint32(a))
        firsts[done : done + piece] = first
        seconds[done : done + piece] = mix32(first + np.uint32(b))
        done += piece
    return firsts, seconds


def fill_integers(out: torch.Tensor, key: int, magnitude: int, *, start: int = 0) -> None:
    """Fill `out` with integers uniform in [-magnitude, magnitude], the same bits on every device.

    Args:
        out: contiguous tensor, any shape; its dtype must hold the integers (see `burnin.golden.largest_integer`).
        key: 64-bit key from `derive`.
        magnitude: 1 … 32767.
        start: linear index of the first element, for a slice of a larger tensor.

    Raises:
        ValueError: the magnitude is out of range, or the tensor is not contiguous.
    """
    if not 1 <= magnitude <= MAGNITUDE_MAX:
        raise ValueError(f"magnitude {magnitude} is not in 1 … {MAGNITUDE_MAX}")
    _fill(out, key, start, magnitude)


def fill_normal(out: torch.Tensor, key: int, *, start: int = 0) -> None:
    """Fill `out` with near-normal floats that use the whole mantissa and a spread of exponents.

    The sum of four random bytes (Irwin-Hall) with fifteen random bits below it is an integer below 2**24; it is scaled
    by 2**-22, and a quarter of the elements by up to 2**-7 more. Both steps are exact in float32, the only rounding is
    the conversion to the dtype of `out` (to nearest, ties to even). Mean 0, standard deviation about 1, range (-4, 4).

    Args:
        out: contiguous floating-point tensor, any shape.
        key: 64-bit key from `derive`.
        start: linear index of the first element.

    Raises:
        ValueError: the tensor is not floating-point or not contiguous.
    """
    if not out.dtype.is_floating_point:
        raise ValueError(f"fill_normal makes floats, the tensor is {out.dtype}")
    _fill(out, key, start, 0)


def fill_bits(out: torch.Tensor, key: int) -> None:
    """Fill the bytes of `out` with random bits (NaN, infinities and subnormals included).

    Args:
        out: contiguous tensor, any shape and dtype; one 32-bit word an index, little-endian, the last one cut off.
        key: 64-bit key from `derive`.

    Raises:
        ValueError: the tensor is not contiguous.
    """
    _require_contiguous(out)
    raw = out.as_strided((out.numel(),), (1,)).view(torch.uint8) if out.numel() else out.new_empty(0, dtype=torch.uint8)
    whole = raw.numel() // 4 * 4
    if whole and raw.data_ptr() % 4 == 0 and on_device(raw):
        fill_on_device(raw[:whole].view(torch.int32), key, 0, RAW_BITS)
        first = whole
    else:
        first = 0
    for begin in range(first, raw.numel(), 4 * CHUNK):
        size = min(4 * CHUNK, raw.numel() - begin)
        words = random_words(key, begin // 4, (size + 3) // 4)
        raw[begin : begin + size].copy_(torch.from_numpy(words.view(np.uint8)[:size]))


def _require_contiguous(out: torch.Tensor) -> None:
    if not out.is_contiguous():
        raise ValueError(f"the tensor to fill is not contiguous: shape {tuple(out.shape)}, strides {out.stride()}")


def _fill(out: torch.Tensor, key: int, start: int, magnitude: int) -> None:
    """Fill with integers (`magnitude` > 0) or near-normal floats (0)."""
    _require_contiguous(out)
    flat = out.view(-1)
    if on_device(flat):
        fill_on_device(flat, key, start, magnitude)
        return
    for begin in range(0, flat.numel(), CHUNK):
        piece = flat[begin : begin + CHUNK]
        first, second = word_pairs(key, start + begin, piece.numel())
        values = _integers(second, magnitude) if magnitude else _normal(first, second)
        piece.copy_(torch.from_numpy(values))


def _integers(words: Words, magnitude: int) -> npt.NDArray[np.int32]:
    """Scale the upper 16 bits of each word to [-magnitude, magnitude] (bias below 2**-15)."""
    scaled = (words >> np.uint32(16)) * np.uint32(2 * magnitude + 1) >> np.uint32(16)
    return scaled.astype(np.int32) - np.int32(magnitude)


def _normal(first: Words, second: Words) -> npt.NDArray[np.float32]:
    """Turn each pair of words into a near-normal float32, exactly (see `fill_normal`)."""
    pairs = (first & np.uint32(0x00FF_00FF)) + (first >> np.uint32(8) & np.uint32(0x00FF_00FF))
    total = ((pairs & np.uint32(0xFFFF)) + (pairs >> np.uint32(16))).astype(np.int32) - np.int32(510)
    whole = total * np.int32(32_768) + (second & np.uint32(0x7FFF)).astype(np.int32)
    spread = np.where(second >> np.uint32(18) & np.uint32(3), np.uint32(0), second >> np.uint32(15) & np.uint32(7))
    return np.ldexp(whole.astype(np.float32), -22 - spread.astype(np.int32))
