"""`hbm`: marches over nearly all memory: no word may differ from what was written.

Each algorithm is one case. Memory is held in chunks; every chunk is written before the first is checked, so that each
pass lies between a write and its check. The result of a launch is (words that differ, lowest wrong index) of every
chunk, whose golden is known: (0, none).
"""

from dataclasses import dataclass

import numpy as np
import torch

from burnin.checksum import text
from burnin.inject import Injector
from burnin.kernels import check_on_device, have_triton, write_on_device
from burnin.keys import derive
from burnin.spec import Ballot, Case, Elements, Proof
from burnin.words import Words, mix32, signed32
from burnin.workloads import Context, MissingError
from burnin.workloads.elements import Comparison
from burnin.workloads.launches import Stopwatch, injector_of, tally
from burnin.workloads.pauses import rest

TEST = "hbm"
SHARE = 0.97
"""Of the memory that is free. The rest is for planted faults and the blocks that are moved; on a device with 141 GB the
library itself takes about half a percent, so that 95 % of the whole are tested."""
CHUNK_WORDS, CHUNK_WORDS_CPU = 1 << 28, 1 << 16
CHUNKS_CPU = 2
NONE = 0x7FFF_FFFF_FFFF_FFFF
"""Lowest wrong index where there is none."""
COLUMNS = 128
ADDRESS, CONSTANT, SPACED, RANDOM = 0, 1, 2, 3
"""Patterns; equal to those of `burnin.kernels.memory`."""
SPACING = 20
MOVED_WORDS = 1 << 24
"""Words that are moved at a time."""
EXAMINED_PASSES, EXAMINED_WORDS = 4, 1 << 20
"""Passes in which a fault may show itself again, and words from the first wrong one on that are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class March:
    """One algorithm."""

    name: str
    pattern: int
    inversions: int = 0
    """Checks that leave the inverse behind, upwards and downwards in turn, before the last."""
    moved: bool = False
    """Whether blocks are moved to the other half of their chunk between write and check."""
    held: bool = False
    """Whether memory must hold the words for a while, see `Context.retention_s`, half of it each way up."""


MARCHES = (
    March(name="address in address", pattern=ADDRESS),
    March(name="moving inversions", pattern=CONSTANT, inversions=2),
    March(name="modulo 20", pattern=SPACED),
    March(name="random", pattern=RANDOM, inversions=1),
    March(name="block move", pattern=RANDOM, moved=True),
)
RETENTION = March(name="retention", pattern=RANDOM, inversions=1, held=True)
"""Cells leak towards one value: every bit is held as it is and inverted. Only where a time is given."""


class Hbm:
    """See the module."""

    def __init__(self) -> None:
        self._injector: Injector | None = None

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """Return one case an algorithm; see `burnin.workloads.Workload`."""
        if ctx.device.type == "cuda" and not have_triton():
            raise MissingError("triton is not installed; the test consists of a kernel of our own")
        if ctx.device.type == "cuda":
            torch.cuda.empty_cache()
            require_memory(*torch.cuda.mem_get_info(ctx.device))
        return tuple(
            Case(test=TEST, name=march.name, dtype="bytes", exact=True, rate_name="hbm_bytes_per_second")
            for march in (*MARCHES, *([RETENTION] if ctx.retention_s else []))
        )

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """March over all memory `launches` times; see `burnin.workloads.Workload`.

        A march that holds does so in the first launch of a first iteration: once in a test, and once in its retest.
        """
        march, chunks = _march(case), _chunks(ctx)
        _require_eyes(chunks[0])
        injector = self._injector = injector_of(ctx, self._injector)
        watch, rows, fired = Stopwatch(ctx.device), list[tuple[tuple[int, int], ...]](), 0
        for launch in range(launches):
            hold_s = ctx.retention_s / 2 if march.held and iteration == 0 and launch == 0 else 0.0
            watch.start()
            found, struck = _pass(ctx, march, chunks, derive(seed, TEST, launch), injector, hold_s=hold_s)
            watch.stop()
            rows.append(found)
            fired += struck
        sizes = [chunk.numel() for chunk in chunks]
        if all(count >= size for row in rows for (count, _), size in zip(row, sizes, strict=True)):
            raise RuntimeError(f"no word is what {launches} launches wrote: nothing was stored")
        fingerprints, odd = tally([_fingerprint(row) for row in rows])
        return Ballot(
            case=case.name,
            iteration=iteration,
            seed=seed,
            fingerprints=fingerprints,
            launches=launches,
            bytes=launches * sum(chunk.nbytes for chunk in chunks),
            flops=0,
            elapsed_s=watch.elapsed_s(),
            trace=tuple((f"chunk{n}", text(derive(0, *pair))) for n, pair in enumerate(rows[odd])),
            fired=fired,
        )

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """March once; what differs is wrong, whatever other GPUs say."""
        chunks = _chunks(ctx)
        _require_eyes(chunks[0])
        injector = self._injector = injector_of(ctx, self._injector)
        found, _ = _pass(ctx, _march(case), chunks, derive(seed, TEST, 0), injector)
        for number, (count, first) in enumerate(found):
            if count:
                address = 4 * (number * chunks[0].numel() + first)
                why = f"{count} of {chunks[number].numel()} words differ from what was written, first at byte {address}"
                return Proof(case=case.name, seed=seed, fingerprint=None, why=why)
        megabytes = sum(chunk.nbytes for chunk in chunks) >> 20
        why = f"every word of {megabytes} MiB is what was written"
        return Proof(case=case.name, seed=seed, fingerprint=text(_fingerprint(found)), why=why)

    def examine(
        self, ctx: Context, case: Case, *, seed: int, launches: int, right: str | None, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Write the pattern and compare the first chunk that differs; see `burnin.workloads.Workload`."""
        del right, tiles
        march, chunks = _march(case), _chunks(ctx)
        injector = self._injector = injector_of(ctx, self._injector)
        for launch in range(min(launches, EXAMINED_PASSES)):
            key, phase = _key(march, derive(seed, TEST, launch))
            slots = torch.tensor([[0, NONE]] * len(chunks), dtype=torch.int64, device=ctx.device)
            for slot, chunk in zip(slots, chunks, strict=True):
                _write(chunk, key, march.pattern, phase)
                injector.hit(chunk.view(-1, COLUMNS), op=march.name)
                _check(slot, chunk, key, march.pattern, phase, flipped=False, invert=False, down=False)
                ctx.alive()
            for (count, first), chunk in zip(slots.tolist(), chunks, strict=True):
                if count:
                    start = int(first) // COLUMNS * COLUMNS
                    truth = words(key, march.pattern, phase, start, min(EXAMINED_WORDS, len(chunk) - start))
                    return _elements(chunk, truth, start=start)
        return None


