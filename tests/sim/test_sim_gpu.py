"""Simulated GPUs: named as the burn-in names them, seeded, plausible."""

import asyncio
from itertools import pairwise

from fleetd.model.ids import HostName
from fleetd.model.telemetry import METRICS, GpuSample
from fleetd.sim.gpu import SimDevices
from tests.agent.fakes_agent import FakeClock


def readings(*, seed: int, host: str = "h1", count: int = 200) -> list[tuple[GpuSample, ...]]:
    async def case() -> list[tuple[GpuSample, ...]]:
        clock = FakeClock()
        devices = SimDevices(host=HostName(host), gpus=8, seed=seed, clock=clock)
        out = []
        for _ in range(count):
            out.append(await devices.sample())
            clock.now_s += 1.0
        await devices.close()
        return out

    return asyncio.run(case())


def test_names_and_order() -> None:
    async def case() -> None:
        devices = SimDevices(host=HostName("h1"), gpus=11, seed=0, clock=FakeClock())
        inventory = await devices.inventory()
        assert [gpu.gpu for gpu in inventory][:2] == ["SIM-h1-00", "SIM-h1-01"]
        assert (inventory[10].gpu, inventory[10].index, inventory[10].sku) == ("SIM-h1-10", 10, "simulated")
        assert [sample.gpu for sample in await devices.sample()] == [gpu.gpu for gpu in inventory]
        assert devices.troubles == {}

    asyncio.run(case())


def test_the_same_seed_reads_the_same_and_another_one_does_not() -> None:
    assert readings(seed=1) == readings(seed=1)
    assert readings(seed=1) != readings(seed=2)


def test_readings_wander_slowly_and_stay_plausible() -> None:
    history = readings(seed=3, count=2000)
    for before, after in pairwise(history):
        for old, new in zip(before, after, strict=True):
            assert old.power_watts is not None
            assert new.power_watts is not None
            assert abs(new.power_watts - old.power_watts) < 50.0
            assert 450.0 < new.power_watts <= 700.0
            assert new.temperature_celsius is not None
            assert 40.0 < new.temperature_celsius < 80.0
            assert new.sm_clock_hertz is not None
            assert 1.2e9 < new.sm_clock_hertz < 1.9e9
    assert len({sample[0].power_watts for sample in history}) > 1000


def test_energy_is_power_over_time_and_what_is_simulated_is_in_the_catalogue() -> None:
    history = readings(seed=4)
    first, last = history[0][0], history[-1][0]
    assert first.energy_joules_total == 0.0
    assert last.energy_joules_total is not None
    expected = sum(sample[0].power_watts or 0.0 for sample in history[1:])
    assert abs(last.energy_joules_total - expected) < 1e-6 * expected
    simulated = [metric.name for metric in METRICS if getattr(last, metric.name) is not None]
    assert len(simulated) >= 16, f"only {simulated} are left"
