"""The load in miniature on a CPU: shows the whole path on a machine without a GPU; says nothing about power."""

import time
from typing import Any

import torch

from burnin.load.drive import Measured
from burnin.load.plan import Low, Point

EDGE = 256
"""Of the square fp32 products: about a millisecond on one core."""
FLOPS = 2.0 * EDGE**3


class CpuMachine:
    """Products on the host's CPU; the low phase is a real sleep or a pass over memory."""

    def __init__(self, *, seed: int) -> None:
        """Make the operands."""
        generator = torch.Generator().manual_seed(seed)
        self._a, self._b = (torch.randn(EDGE, EDGE, generator=generator) for _ in range(2))
        self._vector = torch.randn(1 << 18, generator=generator)
        self._product_s = self._calibrate()

    def _calibrate(self) -> float:
        torch.mm(self._a, self._b)
        begin_s = time.perf_counter()
        for _ in range(8):
            torch.mm(self._a, self._b)
        return (time.perf_counter() - begin_s) / 8

    def settings(self) -> dict[str, Any]:
        """A CPU's are not read."""
        return {}

    def unable(self, low: Low) -> str:
        """A single CPU has nobody to talk to."""
        return "a collective needs two GPUs" if low == "collective" else ""

    def work(self, point: Point) -> str:
        """All bursts are made of the same."""
        del point
        return f"fp32 {EDGE}"

    def measure(self, point: Point, seconds: float) -> Measured:
        """Load for about so long."""
        products = max(1, round(point.kernel_s / self._product_s))
        busy_s, bursts = 0.0, 0
        begin_s = time.perf_counter()
        while bursts == 0 or time.perf_counter() - begin_s < seconds:
            burst_s = time.perf_counter()
            for _ in range(products):
                torch.mm(self._a, self._b)
            end_s = time.perf_counter()
            busy_s += end_s - burst_s
            bursts += 1
            self._rest(point.low, (end_s - burst_s) * (1.0 - point.duty) / point.duty)
        total_s = time.perf_counter() - begin_s
        return Measured(
            rate=FLOPS * products * bursts / busy_s, duty=busy_s / total_s, bursts=bursts, work=self.work(point)
        )

    def _rest(self, low: Low, seconds: float) -> None:
        if low == "sleep":
            time.sleep(seconds)  # noqa: TID251 - the load is made of real time
            return
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            _ = self._vector * 1.0001 if low == "vector" else self._vector.clone()

    def energy(self, seconds: float) -> dict[str, float] | None:
        """A CPU's counter is not read."""
        del seconds
        return None
