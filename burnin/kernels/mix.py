"""The 32-bit mixing that seeds and checksums share, as Triton device functions; `burnin.words` has the definition."""

from typing import Any

import triton
import triton.language as tl


@triton.jit
def mix32(word: "Any") -> Any:
    """The finaliser of MurmurHash3 on uint32."""
    word ^= word >> 16
    word *= 0x85EBCA6B
    word ^= word >> 13
    word *= 0xC2B2AE35
    word ^= word >> 16
    return word


@triton.jit
def segment_keys(key_low: "Any", key_high: "Any", segment: "Any") -> Any:
    """The two 32-bit keys of a segment of 2**32 indices; all arguments and results are uint32 scalars."""
    mixed = mix32(segment ^ 0x9E3779B9)
    return mix32(key_low ^ mixed), mix32(key_high + mixed)


@triton.jit
def unsigned(word: "Any") -> Any:
    """Reinterpret a launch argument: keys are passed as int32, whose type does not depend on the value."""
    return word.to(tl.uint32, bitcast=True)
