"""The NVIDIA reader: the real nvidia-ml-py on a fake libnvidia-ml.so.1, through the real helper process."""

from pathlib import Path
from typing import Any

import pytest

from fleetd.devices.config import DevicesConfig
from fleetd.model.telemetry import FAMILIES, METRICS, GpuSample
from fleetd.ports import DeviceError, DriverMissing
from tests.devices.nvidia_bench import CONFIG, Bench, bench, run

AMD_ONLY = {"ecc_deferred_total", "bad_pages_total", "bad_pages_pending"}
AMD_FAMILIES = {"ecc_block_deferred_total"}


async def twice(host: Bench) -> GpuSample:
    """The sample after two dear readings, which GPM needs."""
    await host.devices.sample()
    host.clock.now_s += 10.0
    (sample, *_) = await host.devices.sample()
    return sample


def test_every_metric_is_read_in_base_units(tmp_path: Path) -> None:
    expected = {
        "power_watts": 692.123,
        "power_instant_watts": 695.5,
        "power_limit_min_watts": 200.0,
        "energy_joules_total": 5_000_000_000.123,
        "memory_temperature_celsius": 72.0,
        "temperature_margin_celsius": 26.0,
        "sm_clock_hertz": 1.425e9,
        "sm_clock_max_hertz": 1.98e9,
        "utilization_ratio": 0.97,
        "decoder_utilization_ratio": 0.03,
        "memory_used_bytes": 2.0**33,
        "memory_total_bytes": 141.0 * 2**30,
        "processes": 2.0,
        "process_memory_bytes": 2.0**33,
        "sm_active_ratio": 0.96,
        "sm_occupancy_ratio": 0.14,
        "tensor_active_ratio": 0.93,
        "dram_active_ratio": 0.17,
        "pcie_receive_bytes_per_second": 2.5 * 2**20,
        "fabric_transmit_bytes_per_second": 200.0 * 2**20,
        "row_remap_correctable_total": 2.0,
        "row_remap_uncorrectable_total": 1.0,
        "row_remap_pending_ratio": 1.0,
        "row_remap_failed_ratio": 0.0,
        "pcie_link_generation": 5.0,
        "pcie_link_width": 16.0,
        "pcie_recovery_total": 4.0,
        "recovery_action": 0.0,
    }

    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            sample = await twice(host)
            assert {name: getattr(sample, name) for name in expected} == pytest.approx(expected)
            assert {metric.name for metric in METRICS if getattr(sample, metric.name) is None} == AMD_ONLY
            missing = {family.name for family in FAMILIES if not getattr(sample, family.name)}
            assert missing == AMD_FAMILIES | {"implausible_readings_total"}
            assert {reason for reason, on in sample.throttle_active_ratio if on} == {"power_cap", "power_brake"}
            assert dict(sample.throttle_seconds_total) == {"power_cap": 2.5, "power_brake": 0.0}
            assert dict(sample.ecc_block_corrected_total) == {"l2_cache": 2.0, "dram": 5.0}
            assert [link for link, up in sample.fabric_link_up_ratio if not up] == ["7"]
            assert len(sample.fabric_link_up_ratio) == 18
            assert dict(sample.fabric_link_crc_errors_total)["7"] == 12.0
            assert dict(sample.fabric_link_receive_bytes_total)["0"] == 2000.0 * 1024

    run(case())


def test_the_inventory_names_versions(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=2) as host:
            first, second = await host.devices.inventory()
            assert (first.gpu, first.index, first.vendor, first.sku) == ("GPU-0", 0, "nvidia", "NVIDIA H200")
            assert (first.vbios, first.firmware, first.driver_version) == ("96.00.A5.00.01", "580.159", "580.159")
            assert (first.pci_address, second.pci_address) == ("00000000:0B:00.0", "00000000:1B:00.0")

    run(case())


