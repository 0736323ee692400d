"""A short window of a few readings of each GPU, in bounded memory: what a host's page draws.

Memory: `POINTS` readings of four metrics are 4 bytes each, 960 bytes a GPU, and 8 bytes a reading and host for the
times: with names about 9 KiB for a host with eight GPUs, 45 MiB for 40,000 GPUs. Long history is Prometheus's.
"""

import math
from array import array
from collections.abc import Sequence

from fleetd.model.ids import GpuId, HostName
from fleetd.model.telemetry import Vitals
from fleetd.ports.view import WINDOW_METRICS, Window

POINTS = 60
"""Readings kept; ten minutes of agents that send every 10 s."""
GPUS_MAX = 64
"""GPUs of one host that are kept; a host has at most 16 today. The first ones, in the order in which they are sent."""

_EMPTY = Window(at_s=(), series={})


class _HostWindow:
    """Rings of one host. A row is one telemetry message; a GPU that is not in it was not read."""

    __slots__ = ("at_s", "gpus", "rows", "values")

    def __init__(self, gpus: tuple[GpuId, ...]) -> None:
        self.gpus = gpus
        self.rows = 0
        self.at_s = array("d", [0.0]) * POINTS
        self.values = array("f", [math.nan]) * (POINTS * len(gpus) * len(WINDOW_METRICS))

    def add(self, samples: Sequence[Vitals]) -> None:
        row = self.rows % POINTS
        self.rows += 1
        self.at_s[row] = max(sample.at_s for sample in samples)
        width = len(WINDOW_METRICS)
        start = row * len(self.gpus) * width
        by_gpu = {sample.gpu: sample for sample in samples}
        for place, gpu in enumerate(self.gpus):
            sample = by_gpu.get(gpu)
            for number, metric in enumerate(WINDOW_METRICS):
                value = None if sample is None else getattr(sample, metric)
                self.values[start + place * width + number] = math.nan if value is None else value

    def read(self) -> Window:
        rows = [row % POINTS for row in range(max(0, self.rows - POINTS), self.rows)]
        width, stride = len(WINDOW_METRICS), len(self.gpus) * len(WINDOW_METRICS)
        series = {
            gpu: {
                metric: [_number(self.values[row * stride + place * width + number]) for row in rows]
                for number, metric in enumerate(WINDOW_METRICS)
            }
            for place, gpu in enumerate(self.gpus)
        }
        return Window(at_s=tuple(self.at_s[row] for row in rows), series=series)


class Windows:
    """The windows of all hosts; bounded by the number of hosts, as the latest samples are."""

    def __init__(self) -> None:
        self._hosts: dict[HostName, _HostWindow] = {}

    def add(self, host: HostName, samples: Sequence[Vitals]) -> None:
        """Take a host's readings. With other GPUs than before its window begins anew."""
        if not samples:
            return
        kept = self._hosts.get(host)
        gpus = tuple(sample.gpu for sample in samples[:GPUS_MAX])
        if kept is None or not set(gpus) <= set(kept.gpus):
            kept = self._hosts[host] = _HostWindow(gpus)
        kept.add(samples)

    def of(self, host: HostName) -> Window:
        """The window of a host; empty when it has sent nothing."""
        kept = self._hosts.get(host)
        return _EMPTY if kept is None else kept.read()


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
