"""S37: what the agent costs does not grow with what a GPU is divided into, nor with who asks for the metrics."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from prometheus_client.metrics_core import Metric

from fleetd.exporter.native import AgentCollector
from fleetd.exporter.page import Page
from fleetd.model.telemetry import GpuSample
from tests.devices.nvidia_bench import bench
from tests.exporter.exporter_host import STATUS


def test_s37_calls_and_series_do_not_grow_with_mig_slices_and_their_processes(tmp_path: Path) -> None:
    """Seven slices with two processes each: calls to the driver, and numbers of the sample, as with none."""

    async def case(folder: Path, processes: int) -> tuple[Counter[str], int]:
        async with bench(folder, gpus=1) as host:
            host.tell("*", Processes=processes)
            await host.devices.sample()
            before = Counter(host.lines(".calls"))
            (sample,) = await host.devices.sample()
            return Counter(host.lines(".calls")) - before, numbers(sample)

    folders = [tmp_path / "whole", tmp_path / "sliced"]
    for folder in folders:
        folder.mkdir()
    whole, sliced = (asyncio.run(case(folder, held_by)) for folder, held_by in zip(folders, (1, 14), strict=True))
    assert whole == sliced
    assert not [call for call in whole[0] if "Mig" in call]
    assert whole[0].total() < 60, "a round of one GPU"


def numbers(sample: GpuSample) -> int:
    """How many samples of Prometheus it makes."""
    page = Page([AgentCollector(lambda: replace(STATUS, samples=(sample,)))]).text()
    return sum(line.startswith("fleetd_gpu_") for line in page.splitlines())


class Counted:
    """A collector that counts how often its families are made."""

    def __init__(self) -> None:
        self.inner = AgentCollector(lambda: STATUS)
        self.made: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        families = list(self.inner.collect())
        self.made += [family for family in families if not any(family is known for known in self.made)]
        return families


def test_s37_a_hundred_scrapes_of_one_round_make_the_readings_once() -> None:
    counted = Counted()
    page = Page([counted])
    for _ in range(100):
        page.text()
    readings = [family for family in counted.made if family.name.startswith("fleetd_gpu_power")]
    assert len(readings) == len({family.name for family in readings}) > 3
