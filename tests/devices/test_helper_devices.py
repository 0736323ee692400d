"""The nvidia backend with its real helper process, over a binding that hangs, lies, refuses and dies as it is told."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fleetd.agent.sampler import Sampler, SamplerConfig
from fleetd.devices.config import DevicesConfig
from fleetd.devices.helper import HelperDevices
from fleetd.model.finding import DeviceFault
from fleetd.ports import DeviceError, DriverMissing
from fleetd.system import RealClock
from tests.agent.fakes_agent import BOOT, HOST, FakeClock, FakeSpool

FAKE = Path(__file__).with_name("fake_pynvml.py")
CONFIG = DevicesConfig(
    call_deadline_seconds=0.4, open_deadline_seconds=20.0, reopen_deadline_seconds=20.0, restart_max_seconds=8.0
)


class Bench:
    """A host with simulated NVML and the devices under test."""

    def __init__(self, folder: Path, config: DevicesConfig, gpus: int) -> None:
        (folder / "pynvml.py").write_text(FAKE.read_text())
        self.file = folder / "plan.json"
        self.plan: dict[str, Any] = {"gpus": {f"GPU-{i}": {} for i in range(gpus)}}
        self.save()
        self.clock = FakeClock()
        environ = {**os.environ, "PYTHONPATH": str(folder), "FAKE_NVML": str(self.file)}
        self.devices = HelperDevices(vendor="nvidia", clock=self.clock, config=config, environ=environ)

    def save(self) -> None:
        self.file.write_text(json.dumps(self.plan))

    def tell(self, index: int, **plan: Any) -> None:
        self.plan["gpus"][f"GPU-{index}"] = plan
        self.save()

    def lines(self, suffix: str) -> list[str]:
        file = self.file.with_suffix(suffix)
        return file.read_text().splitlines() if file.exists() else []

    async def answering(self) -> list[str]:
        return [sample.gpu for sample in await self.devices.sample()]


@asynccontextmanager
async def bench(folder: Path, config: DevicesConfig = CONFIG, gpus: int = 3) -> AsyncIterator[Bench]:
    made = Bench(folder, config, gpus)
    try:
        yield made
    finally:
        made.file.with_suffix(".go").touch()
        await made.devices.close()
        for pid in map(int, made.lines(".starts")):
            await _gone(pid)
        made.devices._reap()


async def _gone(pid: int) -> None:
    """Wait for the end of any process, a child of ours or not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)


def run(case: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(case, 60))


