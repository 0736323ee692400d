"""Several GPUs that hang at once: found together, the others go on, and the number of processes stays bounded."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fleetd.agent.sampler import Sampler, SamplerConfig
from fleetd.devices.helper import HelperDevices
from fleetd.devices.pci import PciGpus
from fleetd.model.finding import DRIVER_UNRESPONSIVE, DeviceFault
from fleetd.ports import DeviceError
from fleetd.system import RealClock
from tests.agent.fakes_agent import BOOT, HOST, FakeClock, FakeSpool
from tests.devices.nvidia_bench import CONFIG, bench, gone, run, settled
from tests.fakelibs import amd_fake

PATIENT = CONFIG
"""Eight helpers that start at once on a busy machine of two cores need some time each."""


def test_three_of_eight_are_found_in_one_round_and_the_five_go_on(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, PATIENT, gpus=8) as host:
            assert len(await host.devices.sample()) == 8
            for gpu in (2, 3, 6):
                host.tell(gpu, hang__PowerUsage=1)
            well = [f"GPU-{gpu}" for gpu in (0, 1, 4, 5, 7)]
            assert await host.answering() == well
            assert set(host.devices.troubles) == {"GPU-2", "GPU-3", "GPU-6"}
            await settled(host.devices)
            assert len(host.devices.helpers) == 4, "one that works, and one that is stuck for each GPU that hangs"
            starts = host.devices.starts_total
            calls = len(host.lines(".calls"))
            for _ in range(5):
                host.clock.now_s += 1.0
                assert await host.answering() == well
            assert host.devices.starts_total == starts, "nothing more is started"
            assert not any(line[0] in "236" for line in host.lines(".calls")[calls:]), "the sick are left alone"

    run(case())


def test_a_gpu_that_answered_before_its_neighbour_hung_is_looked_at_again(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, PATIENT, gpus=3) as host:
            await host.devices.sample()
            host.tell(0, hang__GpmSample=1)  # a slow reading, which is not due in this round
            host.tell(2, hang__PowerUsage=1)
            assert await host.answering() == ["GPU-0", "GPU-1"]
            host.tell(0, hang__PowerUsage=1)
            assert await host.answering() == ["GPU-1"]
            assert set(host.devices.troubles) == {"GPU-0", "GPU-2"}

    run(case())


def test_when_all_hang_no_more_is_started_than_one_for_each(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, replace(CONFIG, call_deadline_seconds=1.0), gpus=4) as host:
            await host.devices.sample()
            host.tell("*", hang__PowerUsage=1)
            for _ in range(20):
                with pytest.raises(DeviceError):
                    await host.devices.sample()
                host.clock.now_s += 300.0
            assert (host.devices.starts_total, len(host.devices.helpers)) == (4, 4)

    run(case())


def test_a_gpu_that_hangs_again_costs_the_others_nothing_and_waits_longer(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, PATIENT, gpus=3) as host:
            await host.devices.sample()
            host.tell(1, hang__PowerUsage=1)
            await host.devices.sample()
            await settled(host.devices)
            (working, stuck) = host.devices.helpers
            host.scenario.let_go()
            await gone(stuck)
            os.unlink(f"{host.scenario.file}.go")  # noqa: PTH108 - a hang hangs again
            host.clock.now_s += 1.0
            assert await host.answering() == ["GPU-0", "GPU-2"]
            assert host.devices.helpers[0] == working, "the GPU was asked through a helper of its own"
            assert len(host.devices.helpers) == 2
            host.scenario.let_go()
            await gone(host.devices.helpers[1])
            host.clock.now_s += 50.0
            starts = host.devices.starts_total
            await host.devices.sample()
            assert host.devices.starts_total == starts, "this time it has to wait, though its call has returned"
            host.clock.now_s += 11.0
            assert await host.answering() == ["GPU-0", "GPU-1", "GPU-2"]

    run(case())


def test_a_library_that_does_not_open_any_more_gets_one_helper_stuck_and_not_one_for_each_gpu(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, replace(CONFIG, reopen_deadline_seconds=3.0), gpus=8) as host:
            await host.devices.sample()
            host.tell(0, hang__PowerUsage=1)
            host.tell("lib", hang__Init=1)
            with pytest.raises(DeviceError, match="no answer to 'open'"):
                await host.devices.sample()
            assert len(host.devices.helpers) == 2

    run(case())


def test_looking_for_a_gpu_does_not_touch_the_one_that_hangs(tmp_path: Path) -> None:
    """NVML attaches to every GPU on the way to a UUID; by its PCI address to that one alone."""

    async def case() -> None:
        async with bench(tmp_path, PATIENT, gpus=3) as host:
            await host.devices.sample()
            host.tell(0, hang__PowerUsage=1, hang__Attach=1)
            assert await host.answering() == ["GPU-1", "GPU-2"]

    run(case())


def test_a_stop_in_the_middle_of_asking_side_by_side_leaves_nothing_that_can_end(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, PATIENT, gpus=4) as host:
            await host.devices.sample()
            for gpu in (1, 2):
                host.tell(gpu, hang__PowerUsage=1)
            call = asyncio.create_task(host.devices.sample())
            while "2 PowerUsage" not in host.lines(".calls")[-40:] or host.devices.starts_total < 4:
                await asyncio.sleep(0.01)
                assert not call.done()
            call.cancel()
            await asyncio.wait({call})
            await host.devices.close()
            # All but the two that are in a call that hangs end by themselves.
            left = {asyncio.create_task(gone(pid)) for pid in map(int, host.lines(".starts"))}
            while len(left) > 2:
                _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            host.scenario.let_go()
            await asyncio.gather(*left)

    run(case())


def test_amd_gpus_that_hang_together_are_not_touched_on_the_way_to_the_others(
    tmp_path: Path,
) -> None:
    async def case() -> None:
        scenario = amd_fake.Scenario(tmp_path / "scenario", gpus=4)
        environ = {**os.environ, "ROCM_HOME": str(amd_fake.build(tmp_path)), "FAKE_AMD_SMI": str(scenario.file)}
        devices = HelperDevices(
            vendor="amd",
            clock=FakeClock(),
            config=PATIENT,
            environ=environ,
            pci=PciGpus("amd", tmp_path / "pci"),
        )
        uuids = [amd_fake.uuid_of(gpu) for gpu in range(4)]
        try:
            assert len(await devices.sample()) == 4
            for gpu in (0, 2):
                scenario.put(gpu, {"hang.power_info": 1, "hang.asic_info": 1})
            assert [sample.gpu for sample in await devices.sample()] == [uuids[1], uuids[3]]
            assert set(devices.troubles) == {uuids[0], uuids[2]}
            await settled(devices)
            assert len(devices.stuck) == 2
            assert len(devices.helpers) == 3
        finally:
            scenario.let_go()
            await devices.close()

    run(case())


def test_each_of_three_that_hang_at_once_is_a_finding_soon(tmp_path: Path) -> None:
    """With the default patience, in real time: within ten seconds, where eight helpers do not wait for a processor."""

    async def case() -> None:
        config = replace(CONFIG, call_deadline_seconds=2.0, reopen_deadline_seconds=5.0)
        async with bench(tmp_path, config, gpus=8) as host:
            devices, spool, clock = host.devices, FakeSpool(), RealClock()
            devices._clock = devices._helpers._clock = clock
            sampler = Sampler(
                host=HOST, boot_id=BOOT, devices=devices, spool=spool, clock=clock, config=SamplerConfig()
            )
            assert await sampler.sample_once() is None
            task = asyncio.create_task(sampler.run())
            for gpu in (1, 4, 7):
                host.tell(gpu, hang__PowerUsage=1)
            hung_s = clock.elapsed_s()
            while len(spool.findings) < 3:
                spool.appended.clear()
                await spool.appended.wait()
            took_s = clock.elapsed_s() - hung_s
            well = [sample.gpu for sample in sampler.latest()]
            task.cancel()
            await asyncio.wait({task})
            assert took_s <= 60.0
            assert well == [f"GPU-{gpu}" for gpu in (0, 2, 3, 5, 6)]
            told = {finding.gpu for finding in spool.findings if isinstance(finding, DeviceFault)}
            assert told == {"GPU-1", "GPU-4", "GPU-7"}
            assert {finding.code for finding in spool.findings if isinstance(finding, DeviceFault)} == {
                DRIVER_UNRESPONSIVE
            }

    run(case())
