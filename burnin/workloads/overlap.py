"""`overlap`: products, attention, integers and copies side by side must give what each of them gives alone.

Units that share caches, memory, copy engines and power disturb each other only when they work at the same time. One
launch in four runs its lanes one after the other, the others run them at once: on a GPU each on a stream of its own, on
a CPU each in a thread of its own. All launches of a ballot must give one fingerprint, and the trace names the lane that
did not.
"""

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from burnin.keys import derive
from burnin.seed import fill_bits, fill_integers, fill_normal
from burnin.workloads import Context
from burnin.workloads.integers import computed
from burnin.workloads.recipes import Prepared, Recipe, Recipes, Tensors

ALONE_EVERY = 4
"""One launch in so many runs its lanes one after the other."""
MAGNITUDE = 16
"""Of the integers that are multiplied: K·a² stays below 2²⁴ up to K = 65,536, so that float32 sums are exact."""
COLUMNS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much each lane does; on a GPU all lanes take about as long as the product."""

    edge: int
    """Of the square product."""
    products: int
    """Products in one launch, each over the last; so with the copies."""
    words: int
    """32-bit words of a copy on the device, and of the integers."""
    host_words: int
    """Of a copy over the host link; they are summed up by the CPU."""
    attention: tuple[int, int, int, int]
    """(batch, heads, tokens, dim)."""
    copies: int


CUDA = Size(edge=4096, products=6, words=1 << 24, host_words=1 << 21, attention=(4, 16, 2048, 64), copies=8)
"""About 1.3 ms of products on an H200, as long as the copies over a PCIe 5 x16 link take."""
CPU = Size(edge=96, products=1, words=1 << 12, host_words=1 << 10, attention=(1, 2, 32, 16), copies=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Work that knows nothing of the others."""

    output: torch.Tensor
    launch: Callable[[], object]
    truth: Callable[[], torch.Tensor] | None = None
    """The right output, computed on the CPU; None where rounding decides."""


Lanes = Mapping[str, Lane]


class Overlap(Recipes):
    """See the module."""

    test = "overlap"

    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        """Lanes whose results are known, and lanes of floats; see `burnin.workloads.recipes`."""
        del ctx
        return (
            Recipe(name="exact lanes", dtype="bf16", exact=True, prepare=_prepare(exact_lanes)),
            Recipe(name="float lanes", dtype="bf16", exact=False, prepare=_prepare(float_lanes)),
        )


def _prepare(make: Callable[[Context, int], dict[str, Lane]]) -> Callable[[Context, int], Prepared]:
    def prepare(ctx: Context, seed: int) -> Prepared:
        lanes = make(ctx, derive(seed, Overlap.test))
        truths = {name: lane.truth for name, lane in lanes.items() if lane.truth is not None}

        def truth() -> Tensors:
            return {name: right() for name, right in truths.items()}

        return Prepared(
            outputs={name: lane.output for name, lane in lanes.items()},
            launch=alternating(ctx, lanes),
            truth=truth if len(truths) == len(lanes) else None,
        )

    return prepare


class Beside:
    """Runs lanes beside each other and whatever the caller does: on streams of their own, on a CPU in threads."""

    def __init__(self, device: torch.device, lanes: Lanes) -> None:
        """Nothing runs yet."""
        self._device = device
        self._lanes = lanes
        self._streams = {name: _stream(device) for name in lanes} if device.type == "cuda" else {}
        self._threads: ThreadPoolExecutor | None = None
        self._pending: list[Future[object]] = []

    def begin(self) -> None:
        """Launch every lane, on a GPU after what the caller's stream has been given."""
        if not self._streams:  # torch and numpy let go of the interpreter while they compute
            self._threads = ThreadPoolExecutor(max_workers=len(self._lanes))
            self._pending = [self._threads.submit(lane.launch) for lane in self._lanes.values()]
            return
        home = torch.cuda.current_stream(self._device)
        for name, lane in self._lanes.items():
            self._streams[name].wait_stream(home)
            with torch.cuda.stream(self._streams[name]):
                lane.launch()

    def join(self) -> None:
        """Wait for all lanes. Raises what one of them raised."""
        home = torch.cuda.current_stream(self._device) if self._streams else None
        for stream in self._streams.values():
            assert home is not None  # noqa: S101 - there are streams
            home.wait_stream(stream)
        if home is not None:  # the CPU sums up what was copied to its memory
            torch.cuda.synchronize(self._device)
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
            for done in self._pending:
                done.result()


def alternating(ctx: Context, lanes: Lanes) -> Callable[[], None]:
    """Return a launch that runs the lanes one after the other at its first two and then every `ALONE_EVERY`-th time.

    The first launch may be a warm-up that nobody looks at: what comes next is what the others are held against.
    """
    count, beside = itertools.count(), Beside(ctx.device, lanes)

    def launch() -> None:
        number = next(count)
        if number == 0 or number % ALONE_EVERY == 1:
            alone(ctx, lanes)
        else:
            beside.begin()
            beside.join()

    return launch


