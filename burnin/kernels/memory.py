"""March over memory: write a pattern, check it and write the next, check again. Counts what differs, and says where."""

from typing import Any

import torch
import triton
import triton.language as tl

from burnin.kernels.mix import mix32

BLOCK = 8192
ADDRESS, CONSTANT, SPACED, RANDOM = 0, 1, 2, 3
"""Patterns: the address mixed with the key; the key; the key in every 20th word and its inverse elsewhere; random."""


@triton.jit
def pattern(at: "Any", key: "Any", phase: "Any", PATTERN: tl.constexpr) -> Any:  # noqa: N803 - constants are capitals
    """The 32-bit word at an index (int64), as uint32; `burnin.workloads.memory.words` has the definition."""
    low = at.to(tl.uint32)
    if PATTERN == 0:
        word = low ^ key ^ (at >> 32).to(tl.uint32)
    elif PATTERN == 1:
        word = key + low * 0
    elif PATTERN == 2:  # noqa: PLR2004 - the patterns' numbers
        word = tl.where(at % 20 == phase, key, key ^ 0xFFFFFFFF)
    else:
        word = mix32(low ^ mix32(key ^ (at >> 32).to(tl.uint32)))
    return word


@triton.jit(do_not_specialize=["key", "phase", "count"])
def write(  # noqa: PLR0917 - a kernel has no keywords
    words: "Any",
    count: "Any",
    key: "Any",
    phase: "Any",
    PATTERN: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Write the pattern."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word = pattern(at, key.to(tl.uint32, bitcast=True), phase, PATTERN)
    tl.store(words + at, word.to(tl.int32, bitcast=True), mask=at < count)


@triton.jit(do_not_specialize=["key", "phase", "count", "flip"])
def check(  # noqa: PLR0917 - a kernel has no keywords
    found: "Any",
    words: "Any",
    count: "Any",
    key: "Any",
    phase: "Any",
    flip: "Any",
    PATTERN: tl.constexpr,  # noqa: N803
    INVERT: tl.constexpr,  # noqa: N803
    DOWN: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Compare with the pattern ^ flip; found[0] += words that differ, found[1] = the lowest of their indices.

    INVERT: write each word's inverse behind the check. DOWN: from the highest address to the lowest.
    """
    program = tl.program_id(0)
    block = tl.num_programs(0) - 1 - program if DOWN else program
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    right = pattern(at, key.to(tl.uint32, bitcast=True), phase, PATTERN).to(tl.int32, bitcast=True) ^ flip
    word = tl.load(words + at, mask=inside, other=0)
    wrong = inside & (word != right)
    if INVERT:
        tl.store(words + at, right ^ -1, mask=inside)
    number = tl.sum(wrong.to(tl.int64), axis=0)
    if number > 0:
        tl.atomic_add(found, number)
        tl.atomic_min(found + 1, tl.min(tl.where(wrong, at, 0x7FFFFFFFFFFFFFFF), axis=0))


def launch_write(words: torch.Tensor, key: int, pattern_number: int, phase: int) -> None:
    """Write a pattern over the flat int32 tensor `words`; `key`: signed 32 bits."""
    grid = (triton.cdiv(words.numel(), BLOCK),)
    write[grid](words, words.numel(), key, phase, PATTERN=pattern_number, BLOCK=BLOCK, num_warps=8)


def launch_check(
    found: torch.Tensor,
    words: torch.Tensor,
    key: int,
    pattern_number: int,
    phase: int,
    *,
    flip: int,
    invert: bool,
    down: bool,
) -> None:
    """Check the pattern; `found`: two int64, count and lowest wrong index so far; `flip`: -1 for the inverse."""
    grid = (triton.cdiv(words.numel(), BLOCK),)
    check[grid](
        found,
        words,
        words.numel(),
        key,
        phase,
        flip,
        PATTERN=pattern_number,
        INVERT=invert,
        DOWN=down,
        BLOCK=BLOCK,
        num_warps=8,
    )