def require_memory(free: int, whole: int) -> None:
    """Raise MissingError when less than one piece of the march is free, in bytes; others may hold the rest."""
    if free * SHARE < CHUNK_WORDS * 4:
        raise MissingError(f"only {free >> 20} of {whole >> 20} MiB of memory are free")


def words(key: int, pattern: int, phase: int, start: int, count: int) -> Words:
    """Return the words of a pattern from index `start` on: the definition, in numpy.

    Args:
        key: 32 bits.
        pattern: ADDRESS, CONSTANT, SPACED or RANDOM.
        phase: of SPACED: which of 20 words.
        start: index of the first word.
        count: how many.
    """
    at = np.arange(start, start + count, dtype=np.int64)
    low, high = at.astype(np.uint32), (at >> 32).astype(np.uint32)
    k = np.uint32(key & 0xFFFF_FFFF)
    if pattern == ADDRESS:
        return low ^ k ^ high
    if pattern == CONSTANT:
        return np.full(count, k)
    if pattern == SPACED:
        return np.where(at % SPACING == phase, k, ~k).astype(np.uint32)
    return mix32(low ^ mix32(k ^ high))


def _march(case: Case) -> March:
    for march in (*MARCHES, RETENTION):
        if march.name == case.name:
            return march
    raise ValueError(f"{TEST} has no case {case.name!r}")


def _key(march: March, key: int) -> tuple[int, int]:
    """Return the 32-bit key and the phase of a pass."""
    return key & 0xFFFF_FFFF, (key >> 32) % SPACING if march.pattern == SPACED else 0


