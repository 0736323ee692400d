"""The checksum of `burnin.checksum` in one pass over memory, without atomics.

Each program adds up (word + 1) * weight modulo 2**64 and stores one partial sum; a second, tiny kernel (or one torch
`sum` over many launches) adds those. The speed limit is integer instructions, not memory: about a dozen a word are
affordable, hence the 32-bit weights, whose first multiplication is moved out of the loop (counter * constant + a is an
addition where counters advance by a constant), and the unmasked paths for what is a multiple of the block.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from burnin.kernels.mix import segment_keys, unsigned
from burnin.words import signed32

BLOCK = 4096
"""Words a program reads at a time: four 16-byte loads in flight for each of 256 threads."""
PROGRAMS_MAX = 4096
"""Partial sums of one flat checksum; more programs than any GPU holds at once, and still one load for the last step."""
TILE = 128
"""Edge of a tile in elements; equal to `burnin.checksum.TILE`."""
ROWS = 32
"""Rows of a tile that a program reads at a time."""
TILE_WARPS = 8
"""Measured on an H200, bf16 8192 x 8192: 34 us with 8 warps, 39 us with 4."""


@triton.jit
def spread(counter: "Any") -> Any:
    """The first, linear step of a weight: the counter times the golden ratio of 2**32, as uint32."""
    return counter.to(tl.uint32) * 0x9E3779B1


@triton.jit
def weigh(words: "Any", spread_counters: "Any", b: "Any") -> Any:
    """(word + 1) * weight as uint64, for int32 words and their counters after `spread` and the addition of `a`."""
    mixed = (spread_counters ^ (spread_counters >> 15)) * 0x85EBCA6B
    weights = ((mixed ^ (mixed >> 16) ^ b) | 1).to(tl.uint64)
    return words.to(tl.uint32, bitcast=True).to(tl.uint64) * weights + weights


@triton.jit
def load_tail(raw: "Any", n_words: "Any", TAIL: tl.constexpr) -> Any:  # noqa: N803
    """The last 1 … 3 bytes as a zero-padded little-endian word."""
    last = raw + n_words * 4
    word = tl.load(last).to(tl.int32)
    if TAIL > 1:
        word |= tl.load(last + 1).to(tl.int32) << 8
    if TAIL > 2:  # noqa: PLR2004 - bytes of the tail
        word |= tl.load(last + 2).to(tl.int32) << 16
    return word


@triton.jit(do_not_specialize=["n_words", "key_low", "key_high"])
def flat_sums(  # noqa: PLR0917 - a kernel has no keywords
    partials: "Any",
    words: "Any",
    raw: "Any",
    n_words: "Any",
    key_low: "Any",
    key_high: "Any",
    TAIL: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """Partial sums over a flat run of words; program p reads block p, p + programs and so on."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    lane = tl.arange(0, BLOCK)
    spread_lane = spread(lane)
    key_low = unsigned(key_low)
    key_high = unsigned(key_high)
    total = tl.zeros([BLOCK], dtype=tl.uint64)
    whole = (n_words // BLOCK).to(tl.int32)
    for step in range((whole - program + programs - 1) // programs):
        base = (program + step * programs).to(tl.int64) * BLOCK
        # 2**32 is a multiple of BLOCK: a block lies in one segment.
        a, b = segment_keys(key_low, key_high, (base >> 32).to(tl.uint32))
        total += weigh(tl.load(words + base + lane), spread_lane + (spread(base) + a), b)
    if program == whole % programs:
        base = whole.to(tl.int64) * BLOCK
        a, b = segment_keys(key_low, key_high, (base >> 32).to(tl.uint32))
        inside = base + lane < n_words
        found = tl.load(words + base + lane, mask=inside, other=0)
        total += tl.where(inside, weigh(found, spread_lane + (spread(base) + a), b), 0)
    result = tl.sum(total, axis=0)
    if TAIL > 0:  # noqa: SIM102 - this condition is decided at compile time, the next is not
        if program == 0:
            end = n_words.to(tl.int64)
            a, b = segment_keys(key_low, key_high, (end >> 32).to(tl.uint32))
            result += weigh(load_tail(raw, end, TAIL), spread(end) + a, b)
    tl.store(partials + program, result.to(tl.int64, bitcast=True))


@triton.jit(do_not_specialize=["count", "length_low", "length_high"])
def add_up(  # noqa: PLR0917 - a kernel has no keywords
    slot: "Any",
    partials: "Any",
    count: "Any",
    length_low: "Any",
    length_high: "Any",
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    """slot[0] = sum of the partial sums + the 64-bit length term, modulo 2**64."""
    lane = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(partials + lane, mask=lane < count, other=0), axis=0)
    length = (unsigned(length_high).to(tl.uint64) << 32) | unsigned(length_low).to(tl.uint64)
    tl.store(slot, total + length.to(tl.int64, bitcast=True))


@triton.jit(do_not_specialize=["n_words", "tail_tile", "key_low", "key_high"])
def tile_sums(  # noqa: PLR0917 - a kernel has no keywords
    out: "Any",
    words: "Any",
    raw: "Any",
    rows: "Any",
    row_bytes: "Any",
    row_words: "Any",
    n_words: "Any",
    tiles_across: "Any",
    tail_tile: "Any",
    key_low: "Any",
    key_high: "Any",
    EVEN: tl.constexpr,  # noqa: N803
    ALIGNED: tl.constexpr,  # noqa: N803
    TAIL: tl.constexpr,  # noqa: N803
    TILE: tl.constexpr,  # noqa: N803
    TILE_WORDS: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
) -> None:
    """One program a tile of TILE rows by TILE elements (TILE_WORDS words); a word belongs where its first byte is.

    EVEN: all tiles are whole. ALIGNED: rows begin at a word.
    """
    # Last tile first: what the product before this launch wrote last is still in the second-level cache.
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    down = program // tiles_across
    across = program % tiles_across
    a, b = segment_keys(unsigned(key_low), unsigned(key_high), (program * 0).to(tl.uint32))
    lane = tl.arange(0, TILE_WORDS)
    column = across * TILE_WORDS + lane
    total = tl.zeros([ROWS, TILE_WORDS], dtype=tl.uint64)
    for step in range(0, TILE, ROWS):
        row = (down * TILE + step + tl.arange(0, ROWS)).to(tl.int64)
        if ALIGNED:
            first = row * row_words + across * TILE_WORDS
            inside = (row < rows)[:, None] & (column < row_words)[None, :]
        else:
            # Rows begin inside a word: the tile's words of a row are those whose first byte lies in it.
            begin = row * row_bytes + across * (TILE_WORDS * 4)
            first = (begin + 3) // 4
            after = (tl.minimum(begin + TILE_WORDS * 4, (row + 1) * row_bytes) + 3) // 4
            index = first[:, None] + lane[None, :]
            inside = (row < rows)[:, None] & (index < after[:, None]) & (index < n_words)
        where = words + first[:, None] + lane[None, :]
        counters = (spread(first) + a)[:, None] + spread(lane)[None, :]
        if EVEN:
            total += weigh(tl.load(where), counters, b)
        else:
            total += tl.where(inside, weigh(tl.load(where, mask=inside, other=0), counters, b), 0)
    result = tl.sum(tl.sum(total, axis=1), axis=0)
    if TAIL > 0:  # noqa: SIM102 - this condition is decided at compile time, the next is not
        if program == tail_tile:
            end = n_words.to(tl.int64)
            result += weigh(load_tail(raw, end, TAIL), spread(end) + a, b)
    tl.store(out + program, result.to(tl.int64, bitcast=True))


def programs_of(raw: torch.Tensor) -> int:
    """Programs of a flat checksum: about eight a multiprocessor, so that enough loads are in flight."""
    processors = torch.cuda.get_device_properties(raw.device).multi_processor_count if raw.is_cuda else 2
    return max(1, min(PROGRAMS_MAX, 8 * processors, raw.numel() // (4 * BLOCK)))


def launch_flat(slot: torch.Tensor, raw: torch.Tensor, key: int, length_term: int) -> None:
    """Checksum the uint8 tensor `raw` (flat, contiguous, 4-byte aligned) into `slot` (int64, one element)."""
    n_words, tail = divmod(raw.numel(), 4)
    programs = programs_of(raw)
    partials = torch.empty(programs, dtype=torch.int64, device=raw.device)
    words = raw[: 4 * n_words].view(torch.int32)
    flat_sums[(programs,)](
        partials, words, raw, n_words, signed32(key), signed32(key >> 32), TAIL=tail, BLOCK=BLOCK, num_warps=8
    )
    add_up[(1,)](
        slot,
        partials,
        programs,
        signed32(length_term),
        signed32(length_term >> 32),
        BLOCK=triton.next_power_of_2(programs),
    )


def launch_tiles(out: torch.Tensor, matrix: torch.Tensor, key: int) -> None:
    """Write one sum a tile of `matrix` (2-D, contiguous, not empty, 4-byte aligned, <= 16 GiB) into `out` (int64)."""
    rows, columns = matrix.shape
    row_bytes = columns * matrix.element_size()
    n_words, tail = divmod(rows * row_bytes, 4)
    tiles_across = triton.cdiv(columns, TILE)
    tile_words = TILE * matrix.element_size() // 4
    tail_row, tail_byte = divmod(4 * n_words, row_bytes)
    raw = matrix.as_strided((rows * columns,), (1,)).view(torch.uint8)
    tile_sums[(triton.cdiv(rows, TILE) * tiles_across,)](
        out,
        raw[: 4 * n_words].view(torch.int32),
        raw,
        rows,
        row_bytes,
        row_bytes // 4,
        n_words,
        tiles_across,
        tail_row // TILE * tiles_across + tail_byte // (TILE * matrix.element_size()),
        signed32(key),
        signed32(key >> 32),
        EVEN=rows % TILE == 0 and columns % TILE == 0,
        ALIGNED=row_bytes % 4 == 0,
        TAIL=tail,
        TILE=TILE,
        TILE_WORDS=tile_words,
        ROWS=ROWS,
        num_warps=TILE_WARPS,
    )
