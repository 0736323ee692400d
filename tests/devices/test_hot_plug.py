"""GPUs that are taken out and put in while the agent runs: over the vendors' real bindings, which learn of neither."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fleetd.agent.detector import Detector
from fleetd.agent.sampler import Sampler, SamplerConfig
from fleetd.config.faults import load_catalogue
from fleetd.core.detect_config import DetectConfig
from fleetd.core.detect_rules import GPU_LOST, lost
from fleetd.devices.helper import HelperDevices
from fleetd.devices.pci import PciGpus
from fleetd.model.finding import DeviceFault
from tests.agent.fakes_agent import BOOT, HOST, FakeClock, FakeSpool
from tests.devices.nvidia_bench import CONFIG, bench, run, settled
from tests.fakelibs import amd_fake


def test_a_gpu_that_is_added_later_is_found_when_the_kernel_lists_it(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=3) as host:
            host.unplug(2)
            host.tell(2, gone=1)
            assert await host.answering() == ["GPU-0", "GPU-1"]
            (first,) = host.devices.helpers
            host.tell(2, gone=None)
            host.clock.now_s += 61.0
            assert await host.answering() == ["GPU-0", "GPU-1"], "the library that runs does not learn of it"
            assert host.devices.starts_total == 1
            host.plug(2)
            host.clock.now_s += 61.0
            assert await host.answering() == ["GPU-0", "GPU-1", "GPU-2"]
            assert [gpu.gpu for gpu in await host.devices.inventory()] == ["GPU-0", "GPU-1", "GPU-2"]
            await settled(host.devices)
            assert len(host.devices.helpers) == 1
            assert host.devices.helpers != (first,)
            assert host.lines(".ends") == [str(first)], (
                "the fresh one first, then the old one's end: the driver was never closed"
            )

    run(case())


def test_where_the_kernel_shows_nothing_a_fresh_look_finds_it_in_time(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            host.devices._pci = PciGpus("nvidia", tmp_path / "no sys")
            host.tell(1, gone=1)
            assert await host.answering() == ["GPU-0"]
            host.tell(1, gone=None)
            host.clock.now_s += 3599.0
            assert await host.answering() == ["GPU-0"]
            host.clock.now_s += 2.0
            assert await host.answering() == ["GPU-0", "GPU-1"]

    run(case())


def test_a_driver_that_is_bound_later_is_a_change_and_another_vendor_is_none(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            await host.devices.sample()
            (tmp_path / "nvidia").mkdir()
            host.plug(5, vendor="0x8086")
            host.plug(6, kind="0x020000")
            host.clock.now_s += 61.0
            await host.devices.sample()
            assert host.devices.starts_total == 1
            (host.pci / "0000:0b:00.0" / "driver").symlink_to(tmp_path / "nvidia")
            host.clock.now_s += 61.0
            await host.devices.sample()
            await settled(host.devices)
            assert (host.devices.starts_total, len(host.devices.helpers)) == (2, 1)

    run(case())


def test_a_fresh_look_that_hangs_costs_nobody_anything(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, replace(CONFIG, reopen_deadline_seconds=2.0), gpus=2) as host:
            await host.devices.sample()
            host.tell("lib", hang__Init=1)
            host.plug(9)
            for _ in range(3):
                host.clock.now_s += 61.0
                assert await host.answering() == ["GPU-0", "GPU-1"]
            assert len(host.devices.helpers) == 2, "one that works, and one that is stuck: the list changed once"

    run(case())


def told(spool: FakeSpool) -> list[tuple[str, str | None]]:
    return [(finding.code, finding.gpu) for finding in spool.findings if isinstance(finding, DeviceFault)]


def watched(devices: HelperDevices, clock: FakeClock, spool: FakeSpool) -> Sampler:
    """A sampler with detection, as in the agent."""
    detector = Detector(
        host=HOST, boot_id=BOOT, catalogue=load_catalogue(), spool=spool, clock=clock, config=DetectConfig()
    )
    return Sampler(
        host=HOST,
        boot_id=BOOT,
        devices=devices,
        spool=spool,
        clock=clock,
        config=SamplerConfig(),
        on_round=detector.round,
    )


def test_a_gpu_that_is_taken_out_is_one_finding_and_the_others_go_on(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path) as host:
            host.tell("*", CurrentClocksEventReasons=0, RemappedRows__2=0)
            host.scenario.put("*", {"field.165/7": 1})
            spool = FakeSpool()
            sampler = watched(host.devices, host.clock, spool)
            await sampler.sample_once()
            host.tell(1, gone=1)
            host.unplug(1)
            for _ in range(200):
                await sampler.sample_once()
                host.clock.now_s += 1.0
            assert told(spool) == [(GPU_LOST, "GPU-1")]
            assert [sample.gpu for sample in sampler.latest()] == ["GPU-0", "GPU-2"]
            assert host.devices.troubles == {"GPU-1": "the driver no longer names it"}
            assert sampler.silent_gpus == ("GPU-1",)
            assert host.devices.starts_total <= 5, "looks for it are ever rarer"
            # It comes back: read again through a library that was started after it.
            host.tell(1, gone=None)
            host.plug(1)
            host.scenario.let_go()
            for _ in range(70):
                await sampler.sample_once()
                host.clock.now_s += 1.0
            assert [sample.gpu for sample in sampler.latest()] == ["GPU-0", "GPU-1", "GPU-2"]
            assert sampler.silent_gpus == ()

    run(case())


def test_an_amd_gpu_that_is_taken_out_and_put_in_again(tmp_path: Path) -> None:
    async def case() -> None:
        rocm = amd_fake.build(tmp_path)
        scenario = amd_fake.Scenario(tmp_path / "scenario", gpus=3)
        clock, spool = FakeClock(), FakeSpool()
        devices = HelperDevices(
            vendor="amd",
            clock=clock,
            config=CONFIG,
            environ={**os.environ, "ROCM_HOME": str(rocm), "FAKE_AMD_SMI": str(scenario.file)},
            pci=PciGpus("amd", tmp_path / "pci"),
        )
        sampler = watched(devices, clock, spool)
        uuids = [amd_fake.uuid_of(gpu) for gpu in range(3)]
        try:
            await sampler.sample_once()
            scenario.set(1, gone=1)
            await sampler.sample_once()
            assert lost(devices.troubles[uuids[1]])
            for _ in range(90):
                await sampler.sample_once()
                clock.now_s += 1.0
            assert told(spool) == [(GPU_LOST, uuids[1])]
            assert [sample.gpu for sample in sampler.latest()] == [uuids[0], uuids[2]]
            scenario.set(1, gone=None)
            clock.now_s += 240.0
            for _ in range(3):
                await sampler.sample_once()
                clock.now_s += 1.0
            assert [sample.gpu for sample in sampler.latest()] == uuids
        finally:
            scenario.let_go()
            await devices.close()

    asyncio.run(case())


@pytest.mark.parametrize("kind", ["0x030000", "0x030200", "0x120000"])
def test_what_the_kernel_calls_a_gpu(tmp_path: Path, kind: str) -> None:
    device = tmp_path / "0000:01:00.0"
    device.mkdir()
    (device / "class").write_text(kind)
    (device / "vendor").write_text("0x1002\n")
    assert PciGpus("amd", tmp_path).now() == {"0000:01:00.0 -"}
    assert PciGpus("nvidia", tmp_path).now() == frozenset()
    assert PciGpus("a:b", tmp_path).now() == {"0000:01:00.0 -"}