def _chunks(ctx: Context) -> list[torch.Tensor]:
    """Take the memory: on a GPU nearly all that is free."""
    if ctx.device.type != "cuda":
        return [torch.zeros(CHUNK_WORDS_CPU, dtype=torch.int32) for _ in range(CHUNKS_CPU)]
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(ctx.device)
    # The last chunk is what is left, in whole rows: a planted fault sees memory as a matrix.
    left, chunks = int(free * SHARE) // 4, list[torch.Tensor]()
    while left >= COLUMNS:
        size = min(CHUNK_WORDS, left // COLUMNS * COLUMNS)
        chunks.append(torch.empty(size, dtype=torch.int32, device=ctx.device))
        left -= size
    return chunks


def _pass(
    ctx: Context, march: March, chunks: list[torch.Tensor], key: int, injector: Injector, *, hold_s: float = 0.0
) -> tuple[tuple[tuple[int, int], ...], bool]:
    """Write everything, let the fault strike, check everything: ((count, first) of every chunk, whether it struck).

    `hold_s`: between each write and its check.
    """
    word, phase = _key(march, key)
    for chunk in chunks:
        _write(chunk, word, march.pattern, phase)
    struck = False
    for chunk in chunks:
        struck |= injector.hit(chunk.view(-1, COLUMNS), op=march.name)
        if march.moved:
            _move(chunk)
        ctx.alive()
    found = torch.tensor([[0, NONE]] * len(chunks), dtype=torch.int64, device=ctx.device)
    for number in range(march.inversions + 1):
        down = number % 2 == 1
        if hold_s:
            _hold(ctx, hold_s)
        todo = list(zip(found, chunks, strict=True))
        for slot, chunk in reversed(todo) if down else todo:
            last = number == march.inversions
            _check(slot, chunk, word, march.pattern, phase, flipped=down, invert=not last, down=down)
        ctx.alive()
    return tuple((int(count), int(first)) for count, first in found.tolist()), struck


def _hold(ctx: Context, seconds: float) -> None:
    """Leave memory alone, after everything is written; feeds the watchdog."""
    if ctx.device.type == "cuda":
        torch.cuda.synchronize(ctx.device)
    rest(ctx, seconds)


def _require_eyes(chunk: torch.Tensor) -> None:
    """A check that sees nothing would pass everything: one flipped bit must be counted.

    Raises:
        RuntimeError: It is not.
    """
    slot = torch.tensor([0, NONE], dtype=torch.int64, device=chunk.device)
    _write(chunk, 1, CONSTANT, 0)
    chunk[-1] ^= 1 << 7
    _check(slot, chunk, 1, CONSTANT, 0, flipped=False, invert=False, down=False)
    if int(slot[0]) < 1:
        raise RuntimeError("the memory check does not see a flipped bit: nothing was checked")


def _write(chunk: torch.Tensor, key: int, pattern: int, phase: int) -> None:
    if chunk.is_cuda:
        write_on_device(chunk, signed32(key), pattern, phase)
    else:
        chunk.copy_(torch.from_numpy(words(key, pattern, phase, 0, len(chunk)).view(np.int32)))


def _check(
    slot: torch.Tensor,
    chunk: torch.Tensor,
    key: int,
    pattern: int,
    phase: int,
    *,
    flipped: bool,
    invert: bool,
    down: bool,
) -> None:
    """Add to slot[0] how many words are not the pattern (its inverse if `flipped`); lower slot[1] to the first."""
    if chunk.is_cuda:
        check_on_device(slot, chunk, signed32(key), pattern, phase, flip=-int(flipped), invert=invert, down=down)
        return
    right = torch.from_numpy(words(key, pattern, phase, 0, len(chunk)).view(np.int32)) ^ -int(flipped)
    wrong = (chunk != right).nonzero()
    slot[0] += len(wrong)
    if len(wrong):
        slot[1] = min(int(slot[1]), int(wrong[0]))
    if invert:
        chunk.copy_(right ^ -1)


def _move(chunk: torch.Tensor) -> None:
    """Move every block to the other half and back, by the copies of the device."""
    half = len(chunk) // 2
    for _ in range(2):
        for first in range(0, half, MOVED_WORDS):
            low, high = (chunk[at + first : at + min(first + MOVED_WORDS, half)] for at in (0, half))
            kept = low.clone()
            low.copy_(high)
            high.copy_(kept)


def _elements(chunk: torch.Tensor, right: Words, *, start: int) -> Elements | None:
    """Compare words from `start` on, as rows of `COLUMNS`."""
    comparison = Comparison(COLUMNS)
    wrong = chunk[start : start + len(right)].cpu().view(-1, COLUMNS)
    comparison.add(wrong, torch.from_numpy(right.view(np.int32)).view(-1, COLUMNS), row=start // COLUMNS)
    return comparison.elements()


def _fingerprint(found: tuple[tuple[int, int], ...]) -> int:
    """Depends on what was wrong, not on how much memory there is: GPUs may have different amounts free."""
    wrong = [(number, *pair) for number, pair in enumerate(found) if pair[0]]
    return derive(0, TEST, *(one for triple in wrong for one in triple))
