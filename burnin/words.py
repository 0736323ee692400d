"""32-bit arithmetic that seeds and checksums share: mixing, the keys of a segment, the walk over segments.

Written here in numpy, which is the definition; `burnin.kernels.mix` says the same in Triton, and tests hold them equal.
A *key* is a 64-bit integer (`burnin.keys`); a *segment* is a run of 2**32 consecutive indices, so that the inner loop
needs 32-bit arithmetic only and tensors may be longer than 2**32 elements.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint32]

MASK32 = 0xFFFF_FFFF
GOLDEN32 = 0x9E37_79B9
"""2**32 divided by the golden ratio: decorrelates small counters before they are mixed."""

RAW_BITS = -1
"""Mode of the fill kernel: the random words themselves. 0 makes near-normal floats, a positive mode is a magnitude."""


def mix32(words: Words) -> Words:
    """Mix each 32-bit word in place and return it: the finaliser of MurmurHash3 (a bijection on 32-bit words)."""
    words ^= words >> np.uint32(16)
    words *= np.uint32(0x85EB_CA6B)
    words ^= words >> np.uint32(13)
    words *= np.uint32(0xC2B2_AE35)
    words ^= words >> np.uint32(16)
    return words


@lru_cache(maxsize=64)
def segment_keys(key: int, segment: int) -> tuple[int, int]:
    """Return the two 32-bit keys of a segment: what the 32-bit inner loop knows of the 64-bit key and the high index.

    Args:
        key: 64-bit key.
        segment: linear index divided by 2**32, less than 2**32.
    """
    mixed = _mix_one(segment ^ GOLDEN32)
    return _mix_one((key & MASK32) ^ mixed), _mix_one(((key >> 32) & MASK32) + mixed & MASK32)


def _mix_one(word: int) -> int:
    return int(mix32(np.array([word], dtype=np.uint32))[0])


def signed32(word: int) -> int:
    """Return the low 32 bits of `word`, signed: the one type for which a Triton kernel is never compiled again."""
    word &= MASK32
    return word - (1 << 32) if word >> 31 else word


def segments(start: int, count: int, chunk: int) -> Iterator[tuple[int, int, int]]:
    """Yield (segment, low index, count) pieces of at most `chunk` indices that cross no segment border."""
    stop = start + count
    while start < stop:
        segment, low = divmod(start, 1 << 32)
        piece = min(chunk, stop - start, (1 << 32) - low)
        yield segment, low, piece
        start += piece


def counters(low: int, count: int) -> Words:
    """Return the indices low … low + count - 1 as 32-bit words."""
    return np.arange(low, low + count, dtype=np.uint64).astype(np.uint32)