def alone(ctx: Context, lanes: Lanes) -> None:
    """Run the lanes one after the other."""
    for lane in lanes.values():
        lane.launch()
    if ctx.device.type == "cuda":
        torch.cuda.synchronize(ctx.device)


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def exact_lanes(ctx: Context, key: int) -> dict[str, Lane]:
    """A product of integers, integer units (of a CPU), copies on the device, down from the host and up to it."""
    size = CUDA if ctx.backend == "cuda" else CPU
    left, right = (torch.empty(size.edge, size.edge, dtype=torch.bfloat16, device=ctx.device) for _ in range(2))
    fill_integers(left, derive(key, "left"), MAGNITUDE)
    fill_integers(right, derive(key, "right"), MAGNITUDE)
    sums = torch.empty(size.edge, size.edge, dtype=torch.float32, device=ctx.device)

    def multiplied() -> torch.Tensor:
        # Integers whose sums stay below 2^24 are exact in float32 in any order, on the CPU too.
        return left.cpu().to(torch.float32) @ right.cpu().to(torch.float32).t()

    lanes = {"product": Lane(output=sums, launch=_times(size.products, _product, left, right, sums), truth=multiplied)}
    if ctx.device.type != "cuda":
        lanes["integers"] = _integers(ctx, size, key)
    return lanes | _copies(ctx, size, key)


def float_lanes(ctx: Context, key: int) -> dict[str, Lane]:
    """A product and attention on numbers that use every bit of their mantissas, beside the copies."""
    size = CUDA if ctx.backend == "cuda" else CPU
    left, right, rounded = (
        torch.empty(size.edge, size.edge, dtype=torch.bfloat16, device=ctx.device) for _ in range(3)
    )
    fill_normal(left, derive(key, "left"))
    fill_normal(right, derive(key, "right"))
    q, k, v = (torch.empty(size.attention, dtype=torch.bfloat16, device=ctx.device) for _ in range(3))
    for name, one in (("q", q), ("k", k), ("v", v)):
        fill_normal(one, derive(key, name))
    attended = torch.empty(size.attention, dtype=torch.bfloat16, device=ctx.device)

    def attend() -> None:
        attended.copy_(functional.scaled_dot_product_attention(q, k, v, is_causal=True))

    lanes = {
        "product": Lane(output=rounded, launch=_times(size.products, _product, left, right, rounded)),
        "attention": Lane(output=attended, launch=attend),
    }
    return lanes | _copies(ctx, size, key)


def _times(count: int, work: Callable[..., None], *operands: torch.Tensor) -> Callable[[], None]:
    def launch() -> None:
        for _ in range(count):
            work(*operands)

    return launch


def _product(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """Write left · rightᵀ, unrounded where the output is wider than the operands."""
    if out.dtype is left.dtype:
        torch.mm(left, right.t(), out=out)
    elif left.is_cuda:
        wide: Any = torch.mm  # a form of it that torch's stubs do not know
        wide(left, right.t(), out_dtype=out.dtype, out=out)
    else:
        torch.mm(left.to(out.dtype), right.to(out.dtype).t(), out=out)


def _integers(ctx: Context, size: Size, key: int) -> Lane:
    """Rounds of SHA-256 (`burnin.workloads.integers`)."""
    words = _random(ctx.device, size.words, derive(key, "integers"))
    digests = torch.empty(size.words // COLUMNS, COLUMNS, dtype=torch.int32, device=ctx.device)

    def right() -> torch.Tensor:
        return computed(words.view(-1))["sha"].view(-1, COLUMNS)

    return Lane(output=digests, launch=lambda: digests.copy_(right()), truth=right)


def _copies(ctx: Context, size: Size, key: int) -> dict[str, Lane]:
    """On the device, and on a GPU in both directions over the host link, by the copy engines."""
    source = _random(ctx.device, size.words, derive(key, "device"))
    lanes = {"device copy": _copy(source, torch.empty_like(source), source.cpu, size.copies)}
    if ctx.device.type == "cuda":
        host = _random(torch.device("cpu"), size.host_words, derive(key, "host")).pin_memory()
        down = torch.empty_like(host, device=ctx.device)
        lanes["copy from host"] = _copy(host, down, lambda: host, size.copies)
        there = _random(ctx.device, size.host_words, derive(key, "there"))
        up = torch.empty(there.shape, dtype=there.dtype, pin_memory=True)
        lanes["copy to host"] = _copy(there, up, there.cpu, size.copies)
    return lanes


def _copy(source: torch.Tensor, target: torch.Tensor, truth: Callable[[], torch.Tensor], copies: int) -> Lane:
    def copy() -> None:
        target.copy_(source, non_blocking=True)

    return Lane(output=target, launch=_times(copies, copy), truth=truth)


def _random(device: torch.device, count: int, key: int) -> torch.Tensor:
    made = torch.empty(count // COLUMNS, COLUMNS, dtype=torch.int32, device=device)
    fill_bits(made, key)
    return made