def test_insane_values_are_absent_and_counted(tmp_path: Path) -> None:
    insane = {
        "PowerUsage": 2**32 - 1,
        "TotalEnergyConsumption": 2**64 - 1,
        "Temperature.0": 2**32 - 1,
        "PcieReplayCounter": 2**32 - 1,
        "UtilizationRates.0": 127,
        "field.186": "4294967295u",
    }

    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.scenario.put(0, insane)
            (sample,) = await host.devices.sample()
            absent = (
                "power_watts",
                "energy_joules_total",
                "temperature_celsius",
                "pcie_replay_total",
                "utilization_ratio",
                "power_instant_watts",
            )
            assert [getattr(sample, name) for name in absent] == [None] * len(absent)
            assert dict(sample.implausible_readings_total) == dict.fromkeys(absent, 1.0)
            assert sample.sm_clock_hertz == 1.425e9

    run(case())


def test_what_is_not_supported_is_asked_once(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.tell(0, error__MarginTemperature=3, error__TotalEnergyConsumption=3)
            for _ in range(3):
                sample = await twice(host)
            assert (sample.temperature_margin_celsius, sample.energy_joules_total) == (None, None)
            calls = host.lines(".calls")
            assert calls.count("0 MarginTemperature") == 1
            assert calls.count("0 TotalEnergyConsumption") == 1
            assert calls.count("0 PowerUsage") == 6

    run(case())


def test_a_reading_that_fails_for_another_reason_is_asked_again(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.tell(0, error__PowerUsage=999)
            (sample,) = await host.devices.sample()
            assert sample.power_watts is None
            host.tell(0, error__PowerUsage=None)
            (sample,) = await host.devices.sample()
            assert sample.power_watts == pytest.approx(692.123)

    run(case())


def test_a_library_from_before_hopper_has_less_and_no_zeros(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, CONFIG, 1, "OLD") as host:
            sample = await twice(host)
            absent = ("sm_active_ratio", "temperature_margin_celsius", "dram_active_ratio")
            assert [getattr(sample, name) for name in absent] == [None] * len(absent)
            assert sample.throttle_active_ratio == ()
            assert sample.power_watts == pytest.approx(692.123)

    run(case())


def test_a_library_that_is_too_old_says_what_to_do(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, CONFIG, 1, "NO_INIT") as host:
            with pytest.raises(DriverMissing, match="too old for nvidia-ml-py; update the NVIDIA driver"):
                await host.devices.inventory()

    run(case())


def test_a_library_that_is_not_there_is_a_matter_of_installation(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.devices._helpers.environ["LD_LIBRARY_PATH"] = str(tmp_path)
            with pytest.raises(DriverMissing, match="NVML does not start"):
                await host.devices.inventory()

    run(case())


def test_no_permission_is_said_and_absent(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.tell(0, error=4)
            with pytest.raises(DeviceError, match="Insufficient Permissions"):
                await host.devices.sample()

    run(case())


@pytest.mark.parametrize("gpus", [8, 16])
def test_many_gpus(tmp_path: Path, gpus: int) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=gpus) as host:
            assert await host.answering() == [f"GPU-{index}" for index in range(gpus)]

    run(case())


@pytest.mark.parametrize(("who", "what"), [("0", "GpmSample"), ("0", "GpmSupport"), ("lib", "GpmSampleAlloc")])
def test_efficiency_that_cannot_be_had_is_absent_and_never_zero(tmp_path: Path, who: str, what: str) -> None:
    """S41: profiling metrics became 0 when sampling failed, and looked like idle GPUs."""

    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.scenario.put(who, {f"error.{what}": 999})
            sample = await twice(host)
            assert (sample.sm_active_ratio, sample.tensor_active_ratio) == (None, None)
            assert sample.power_watts is not None

    run(case())


def test_no_gpu_at_all_is_said_and_looked_for_again_by_a_new_start(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.tell("lib", count=0)
            with pytest.raises(DeviceError, match="names no GPU"):
                await host.devices.sample()
            host.tell("lib", count=1)
            host.clock.now_s += 1.0
            assert await host.answering() == ["GPU-0"]
            assert len(host.lines(".starts")) == 2

    run(case())


def test_a_configuration_of_the_new_interval_is_checked() -> None:
    changes: dict[str, Any] = {"discovery_interval_seconds": 0.0}
    with pytest.raises(ValueError, match="discovery_interval_seconds"):
        DevicesConfig(**changes)
