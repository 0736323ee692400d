"""What all workloads share: poisoned outputs, launches with one host synchronisation at the end, and their tally."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from burnin.checksum import length_term, text, tile_count, tile_sums, tile_sums_into
from burnin.inject import Injector, stale_byte
from burnin.keys import MASK64
from burnin.workloads import Context

IN_FLIGHT = 16
"""Launches that may be queued on the device: enough to hide the host, few enough that a hang is noticed in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What a series of launches on the same inputs gave."""

    fingerprints: tuple[tuple[str, int], ...]
    odd: int
    """Number of the last launch whose fingerprint differs from the first's; 0 if none does."""
    tiles: tuple[int, ...]
    """Tile sums of launch `odd`, modulo 2**64."""
    elapsed_s: float
    fired: int


def poison(output: torch.Tensor) -> None:
    """Fill a contiguous output with what no right result consists of: NaN, or integers beyond any sum."""
    output.view(-1).view(torch.uint8).fill_(stale_byte(output.dtype))


def tally(values: list[int]) -> tuple[tuple[tuple[str, int], ...], int]:
    """Return (checksum, count) in order of first appearance, and the last launch that differs from the first (or 0)."""
    counts = Counter(values)
    odd = max((number for number, value in enumerate(values) if value != values[0]), default=0)
    return tuple((text(value), count) for value, count in counts.items()), odd


class Stopwatch:
    """Adds up the time between `start` and `stop`: CUDA events on a GPU (read at the end), else a process clock."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._sum_s = 0.0
        self._began_s = 0.0

    def start(self) -> None:
        """Begin an interval."""
        if self._cuda:
            pair = (_event(timing=True), _event(timing=True))
            pair[0].record()
            self._events.append(pair)
        else:
            self._began_s = time.perf_counter()

    def stop(self) -> None:
        """End the interval; waits for a launch `IN_FLIGHT` intervals ago, so that the queue stays bounded."""
        if not self._cuda:
            self._sum_s += time.perf_counter() - self._began_s
            return
        self._events[-1][1].record()
        if len(self._events) > IN_FLIGHT:
            begin, end = self._events.pop(0)
            end.synchronize()
            self._sum_s += begin.elapsed_time(end) / 1e3

    def elapsed_s(self) -> float:
        """Return the sum of all intervals in seconds; waits for the last."""
        for begin, end in self._events:
            end.synchronize()
            self._sum_s += begin.elapsed_time(end) / 1e3
        self._events.clear()
        return self._sum_s


def _event(*, timing: bool = False) -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=timing)  # type: ignore[no-untyped-call]


def _stream(device: torch.device, *, priority: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]


class Lanes:
    """Where launches and checksums run: on a GPU side by side, the checksum of one output beside the next launch.

    A product leaves part of the chip idle in its last wave; a checksum on a stream of lower priority fills it. On an
    H200 a bf16 8192³ product with every output checksummed then runs at 0.972 of the plain product's rate instead of
    0.965 (tests/bench/bench_gemm.py). Elsewhere both run one after the other.

    Keep one for all series on a device: the library allocates a workspace of tens of MB for every stream that it has
    not seen before, in the middle of the series.

    Args:
        device: where both run.
        outputs: how many outputs are written in turn on a GPU, at least 2; elsewhere it is one.
    """

    def __init__(self, device: torch.device, *, outputs: int = 2) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self.outputs = outputs if self._cuda else 1
        if self._cuda:
            self._main = _stream(device, priority=-1)
            self._side = _stream(device, priority=0)
            self._summed = [_event() for _ in range(self.outputs)]

    def begin(self) -> None:
        """Start a series: both wait for what the caller's stream was given so far."""
        if self._cuda:
            home = torch.cuda.current_stream(self._device)
            self._main.wait_stream(home)
            self._side.wait_stream(home)

    @contextmanager
    def launching(self, number: int) -> Iterator[None]:
        """Launch number `number` of the series goes here, after its output was summed up for the last time."""
        if not self._cuda:
            yield
            return
        if number >= self.outputs:
            self._main.wait_event(self._summed[number % self.outputs])
        with torch.cuda.stream(self._main):
            yield
        self._side.wait_stream(self._main)

    @contextmanager
    def summing(self, number: int) -> Iterator[None]:
        """The checksum of launch `number` goes here."""
        if not self._cuda:
            yield
            return
        with torch.cuda.stream(self._side):
            yield
            self._summed[number % self.outputs].record()

    def join(self) -> None:
        """End the series: the caller's stream waits for both."""
        if self._cuda:
            home = torch.cuda.current_stream(self._device)
            home.wait_stream(self._main)
            home.wait_stream(self._side)


