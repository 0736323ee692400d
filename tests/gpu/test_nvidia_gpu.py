"""On a real NVIDIA GPU: the helper reads NVML, in base units, cheaply."""

import asyncio
import time
from pathlib import Path

import pytest

from fleetd.devices.config import DevicesConfig
from fleetd.devices.helper import HelperDevices
from fleetd.model.ids import GpuId
from fleetd.model.telemetry import METRICS, GpuSample

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="needs an NVIDIA GPU"),
]

SAMPLES = 100


class Wall:
    """Real time; `fleetd.system` has it too, but wants more than the test machine has installed."""

    def wall_s(self) -> float:
        return time.time()

    def elapsed_s(self) -> float:
        return time.monotonic()

    async def sleep_s(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100.0


def rss_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().split("\n")
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


async def read_in_full() -> GpuSample:
    """The first GPU's readings after two rounds of the expensive ones (GPM tells what lies between two)."""
    devices = HelperDevices(vendor="nvidia", clock=Wall(), config=DevicesConfig(slow_reading_interval_seconds=0.1))
    inventory = await devices.inventory()
    assert all(gpu.gpu.startswith("GPU-") and gpu.pci_address and gpu.driver_version for gpu in inventory)
    for _ in range(3):
        (sample, *_) = await devices.sample()
        await asyncio.sleep(0.5)  # the expensive readings have their turn, and the helper its rest
    assert devices.troubles == {}
    assert await devices.close() == ""
    return sample


async def cost_of_quick_readings() -> tuple[int, float, float]:
    """KiB of the helper's RSS; seconds and CPU seconds of one GPU's reading without the expensive ones."""
    devices = HelperDevices(vendor="nvidia", clock=Wall(), config=DevicesConfig(slow_reading_interval_seconds=1e6))
    gpus = len(await devices.inventory())
    for _ in range(2):
        await devices.sample()  # the first GPU's one turn of the expensive readings
        await asyncio.sleep(0.5)
    (pid,) = devices.helpers
    rss, cpu_before_s, took_s, last_at_s, fresh = rss_kib(pid), cpu_s(pid), 0.0, 0.0, 0
    while fresh < SAMPLES:
        began_s = time.monotonic()
        (sample, *_) = await devices.sample()
        if sample.at_s != last_at_s:  # else the one before stands: a driver is not asked all of the time
            took_s, last_at_s, fresh = took_s + time.monotonic() - began_s, sample.at_s, fresh + 1
        await asyncio.sleep(0.05)
    cpu_used_s = cpu_s(pid) - cpu_before_s
    assert await devices.close() == ""
    return rss, took_s / SAMPLES / gpus, cpu_used_s / SAMPLES / gpus


def test_readings_are_plausible_and_cheap() -> None:
    sample = asyncio.run(read_in_full())
    helper_rss_kib, per_sample_s, helper_cpu_s = asyncio.run(cost_of_quick_readings())
    missing = [metric.name for metric in METRICS if getattr(sample, metric.name) is None]
    print(f"{sample}\nmissing: {missing}\nhelper RSS {helper_rss_kib} KiB, one GPU {1e3 * per_sample_s:.2f} ms")  # noqa: T201
    print(f"helper CPU {1e3 * helper_cpu_s:.2f} ms a GPU")  # noqa: T201
    assert sample.power_watts is not None
    assert 20.0 < sample.power_watts < 1500.0
    assert sample.power_limit_watts is not None
    assert 100.0 < sample.power_limit_watts < 2000.0
    assert sample.temperature_celsius is not None
    assert 10.0 < sample.temperature_celsius < 100.0
    assert sample.sm_clock_hertz is not None
    assert 1e8 < sample.sm_clock_hertz < 4e9
    assert sample.memory_total_bytes is not None
    assert sample.memory_total_bytes > 8 * 2**30
    assert sample.energy_joules_total is None or sample.energy_joules_total > 0.0
    assert per_sample_s < 0.02
    assert helper_rss_kib < 48 * 1024  # 18 MiB of it are NVML's


async def side_by_side() -> tuple[float, int]:
    """Seconds that a fresh helper for each GPU takes, all at once, as after a hang; and how many answered."""
    devices = HelperDevices(vendor="nvidia", clock=Wall(), config=DevicesConfig())
    gpus = [entry.gpu for entry in await devices.inventory()]
    await devices.sample()
    samples: dict[GpuId, GpuSample] = {}
    troubles: dict[GpuId, str] = {}
    began_s = time.monotonic()
    await devices._side_by_side(gpus, samples, troubles)
    took_s = time.monotonic() - began_s
    assert troubles == {}
    assert set(samples) == set(gpus)
    working = devices.helpers
    await devices._look_anew()
    assert devices.helpers == working, "the same GPUs are there: the fresh helper has ended again"
    assert await devices.close() == ""
    return took_s, len(gpus)


def test_after_a_hang_the_others_are_found_by_their_place_in_time() -> None:
    took_s, gpus = asyncio.run(side_by_side())
    print(f"{gpus} GPUs side by side: {took_s:.2f} s")  # noqa: T201
    assert took_s < 5.0, "with the deadline of the call that hung, and a second of the interval, below 8 s"
