"""`pulse`: all GPUs step together between full load and none, from 0.5 to 1000 times a second; every pulse is checked.

A step of the load is the hardest moment for the supply of a chip, and of a rack when all step at once. The GPUs share
a grid of beats on the host's monotonic clock (`burnin.workloads.beats`). In each pulse the first product, right on the
step, and the last are checksummed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from burnin.checksum import checksum, checksum_into
from burnin.inject import Injector, load_paused
from burnin.keys import MASK64, derive
from burnin.seed import fill_normal
from burnin.spec import Ballot, Case, Elements, Proof
from burnin.workloads import Context
from burnin.workloads.beats import Grid, percentile, worst_error
from burnin.workloads.launches import Stopwatch, injector_of, poison, strict_math, tally
from burnin.workloads.pauses import now_s, until
from burnin.workloads.plans import Plan, accumulator_of, arch_of_device, multiplier

HERTZ_CUDA = (0.5, 1.5, 5.0, 15.0, 50.0, 150.0, 500.0, 1000.0)
HERTZ_CPU = (40.0, 200.0, 1000.0)
SECONDS_CUDA = 6.0
"""At each frequency, or as long as the least number of pulses takes."""
PULSES_MAX = 10_000
EDGE_SLOW, EDGE_FAST, EDGE_CPU = 8192, 2048, 96
"""Of the square products, below and from `FAST_HERTZ` on: 1.4 ms and 26 µs of bf16 on an H200."""
FAST_HERTZ = 20.0
PRODUCTS_MIN, PRODUCTS_MAX, PRODUCTS_MAX_CPU = 2, 1 << 14, 8
"""In one high phase; GPUs that are computed on a CPU share it and show the path, not the load."""
TIMED = 8
"""Products by which the time of one is measured."""
IN_FLIGHT = 4
"""Pulses that may be queued on the device."""
DRAIN_EVERY_S, DRAIN_IN_S = 1.0, 0.01
"""A driver keeps about two seconds of power samples; they are fetched in a low phase that is long enough for it."""
SAMPLES_MAX = 4096
LOW, HIGH = 0.1, 0.9
"""Shares of the power samples below which a low and a high phase are read: the ends hold what lies between."""
CHECKED = ("first", "last")


class Pulse:
    """See the module; its cases are not exact."""

    test = "pulse"

    def __init__(self) -> None:
        self._injector: Injector | None = None

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """Return one case a dtype and frequency; see `burnin.workloads.Workload`."""
        return tuple(
            Case(
                test=self.test,
                name=_name(plan, hertz),
                dtype=plan.dtype,
                exact=False,
                rate_name=f"pulse_{plan.dtype}_flops_per_second",
            )
            for plan, hertz in _all(ctx)
        )

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Pulse at least `launches` times, all results of a pulse counting as one launch.

        Raises:
            RuntimeError: No pulse wrote its output.
            ValueError: There is no such case.
        """
        plan, hertz = next((one for one in _all(ctx) if _name(*one) == case.name), (None, 0.0))
        if plan is None:
            raise ValueError(f"{self.test} has no case {case.name!r} on backend {ctx.backend}")
        injector = self._injector = injector_of(ctx, self._injector)
        pulses = min(PULSES_MAX, max(launches, round(SECONDS_CUDA * hertz) if ctx.backend == "cuda" else 0))
        with strict_math(tf32=False):
            train = _Train(ctx, plan, seed, injector)
            done = train.run(hertz, pulses)
        fingerprints, _ = tally([derive(seed, *row) for row in done.rows])
        if {value for row in done.rows for value in row} <= set(done.blank):
            raise RuntimeError(f"none of {pulses} pulses wrote its output: nothing was computed")
        return Ballot(
            case=case.name,
            iteration=iteration,
            seed=seed,
            fingerprints=fingerprints,
            launches=pulses,
            bytes=pulses * sum(out.nbytes for out in train.outputs),
            flops=0,
            elapsed_s=done.elapsed_s,
            fired=done.fired,
            facts=done.facts,
        )

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """Raise ValueError: rounded sums depend on their order and have no golden."""
        raise ValueError(f"{case.test} {case.name} (seed {seed}, {ctx.backend}) is not exact and has no golden")

    def examine(
        self, ctx: Context, case: Case, *, seed: int, launches: int, right: str | None, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Return None: outputs are written over in the next pulse."""
        del ctx, case, seed, launches, right, tiles
        return None


def _all(ctx: Context) -> list[tuple[Plan, float]]:
    """Every product with every frequency."""
    if ctx.backend != "cuda":
        return [(_plan("bf16", EDGE_CPU, ctx), hertz) for hertz in HERTZ_CPU]
    dtypes = ("bf16", *arch_of_device(ctx.device).fp8[:1])
    return [
        (_plan(dtype, EDGE_FAST if hertz >= FAST_HERTZ else EDGE_SLOW, ctx), hertz)
        for dtype in dtypes
        for hertz in HERTZ_CUDA
    ]


def _plan(dtype: str, edge: int, ctx: Context) -> Plan:
    arch = arch_of_device(ctx.device)
    return Plan(dtype=dtype, path="library", m=edge, k=edge, n=edge, rounded=dtype == "bf16", arch=arch)


def _name(plan: Plan, hertz: float) -> str:
    return f"{plan.dtype} {hertz:g} Hz"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What a train of pulses gave."""

    rows: list[list[int]]
    """Of each pulse the checksums of its first and its last product."""
    blank: tuple[int, ...]
    """Those of outputs that nobody wrote."""
    fired: int
    elapsed_s: float
    """From the moment at which the first pulse could begin, low phases included."""
    facts: tuple[tuple[str, float], ...]


class _Train:
    """Pulses of one product on one device."""

    def __init__(self, ctx: Context, plan: Plan, seed: int, injector: Injector) -> None:
        self._ctx, self._seed, self._injector = ctx, derive(seed, Pulse.test, plan.name), injector
        a, bt = (torch.empty(plan.m, plan.k, dtype=plan.operand, device=ctx.device) for _ in range(2))
        fill_normal(a, derive(self._seed, "a"))
        fill_normal(bt, derive(self._seed, "b"))
        self._multiply: Callable[[torch.Tensor], None] = multiplier(plan, a, bt)
        self._accumulator = accumulator_of(plan, a, bt)
        self.outputs = tuple(torch.empty(plan.m, plan.n, dtype=plan.output, device=ctx.device) for _ in CHECKED)
        self._watts: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._drained_s = now_s()

    def run(self, hertz: float, pulses: int) -> _Done:
        """Pulse, `pulses` times."""
        ctx, period_s = self._ctx, 1.0 / hertz
        product_s = self._time_product()
        most = PRODUCTS_MAX if ctx.backend == "cuda" else PRODUCTS_MAX_CPU
        products = min(most, max(PRODUCTS_MIN, round(period_s / 2 / product_s)))
        slots = torch.zeros(pulses, len(CHECKED), dtype=torch.int64, device=ctx.device)
        for output in self.outputs:
            poison(output)
        blank = tuple(checksum(output, self._seed) for output in self.outputs)
        ctx.senses.power_samples()  # what came before is not asked for
        ctx.begin()
        begun_s = now_s()
        grid = Grid(start_s=now_s() if ctx.start_s is None else ctx.start_s, period_s=period_s)
        marks, beat, beats, fired = _Marks(ctx.device), -1, list[int](), 0
        for pulse in range(pulses):
            beat = grid.following(beat, now_s())
            ctx.senses.passed(period_s / 2, busy=False)
            self._wait(grid.moment_s(beat))
            load_paused()
            marks.mark()
            beats.append(beat)
            fired += self._pulse(products, slots[pulse])
            ctx.senses.passed(period_s / 2, busy=True)
            ctx.alive()
        rows = [[int(value) & MASK64 for value in row] for row in slots.tolist()]
        elapsed_s = now_s() - begun_s
        self._drain(force=True)
        watts = list(self._watts)
        power = {"power_low_watts": percentile(watts, LOW), "power_high_watts": percentile(watts, HIGH)}
        facts = {
            "frequency_hertz": hertz,
            "pulses": pulses,
            "products_per_pulse": products,
            "product_seconds": product_s,
            **{name: value for name, value in power.items() if value is not None},
            "period_error_max_ratio": worst_error(marks.intervals_s(), beats, period_s),
            "beats_missed": beats[-1] - beats[0] + 1 - pulses,
            "first_beat": beats[0],
        }
        return _Done(
            rows=rows,
            blank=blank,
            fired=fired,
            elapsed_s=elapsed_s,
            facts=tuple((name, float(value)) for name, value in facts.items()),
        )

    def _time_product(self) -> float:
        """Seconds of one product, the first ones left out: they load or compile kernels."""
        watch = Stopwatch(self._ctx.device)
        self._multiply(self.outputs[0])
        watch.start()
        for _ in range(TIMED):
            self._multiply(self.outputs[0])
        watch.stop()
        return max(watch.elapsed_s() / TIMED, 1e-7)

    def _pulse(self, products: int, slots: torch.Tensor) -> bool:
        """One high phase; whether the planted fault struck it."""
        first, last = self.outputs
        self._multiply(first)
        struck = self._hit(first, CHECKED[0])
        for _ in range(products - 1):
            self._multiply(last)
        struck |= self._hit(last, CHECKED[1])
        for at, output in enumerate(self.outputs):
            checksum_into(slots[at : at + 1], output, self._seed)
        return struck

    def _hit(self, output: torch.Tensor, op: str) -> bool:
        return self._injector.hit(output, self._accumulator, op=op)

    def _wait(self, moment_s: float) -> None:
        """The low phase."""
        if moment_s - now_s() > DRAIN_IN_S:
            self._drain()
        until(self._ctx, moment_s)

    def _drain(self, *, force: bool = False) -> None:
        if force or now_s() - self._drained_s > DRAIN_EVERY_S or self._ctx.backend != "cuda":
            self._watts.extend(self._ctx.senses.power_samples())
            self._drained_s = now_s()


@dataclass(slots=True)
class _Marks:
    """When pulses began: by events on a GPU, which tell when it began and not when it was asked to; else by a clock."""

    device: torch.device
    _open: deque[torch.cuda.Event] = field(default_factory=deque)
    _last_s: float | None = None
    _intervals_s: list[float] = field(default_factory=list)

    def mark(self) -> None:
        """A pulse begins; waits for one `IN_FLIGHT` pulses ago, so that the queue stays bounded."""
        if self.device.type != "cuda":
            moment_s = now_s()
            if self._last_s is not None:
                self._intervals_s.append(moment_s - self._last_s)
            self._last_s = moment_s
            return
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._open.append(event)
        if len(self._open) > IN_FLIGHT:
            self._close()

    def intervals_s(self) -> list[float]:
        """From each pulse to the next; waits for the last."""
        while len(self._open) > 1:
            self._close()
        return self._intervals_s

    def _close(self) -> None:
        first = self._open.popleft()
        self._open[0].synchronize()
        self._intervals_s.append(first.elapsed_time(self._open[0]) / 1e3)
