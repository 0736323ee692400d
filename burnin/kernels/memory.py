"""March over memory: write a pattern, check it and write the next, check again. Counts what differs, and says where."""

from typing import Any

import torch
import triton
import triton.language as tl

from burnin.kernels.mix import mix32

BLOCK = 8192
# `count` is specialised on purpose: only a count that is known to be a multiple of 16 keeps the masked accesses wide.
ADDRESS, CONSTANT, SPACED, RANDOM = 0, 1, 2, 3
"""Patterns: the address mixed with the key; the key; the key in every 20th word and its inverse elsewhere; random."""


@triton.jit
def pattern(base: "Any", key: "Any", phase: "Any", PATTERN: tl.constexpr, BLOCK: tl.constexpr) -> Any:  # noqa: N803
    """The 32-bit words of a block that begins at index `base` (int64, a multiple of BLOCK), as uint32.

    `burnin.workloads.memory.words` has the definition. Within a block the upper half of the index is constant, so that
    all arithmetic on words is 32 bits wide: with 64 bits the march is bound by it and not by the memory.
    """
    lane = tl.arange(0, BLOCK)
    low = base.to(tl.uint32) + lane.to(tl.uint32)
    high = (base >> 32).to(tl.uint32)
    if PATTERN == 0:
        word = low ^ (key ^ high)
    elif PATTERN == 1:
        word = key + low * 0
    elif PATTERN == 2:  # noqa: PLR2004 - the patterns' numbers
        word = tl.where(((base % 20).to(tl.int32) + lane) % 20 == phase, key, key ^ 0xFFFFFFFF)
    else:
        word = mix32(low ^ mix32(key ^ high))
    return word


@triton.jit(do_not_specialize=["key", "phase"])
def write(  # noqa: PLR0917 - a kernel has no keywords
    words: "Any",
    count: "Any",
    key: "Any",
    phase: "Any",
    PATTERN: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Write the pattern."""
    base = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    word = pattern(base, key.to(tl.uint32, bitcast=True), phase, PATTERN, BLOCK)
    tl.store(words + base + lane, word.to(tl.int32, bitcast=True), mask=lane < (count - base).to(tl.int32))


@triton.jit(do_not_specialize=["key", "phase", "flip"])
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

    INVERT: write the inverse of each word that was read behind the check; a wrong one stays wrong and is seen again.
    (The inverse of the right word would not wait for the read: on an H200 that ran at 1.5 instead of 4.0 TB/s.)
    DOWN: from the highest address to the lowest.
    """
    program = tl.program_id(0)
    block = tl.num_programs(0) - 1 - program if DOWN else program
    base = block.to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = lane < (count - base).to(tl.int32)
    right = pattern(base, key.to(tl.uint32, bitcast=True), phase, PATTERN, BLOCK)
    right = right.to(tl.int32, bitcast=True) ^ flip
    word = tl.load(words + base + lane, mask=inside, other=0)
    wrong = inside & (word != right)
    if INVERT:
        tl.store(words + base + lane, word ^ -1, mask=inside)
    number = tl.sum(wrong.to(tl.int32), axis=0)
    if number > 0:
        tl.atomic_add(found, number.to(tl.int64))
        tl.atomic_min(found + 1, base + tl.min(tl.where(wrong, lane, BLOCK), axis=0).to(tl.int64))


def launch_write(words: torch.Tensor, key: int, pattern_number: int, phase: int) -> None:
    """Write a pattern over the flat int32 tensor `words` (less than 2^31 of them); `key`: signed 32 bits."""
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
