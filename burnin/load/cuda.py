"""The load on a GPU: bursts of bf16 products of full-mantissa random data, a low phase between, on one stream.

A burst is as many square products as fill its length at the sustained clock. The low phase `sleep` is a kernel that
only waits; its cycles are calibrated for each point, as the clock in it is the point's own. Times are CUDA events.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from burnin.load.drive import Measured
from burnin.load.plan import Low, Point
from burnin.load.sensors import Sensors, integrate, watching

SMALL_EDGE, EDGE = 2048, 4096
"""Of the square products: 26 µs and 0.2 ms on an H200."""
SMALL_BELOW_S = 150e-6
"""Bursts shorter than this are made of small products."""
EVENTS_MAX = 2048
"""About how many bursts of a measurement have events of their own; the others run between them."""
CLOCKS = 16
"""Readings of the clock in one measurement."""
VECTOR_WORDS = 1 << 26


class CudaMachine:
    """One GPU through torch (CUDA or ROCm)."""

    def __init__(self, *, gpu: str, ordinal: int, seed: int) -> None:
        """Make the operands and measure one product of each size."""
        self._device = torch.device("cuda", ordinal)
        torch.cuda.set_device(self._device)
        self._sensors = Sensors(gpu)
        generator = torch.Generator(self._device).manual_seed(seed)

        def square(edge: int) -> torch.Tensor:
            return torch.randn(edge, edge, generator=generator, device=self._device, dtype=torch.bfloat16)

        self._operands = {edge: (square(edge), square(edge)) for edge in (SMALL_EDGE, EDGE)}
        self._out = {edge: torch.empty_like(pair[0]) for edge, pair in self._operands.items()}
        self._vector = torch.randn(VECTOR_WORDS, generator=generator, device=self._device)
        self._other = torch.empty_like(self._vector)
        self._product_s = {edge: self._time_product(edge) for edge in self._operands}

    def settings(self) -> dict[str, Any]:
        """Every limit, clock and mode as it is now."""
        return self._sensors.settings()

    def driver(self) -> str | None:
        """The driver's version."""
        return self._sensors.driver()

    def unable(self, low: Low) -> str:
        """One GPU has nobody to talk to."""
        return "a collective needs a group of GPUs; this load drives one" if low == "collective" else ""

    def _product(self, edge: int) -> None:
        left, right = self._operands[edge]
        torch.mm(left, right, out=self._out[edge])

    def _time_product(self, edge: int) -> float:
        def fifty() -> None:
            for _ in range(50):
                self._product(edge)

        fifty()
        return self._timed(fifty) / 50

    def _timed(self, work: Callable[[], object]) -> float:
        """Seconds of the GPU for some launches."""
        begin, end = _event(), _event()
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def work(self, point: Point) -> str:
        """Short bursts need small products, whose launches weigh more."""
        return f"bf16 {SMALL_EDGE if point.kernel_s < SMALL_BELOW_S else EDGE}"

    def measure(self, point: Point, seconds: float) -> Measured:
        """Load for about so long, after a short stretch that settles it and calibrates the low phase."""
        edge = SMALL_EDGE if point.kernel_s < SMALL_BELOW_S else EDGE
        products = max(1, round(point.kernel_s / self._product_s[edge]))
        burst_s = products * self._product_s[edge]
        low_s = burst_s * (1.0 - point.duty) / point.duty
        cycle = _Cycle(low=point.low, edge=edge, products=products, amount=0)
        cycle = self._calibrate(cycle, point.duty, burst_s, low_s, settle_s=max(0.1 * seconds, 0.2))
        periods = max(2, round(seconds / (burst_s + low_s)))
        with watching(self._sensors) as samples:
            busy_s, clocks, total_s = self._run(cycle, periods)
        watts = [w for _, w in samples]
        return Measured(
            rate=2.0 * edge**3 * products / busy_s,
            duty=busy_s * periods / total_s,
            bursts=periods,
            work=self.work(point),
            power_watts=sum(watts) / len(watts) if watts else None,
            power_max_watts=max(watts) if watts else None,
            clock_hertz=sum(clocks) / len(clocks) if clocks else None,
            temperature_celsius=self._sensors.temperature_celsius(),
            limited=self._sensors.limited(),
        )

    def _run(self, cycle: "_Cycle", periods: int) -> tuple[float, list[float], float]:
        """Seconds of a burst (mean of those with events), clocks read beside it (hertz), seconds of everything."""
        marks, clocks = [], []
        begin, end = _event(), _event()
        begin.record()
        every, sense = max(1, periods // EVENTS_MAX), max(1, periods // CLOCKS)
        for period in range(periods):
            if period % every == 0:
                marks.append((_event(), _event()))
                marks[-1][0].record()
            for _ in range(cycle.products):
                self._product(cycle.edge)
            if period % every == 0:
                marks[-1][1].record()
            self._rest(cycle)
            if period % sense == sense - 1 and (clock := self._sensors.clock_hertz()) is not None:
                clocks.append(clock)
        end.record()
        end.synchronize()
        busy_s = sum(first.elapsed_time(last) for first, last in marks) / 1e3 / len(marks)
        return busy_s, clocks, float(begin.elapsed_time(end)) / 1e3

    def _calibrate(self, cycle: "_Cycle", duty: float, burst_s: float, low_s: float, *, settle_s: float) -> "_Cycle":
        """How much low phase makes `low_s` under this very load: cycles, or passes over the vector."""
        if low_s <= 0.0:
            self._run(cycle, max(2, round(settle_s / burst_s)))
            return cycle
        cycle = replace(cycle, amount=max(1, round(low_s * 1.5e9)) if cycle.low == "sleep" else 1)
        for _ in range(2):
            periods = max(2, round(settle_s / 2 / (burst_s + low_s)))
            busy_s, _, total_s = self._run(cycle, periods)
            rest_s = total_s / periods - busy_s
            if rest_s > 0.0:
                wanted_s = busy_s * (1.0 - duty) / duty
                cycle = replace(cycle, amount=max(1, round(cycle.amount * wanted_s / rest_s)))
        return cycle

    def _rest(self, cycle: "_Cycle") -> None:
        if cycle.amount <= 0:
            return
        if cycle.low == "sleep":
            sleep: Any = torch.cuda._sleep  # noqa: SLF001 - torch's only kernel that waits; not typed
            sleep(cycle.amount)
            return
        for _ in range(cycle.amount):
            if cycle.low == "vector":
                torch.mul(self._vector, 1.0001, out=self._other)
            else:
                self._other.copy_(self._vector)

    def energy(self, seconds: float) -> dict[str, float] | None:
        """Hold the energy counter against the integrated power samples over a half-duty load. Joules, seconds."""
        half = _Cycle(low="sleep", edge=EDGE, products=50, amount=15_000_000)
        self._sensors.ring()
        start = self._sensors.energy_joules()
        if start is None:
            return None
        samples: list[tuple[float, float]] = []
        elapsed_s = 0.0
        while elapsed_s < seconds:
            elapsed_s += self._timed(lambda: self._run(half, 50))
            samples += self._sensors.ring()
        end = self._sensors.energy_joules()
        if end is None or len(samples) < 2:  # noqa: PLR2004 - an integral needs two ends
            return None
        span_s = samples[-1][0] - samples[0][0]
        integrated = integrate(samples) * (elapsed_s / span_s)
        counted = {"counter_joules": end - start, "integrated_joules": integrated}
        return {"seconds": elapsed_s, "span_seconds": span_s, "samples": len(samples), **counted}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cycle:
    """One period, as launched."""

    low: Low
    edge: int
    products: int
    amount: int
    """Of the low phase: cycles of the waiting kernel, or passes; 0: none."""


def _event() -> Any:
    event: Any = torch.cuda.Event  # its constructor is not typed
    return event(enable_timing=True)
