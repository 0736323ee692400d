"""GPUs that are divided: MIG, and AMD's compute and memory partitions. Over the vendors' real bindings."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fleetd.devices.helper import HelperDevices
from fleetd.devices.pci import PciGpus
from fleetd.model.telemetry import FAMILIES, METRICS, GpuSample
from tests.agent.fakes_agent import FakeClock
from tests.devices.nvidia_bench import CONFIG, Bench, bench, run
from tests.fakelibs.amd_fake import Scenario, bdf_of, build, uuid_of

SLICES = [f"MIG-5c89f3a1-0000-5000-8000-00000000000{place}" for place in range(3)]
NOT_WITH_MIG = ("UtilizationRates", "EncoderUtilization", "DecoderUtilization", "GpmSupport", "GpmSample")
"""What NVML answers for a GPU with MIG with NVML_ERROR_NOT_SUPPORTED."""


def divide(host: Bench, gpu: int) -> None:
    """Switch MIG on, with a gap between the devices, as instances that were destroyed leave it."""
    host.scenario.put(gpu, {f"mig.{index}": uuid for index, uuid in zip((0, 2, 6), SLICES, strict=True)})
    host.scenario.put(gpu, {f"error.{call}": 3 for call in NOT_WITH_MIG} | {"ProcessMemory": 2**64 - 1})


def told(sample: GpuSample, name: str) -> bool:
    """Whether a number is told, be it 0."""
    return getattr(sample, name) not in {None, ()}


def test_mig_devices_are_named_and_what_mig_hides_is_absent(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            divide(host, 0)
            divided, whole = await host.devices.inventory()
            assert (divided.gpu, divided.partitions) == ("GPU-0", tuple(SLICES))
            assert whole.partitions == ()
            for _ in range(3):
                first, second = await host.devices.sample()
                host.clock.now_s += 10.0
            names = [entry.name for entry in METRICS + FAMILIES]
            hidden = {name for name in names if told(second, name) and not told(first, name)}
            assert hidden == {
                *("utilization_ratio", "memory_utilization_ratio"),
                *("encoder_utilization_ratio", "decoder_utilization_ratio"),
                *("graphics_active_ratio", "sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio"),
                *("fp64_active_ratio", "fp32_active_ratio", "fp16_active_ratio", "dram_active_ratio"),
                *("pcie_receive_bytes_per_second", "pcie_transmit_bytes_per_second"),
                *("fabric_receive_bytes_per_second", "fabric_transmit_bytes_per_second"),
                "process_memory_bytes",
            }
            assert (first.power_watts, first.energy_joules_total) == (second.power_watts, second.energy_joules_total)
            assert first.implausible_readings_total == ()

    run(case())


def test_mig_that_is_switched_off_again_leaves_a_whole_gpu(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            divide(host, 0)
            await host.devices.inventory()
            host.scenario.take_back(0, "mig", "error")
            (whole,) = await host.devices.inventory()
            assert whole.partitions == ()

    run(case())


@pytest.fixture(scope="session", name="rocm")
def _rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.getbasetemp())


@asynccontextmanager
async def amd(folder: Path, rocm: Path, scenario: Scenario) -> AsyncIterator[HelperDevices]:
    environ = {**os.environ, "ROCM_HOME": str(rocm), "FAKE_AMD_SMI": str(scenario.file)}
    pci = PciGpus("amd", folder / "pci")
    devices = HelperDevices(vendor="amd", clock=FakeClock(), config=CONFIG, environ=environ, pci=pci)
    try:
        yield devices
    finally:
        scenario.let_go()
        await devices.close()


def cpx(folder: Path, *, sockets: int = 2, parts: int = 4, memory: str = "NPS1") -> Scenario:
    """Sockets of so many partitions each, in the order of no address; only the first of each tells its power."""
    scenario = Scenario(folder / "scenario", gpus=sockets * parts)
    for place in range(sockets * parts):
        socket, part = place // parts, parts - 1 - place % parts
        address = bdf_of(socket).replace(".0", f".{part}")
        scenario.set(place, device_uuid=uuid_of(socket * 16 + part), device_bdf=address)
        if part:
            scenario.set(place, status__power_info=2, status__metrics_info=2, status__power_cap_info=2)
    scenario.set("*", compute_partition="CPX", memory_partition=memory)
    return scenario


def test_partitions_of_a_socket_are_one_gpu_read_through_the_first(tmp_path: Path, rocm: Path) -> None:
    async def case() -> None:
        async with amd(tmp_path, rocm, cpx(tmp_path)) as devices:
            first, second = await devices.inventory()
            assert [first.gpu, second.gpu] == [uuid_of(0), uuid_of(16)]
            assert first.partitions == tuple(bdf_of(0).replace(".0", f".{part}") for part in range(4))
            assert (second.pci_address, len(set(second.partitions))) == (bdf_of(1), 4)
            samples = await devices.sample()
            assert [sample.power_instant_watts for sample in samples] == [412.0, 412.0]
            assert samples[0].memory_total_bytes == 196592 * 2.0**20, "one memory, whole"

    asyncio.run(case())


@pytest.mark.parametrize("named_before", [True, False])
def test_the_memory_of_one_partition_is_not_taken_for_the_whole(
    tmp_path: Path, rocm: Path, *, named_before: bool
) -> None:
    async def case() -> None:
        async with amd(tmp_path, rocm, cpx(tmp_path, memory="NPS4")) as devices:
            sample, _ = await devices.sample()
            if not named_before:  # a new helper that goes straight to the GPU
                await devices._helpers.close()
                devices._discover_due_s = 1e9
                sample, _ = await devices.sample()
            assert (sample.memory_used_bytes, sample.memory_total_bytes) == (None, None)
            assert sample.power_instant_watts == 412.0

    asyncio.run(case())


def test_s37_partitions_of_a_gpu_cost_no_further_calls(tmp_path: Path, rocm: Path) -> None:
    async def calls(folder: Path, parts: int) -> list[str]:
        scenario = cpx(folder, sockets=1, parts=parts)
        async with amd(folder, rocm, scenario) as devices:
            await devices.sample()  # the first finds out what the part does not have
            before = len(scenario.calls())
            await devices.sample()
            return [call.partition(" ")[2] for call in scenario.calls()[before:]]

    folders = [tmp_path / name for name in ("alone", "divided")]
    for folder in folders:
        folder.mkdir()
    alone, divided = (asyncio.run(calls(folder, parts)) for folder, parts in zip(folders, (1, 8), strict=True))
    assert divided == alone
    assert alone