def launch_all(
    ctx: Context,
    launch: Callable[[torch.Tensor], None],
    strike: Callable[[torch.Tensor], bool],
    output: torch.Tensor,
    *,
    launches: int,
    seed: int,
    lanes: Lanes | None = None,
) -> Launched:
    """Launch, let the fault strike, and sum up the output by tiles, `launches` times; the host waits once, at the end.

    Args:
        ctx: where this runs.
        launch: computes an output once, in place.
        strike: hands an output to the injector and says whether that changed it.
        output: contiguous matrix; it and its twins, on a GPU, are poisoned here before their first launch.
        launches: at least 1.
        seed: of the checksum.
        lanes: those of the last series on this device; None makes new ones.

    Raises:
        RuntimeError: no launch wrote anything: every output is as it was poisoned. On all GPUs alike, no vote would see
            it.
    """
    lanes = lanes or Lanes(output.device)
    watch = Stopwatch(output.device)
    poison(output)
    blank = tile_sums(output, seed).sum()
    sums = torch.zeros(launches, tile_count(output), dtype=torch.int64, device=output.device)
    outputs = [output, *(torch.empty_like(output) for _ in range(lanes.outputs - 1))]
    fired = 0
    lanes.begin()
    for number in range(launches):
        out = outputs[number % len(outputs)]
        with lanes.launching(number):
            if 0 < number < len(outputs):
                poison(out)
            watch.start()
            launch(out)
            watch.stop()
            fired += strike(out)
        with lanes.summing(number):
            tile_sums_into(sums[number], out, seed)
        ctx.alive()
    lanes.join()
    # One copy to the host for the series, one more for the tiles: the device idles while the host works on them.
    *totals, untouched = torch.cat([sums.sum(dim=1), blank.view(1)]).tolist()
    if all(value == untouched for value in totals):
        raise RuntimeError(f"none of {launches} launches wrote its output: nothing was computed")
    length = length_term(output.nbytes, seed)
    fingerprints, odd = tally([(value + length) & MASK64 for value in totals])
    tiles = tuple(sums[odd].cpu().numpy().view(np.uint64).tolist())
    return Launched(fingerprints=fingerprints, odd=odd, tiles=tiles, elapsed_s=watch.elapsed_s(), fired=fired)


def injector_of(ctx: Context, last: Injector | None) -> Injector:
    """Return the injector for this call: the last one, or a new one that counts on from it if the fault changed."""
    if last is not None and last.inject == ctx.inject:
        return last
    return Injector(ctx.inject, launches=last.launches if last else 0)


@contextmanager
def strict_math(*, tf32: bool) -> Iterator[None]:
    """Set what decides about the bits of a library product, and put the old settings back.

    Args:
        tf32: whether float32 products may use the tf32 matrix units. Reduced-precision reductions are off either way.
    """
    matmul = torch.backends.cuda.matmul
    names = ("allow_tf32", "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
    old = [getattr(matmul, name) for name in names]
    try:
        for name, value in zip(names, (tf32, False, False), strict=True):
            setattr(matmul, name, value)
        yield
    finally:
        for name, value in zip(names, old, strict=True):
            setattr(matmul, name, value)