def test_readings_are_converted_to_base_units(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            (found,) = await host.devices.inventory()
            assert (found.gpu, found.index, found.vendor, found.sku) == ("GPU-0", 0, "nvidia", "NVIDIA H200")
            assert found.pci_address == "00000000:1B:00.0"
            (sample,) = await host.devices.sample()
            assert sample.at_s == host.clock.wall_s()
            assert sample.power_watts == pytest.approx(692.123)
            assert sample.power_instant_watts == pytest.approx(695.5)
            assert sample.power_limit_watts == pytest.approx(700.0)
            assert sample.energy_joules_total == pytest.approx(5_000_000_000.123)
            assert sample.temperature_celsius == 61.0
            assert sample.memory_temperature_celsius == 72.0
            assert sample.sm_clock_hertz == 1.425e9
            assert sample.utilization_ratio == pytest.approx(0.97)
            assert (sample.memory_used_bytes, sample.memory_total_bytes) == (2.0**33, 141.0 * 2**30)
            assert (sample.ecc_corrected_total, sample.pcie_replay_total) == (7.0, 3.0)
            assert (sample.row_remap_pending_ratio, sample.row_remap_failed_ratio) == (1.0, 0.0)
            assert (sample.throttle_power_ratio, sample.throttle_thermal_ratio) == (1.0, 0.0)
            assert sample.throttle_power_brake_ratio == 1.0

    run(case())


def test_what_the_part_does_not_have_is_none_and_never_a_number(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.tell(
                0,
                errors={
                    "nvmlDeviceGetUtilizationRates": 3,
                    "nvmlDeviceGetRemappedRows": 3,
                    "nvmlDeviceGetMemoryInfo": 999,
                },
                values={
                    "nvmlDeviceGetPowerUsage": 2**32 - 1,
                    "nvmlDeviceGetTotalEnergyConsumption": 2**64 - 1,
                    "nvmlDeviceGetTotalEccErrors": -1,
                    "nvmlDeviceGetEnforcedPowerLimit": "N/A",
                    "nvmlDeviceGetFieldValues": [
                        {"nvmlReturn": 3, "valueType": 1, "value": {"uiVal": 0}},
                        {"nvmlReturn": 0, "valueType": 99, "value": {}},
                    ],
                },
            )
            (sample,) = await host.devices.sample()
            absent = (
                sample.power_watts,
                sample.power_instant_watts,
                sample.energy_joules_total,
                sample.power_limit_watts,
            )
            assert absent == (None, None, None, None)
            assert (sample.utilization_ratio, sample.row_remap_pending_ratio, sample.memory_used_bytes) == (None,) * 3
            assert (sample.ecc_corrected_total, sample.memory_temperature_celsius) == (None, None)
            assert sample.temperature_celsius == 61.0

    run(case())


def test_expensive_readings_are_rare_spread_over_the_gpus_and_kept_in_between(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            history = []
            for _ in range(21):
                samples = await host.devices.sample()
                history.append([sample.energy_joules_total is not None for sample in samples])
                host.clock.now_s += 1.0
            energy = [line.split()[0] for line in host.lines(".calls") if "Energy" in line]
            assert energy == ["GPU-0", "GPU-1", "GPU-0", "GPU-1", "GPU-0"]
            assert history[0] == [True, False], "the second GPU's turn comes half an interval later"
            assert history[5:] == [[True, True]] * 16

    run(case())


def test_a_lost_gpu_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path) as host:
            assert await host.answering() == ["GPU-0", "GPU-1", "GPU-2"]
            host.tell(1, error=15)
            assert await host.answering() == ["GPU-0", "GPU-2"]
            assert host.devices.troubles == {"GPU-1": "NVML error 15"}
            assert len(host.lines(".starts")) == 1

    run(case())


def test_a_hang_abandons_the_helper_and_leaves_that_gpu_alone(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path) as host:
            await host.devices.sample()
            host.tell(1, hang=True, stubborn=True)
            assert await host.answering() == ["GPU-0"]
            assert "no answer to .sample." in host.devices.troubles["GPU-1"].replace("'", ".")
            with pytest.raises(DeviceError, match="next try in 1 s"):
                await host.devices.sample()
            host.clock.now_s += 1.0
            calls = len(host.lines(".calls"))
            assert await host.answering() == ["GPU-0", "GPU-2"]
            assert not any(line.startswith("GPU-1 ") for line in host.lines(".calls")[calls:])
            stuck, _fresh = map(int, host.lines(".starts"))
            os.kill(stuck, 0)  # it was not killed in the middle of its call
            # The call returns, the abandoned helper ends: now the GPU is asked again, after a while.
            host.tell(1)
            host.file.with_suffix(".go").touch()
            await _gone(stuck)
            assert await host.answering() == ["GPU-0", "GPU-2"]
            host.clock.now_s += 61.0
            assert await host.answering() == ["GPU-0", "GPU-1", "GPU-2"]
            assert [gpu.gpu for gpu in await host.devices.inventory()] == ["GPU-0", "GPU-1", "GPU-2"]

    run(case())


def test_helpers_that_are_stuck_are_never_joined_by_more_than_the_limit(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=6) as host:
            await host.devices.sample()
            for index in range(6):
                host.tell(index, hang=True, stubborn=True)
            for _ in range(20):
                with pytest.raises(DeviceError):
                    await host.devices.sample()
                host.clock.now_s += 10.0
            with pytest.raises(DeviceError, match="3 helpers are stuck inside the nvidia driver"):
                await host.devices.sample()
            assert host.devices.starts_total == 3

    run(case())


def test_back_off_doubles_to_its_maximum_while_opening_fails(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.plan["init_error"] = 999
            host.save()
            starts = []
            while len(starts) < 6:
                before = host.devices.starts_total
                with pytest.raises(DeviceError, match="NVML does not start"):
                    await host.devices.inventory()
                if host.devices.starts_total > before:
                    starts.append(host.clock.now_s)
                host.clock.now_s += 0.5
            assert [after - before for before, after in pairwise(starts)] == [1, 2, 4, 8, 8]

    run(case())


def test_a_hang_while_opening_is_given_up(tmp_path: Path) -> None:
    async def case() -> None:
        config = DevicesConfig(open_deadline_seconds=0.5)
        async with bench(tmp_path, config) as host:
            host.plan["init_hang"] = True
            host.save()
            with pytest.raises(DeviceError, match=r"no answer to 'open' within 0\.5 s"):
                await host.devices.sample()

    run(case())


@pytest.mark.parametrize(("code", "kind"), [(9, DriverMissing), (12, DriverMissing), (18, DriverMissing)])
def test_no_driver_is_a_matter_of_installation(tmp_path: Path, code: int, kind: type[DeviceError]) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.plan["init_error"] = code
            host.save()
            for _ in range(2):  # also while it waits for the next try
                with pytest.raises(kind, match="NVML does not start"):
                    await host.devices.sample()

    run(case())


def test_no_binding_says_what_to_install(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            (tmp_path / "pynvml.py").write_text("raise ImportError('no such library')\n")
            with pytest.raises(DriverMissing, match=r"install fleetd\[nvidia\]"):
                await host.devices.inventory()

    run(case())


def test_when_every_gpu_refuses_the_library_is_started_anew(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            await host.devices.sample()
            host.tell(0, error=1)
            host.tell(1, error=1)
            with pytest.raises(DeviceError, match="NVML error 1"):
                await host.devices.sample()
            host.tell(0)
            host.tell(1)
            host.clock.now_s += 1.0
            assert await host.answering() == ["GPU-0", "GPU-1"]
            assert len(host.lines(".starts")) == 2
            assert len(host.lines(".ends")) == 1

    run(case())


def test_a_helper_that_dies_is_replaced(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            await host.devices.sample()
            host.tell(0, die=True)
            with pytest.raises(DeviceError, match="ended with exit code 9"):
                await host.devices.sample()
            host.tell(0)
            host.clock.now_s += 1.0
            assert await host.answering() == ["GPU-0", "GPU-1"]
            os.kill(int(host.lines(".starts")[1]), signal.SIGKILL)
            await _gone(int(host.lines(".starts")[1]))
            with pytest.raises(DeviceError, match="exit code -9"):
                await host.devices.sample()

    run(case())


def test_garbage_from_the_helper_is_an_error_and_ends_it(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            await host.devices.sample()
            host.tell(0, garbage=True)
            with pytest.raises(DeviceError, match="no reply: b'<html>"):
                await host.devices.sample()

    run(case())


def test_what_the_library_prints_does_not_disturb(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.plan["print"] = "NVRM: hello"
            host.save()
            assert await host.answering() == ["GPU-0"]

    run(case())


def test_inventory_leaves_out_what_has_no_name(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            host.tell(0, unnamed=True)
            assert [gpu.index for gpu in await host.devices.inventory()] == [1]
            await host.devices.close()
            host.tell(1, unnamed=True)
            with pytest.raises(DeviceError, match="names no GPU"):
                await host.devices.inventory()

    run(case())


@pytest.mark.parametrize(("driver", "said"), [("580.95.05", "580.95.05"), (None, None), ("", None)])
def test_each_gpu_names_the_driver_that_answers_for_it(tmp_path: Path, driver: str | None, said: str | None) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            host.plan["driver"] = driver
            host.save()
            assert [gpu.driver_version for gpu in await host.devices.inventory()] == [said, said]

    run(case())


def test_close_shuts_the_library_down_and_may_be_repeated(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            await host.devices.sample()
            await host.devices.close()
            await host.devices.close()
            assert host.lines(".ends") == host.lines(".starts")

    run(case())


def test_a_cancelled_call_leaves_the_conversation_usable(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            await host.devices.sample()
            call = asyncio.create_task(host.devices.sample())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await host.answering() == ["GPU-0"]
            assert len(host.lines(".starts")) == 1

    run(case())


def test_a_hang_becomes_a_finding_about_that_gpu_alone_and_does_not_delay_the_end(tmp_path: Path) -> None:
    async def case() -> FakeSpool:
        config = DevicesConfig(call_deadline_seconds=0.3, restart_first_seconds=0.05)
        async with bench(tmp_path, config) as host:
            devices, spool, clock = host.devices, FakeSpool(), RealClock()
            devices._clock = clock
            sampler = Sampler(
                host=HOST,
                boot_id=BOOT,
                devices=devices,
                spool=spool,
                clock=clock,
                config=SamplerConfig(interval_seconds=0.05, unresponsive_after_seconds=1.0),
            )
            assert await sampler.sample_once() is None
            host.tell(0, hang=True, stubborn=True)
            task = asyncio.create_task(sampler.run())
            await spool.appended.wait()
            assert [sample.gpu for sample in sampler.latest()] == ["GPU-1", "GPU-2"]
            host.tell(1, hang=True, stubborn=True)
            call = asyncio.create_task(devices.sample())
            task.cancel()
            await asyncio.wait({task})
            await asyncio.wait({call}, timeout=0.1)
            assert not call.done(), "it is in the middle of the call that hangs"
            began_s = clock.elapsed_s()
            call.cancel()  # as the agent does when it is stopped
            await asyncio.wait({call})
            await devices.close()
            assert clock.elapsed_s() - began_s < 2.0
            return spool

    (finding,) = asyncio.run(asyncio.wait_for(case(), 60)).findings
    assert isinstance(finding, DeviceFault)
    assert (finding.gpu, finding.index, finding.code) == ("GPU-0", 0, "agent.driver_unresponsive")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": 0}, "gpus: 0"),
        ({"fault": "gpu=5,fault=F03"}, "backend: sim"),
        ({"call_deadline_seconds": 0.0}, "call_deadline_seconds"),
        ({"abandoned_max": 0}, "abandoned_max"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DevicesConfig(**changes)


def test_a_fault_may_be_planted_in_simulated_gpus() -> None:
    assert DevicesConfig(backend="sim", fault="gpu=5,fault=F03").fault == "gpu=5,fault=F03"
