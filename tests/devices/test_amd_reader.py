"""The AMD reader over the real amdsmi binding, which loads a fake libamd_smi.so built here."""

import asyncio
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetd.devices.config import DevicesConfig
from fleetd.devices.helper import HelperDevices
from fleetd.devices.readings import Readings
from fleetd.model.ids import GpuId
from fleetd.model.telemetry import GpuSample
from tests.agent.fakes_agent import FakeClock
from tests.fakelibs.amd_fake import MI300X, Scenario, bdf_of, build, uuid_of

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library")

_SERVE = """
import os, sys
from pathlib import Path
from fleetd.devices.amd import AmdReader
from fleetd.devices.vendor import serve
replies = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)
serve(AmdReader(Path(sys.argv[1])), sys.stdin, replies)
"""
G0, G1 = uuid_of(0), uuid_of(1)


@pytest.fixture(scope="session")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.getbasetemp())


class Helper:
    """A helper process with the AMD reader, asked one thing at a time."""

    def __init__(self, scenario: Scenario, rocm: Path | None, pci: Path) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("ROCM", "LD_LIBRARY"))}
        environ |= {"FAKE_AMD_SMI": str(scenario.file)} | ({"ROCM_HOME": str(rocm)} if rocm else {})
        self.scenario = scenario
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(pci)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            text=True,
        )
        self.readings: dict[str, Readings] = {}

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"id": 1, **request}) + "\n")
        self.process.stdin.flush()
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reply

    def read(self, gpu: str = G0, *, slow: bool) -> dict[str, Any]:
        """What it says of one GPU: a reading, or why there is none."""
        said: dict[str, Any] = self.ask(do="sample", gpus=[gpu], slow=[gpu] if slow else [])["ok"][gpu]
        return said

    def sample(self, gpu: str = G0, *, slow: bool = True) -> GpuSample:
        reading = self.read(gpu, slow=slow)["reading"]
        return self.readings.setdefault(gpu, Readings()).sample(GpuId(gpu), 0.0, reading, slow=slow)

    def end(self) -> None:
        self.scenario.let_go()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()


Start = Callable[..., Helper]


@pytest.fixture
def start(tmp_path: Path, rocm: Path) -> Iterator[Start]:
    helpers: list[Helper] = []

    def begin(*, library: Path | None = rocm, opened: bool = True, gpus: int = 2) -> Helper:
        (tmp_path / "pci").mkdir()
        helper = Helper(Scenario(tmp_path / "scenario", gpus=gpus, part=MI300X), library, tmp_path / "pci")
        helpers.append(helper)
        if opened:
            assert helper.ask(do="open")["ok"] is None
        return helper

    yield begin
    for helper in helpers:
        helper.end()


def test_the_inventory_names_the_gpus_with_their_versions(start: Start) -> None:
    found = start(gpus=8).ask(do="inventory")["ok"]
    assert [entry["gpu"] for entry in found] == [uuid_of(gpu) for gpu in range(8)]
    assert found[1] == {
        "gpu": G1,
        "index": 1,
        "vendor": "amd",
        "sku": "AMD Instinct MI300X",
        "pci_address": bdf_of(1),
        "vbios": "022.040.003.043.000001",
        "firmware": "1429802496",
        "driver_version": "6.12.12",
    }


def test_an_mi300x_is_read_in_base_units(start: Start) -> None:
    sample = start().sample()
    assert (sample.power_instant_watts, sample.power_watts) == (412.0, None), "it tells the present power, no average"
    assert sample.power_limit_watts == pytest.approx(750.0)
    assert sample.power_limit_min_watts == 0.0
    assert sample.energy_joules_total == pytest.approx(15.3)
    assert (sample.temperature_celsius, sample.memory_temperature_celsius) == (61.0, 48.0)
    assert (sample.sm_clock_hertz, sample.sm_clock_max_hertz) == (2.1e9, 2.1e9)
    assert (sample.memory_clock_hertz, sample.memory_clock_max_hertz) == (1.3e9, 1.3e9)
    assert (sample.utilization_ratio, sample.memory_utilization_ratio) == (0.97, 0.4)
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (2.0**30, 196592 * 2.0**20)
    assert (sample.processes, sample.process_memory_bytes) == (1.0, 2.0**30)
    assert (sample.ecc_corrected_total, sample.ecc_uncorrected_total, sample.ecc_deferred_total) == (5.0, 0.0, 1.0)
    assert sample.ecc_block_corrected_total == (("umc", 4.0), ("gfx", 1.0))
    assert (sample.bad_pages_total, sample.bad_pages_pending) == (0.0, 0.0)
    assert (sample.pcie_link_width, sample.pcie_link_generation, sample.pcie_link_generation_max) == (16.0, 5.0, 5.0)
    assert (sample.pcie_replay_total, sample.pcie_recovery_total) == (2.0, 3.0)
    assert sample.fabric_link_up_ratio == tuple((str(link), 1.0) for link in range(7)), "the eighth is not wired"
    assert sample.implausible_readings_total == ()


def test_efficiency_and_residency_lie_between_two_readings(start: Start) -> None:
    helper = start()
    first = helper.sample()
    assert (first.graphics_active_ratio, first.throttle_seconds_total) == (None, ())
    helper.scenario.set(
        "*",
        metrics_info__firmware_timestamp=100_000_000 + 200_000_000,  # two seconds of 10 ns
        metrics_info__accumulation_counter=100_000 + 2000,
        metrics_info__gfx_activity_acc=50_000 + 180_000,
        metrics_info__mem_activity_acc=20_000 + 50_000,
        metrics_info__ppt_residency_acc=2500 + 500,
    )
    helper.scenario.put("*", {"metrics_info.xgmi_read_data_acc/0": 1000 + 4000})
    second = helper.sample(slow=False)
    assert second.graphics_active_ratio == pytest.approx(0.9)
    assert second.dram_active_ratio == pytest.approx(0.25)
    assert dict(second.throttle_seconds_total)["power_cap"] == pytest.approx(0.5)
    assert dict(second.throttle_seconds_total)["socket_thermal"] == 0.0
    assert second.fabric_receive_bytes_per_second == pytest.approx(4000 * 1024 / 2)
    assert second.energy_joules_total == first.energy_joules_total, "slow readings are repeated"


def test_an_accumulator_of_32_bits_that_wraps_is_no_step_back(start: Start) -> None:
    helper = start()
    helper.scenario.set("*", metrics_info__gfx_activity_acc=2**32 - 100_000, metrics_info__mem_activity_acc=50_000)
    helper.sample()
    helper.scenario.set(
        "*",
        metrics_info__firmware_timestamp=100_000_000 + 200_000_000,
        metrics_info__accumulation_counter=100_000 + 2000,
        metrics_info__gfx_activity_acc=80_000,
        metrics_info__mem_activity_acc=40_000,
    )
    sample = helper.sample()
    assert sample.graphics_active_ratio == pytest.approx(0.9)
    assert sample.dram_active_ratio is None, "no wrap explains that: it was reset"
    assert sample.implausible_readings_total == ()


def test_no_value_is_absent_and_never_a_number(start: Start) -> None:
    helper = start()
    helper.scenario.put(
        "*",
        {
            "metrics_info.temperature_hotspot": 0xFFFF,
            "metrics_info.average_gfx_activity": 0xFFFF,
            "power_info.current_socket_power": 0xFFFF,
            "power_cap_info.power_cap": 2**64 - 1,
            "total_ecc_count.correctable_count": 2**64 - 1,
            "energy_count": 2**64 - 1,
            "pcie_info.pcie_metric.pcie_width": 0xFFFF,
            "pcie_info.pcie_metric.pcie_speed": 2**32 - 1,
        },
    )
    sample = helper.sample()
    values = (
        *(sample.temperature_celsius, sample.utilization_ratio, sample.power_instant_watts, sample.power_limit_watts),
        *(sample.ecc_corrected_total, sample.energy_joules_total, sample.pcie_link_width, sample.pcie_link_generation),
    )
    assert values == (None,) * 8
    assert sample.memory_temperature_celsius == 48.0


def test_a_counter_that_goes_backwards_is_absent_and_counted(start: Start) -> None:
    helper = start()
    assert helper.sample().ecc_corrected_total == 5.0
    helper.scenario.set("*", total_ecc_count__correctable_count=3)
    back = helper.sample()
    assert back.ecc_corrected_total is None
    assert back.implausible_readings_total == (("ecc_corrected_total", 1.0),)
    assert helper.sample().ecc_corrected_total == 3.0


def test_what_a_part_does_not_support_is_asked_once(start: Start) -> None:
    helper = start()
    helper.scenario.put("*", {"status.bad_page_info": 2, "status.process_list": 10})
    samples = [helper.sample() for _ in range(3)]
    assert [(one.bad_pages_total, one.processes) for one in samples] == [(None, None)] * 3
    calls = helper.scenario.calls()
    assert calls.count("0 bad_page_info") == 1
    assert calls.count("0 process_list") == 1
    assert calls.count("0 power_info") == 3


def test_a_gpu_that_is_lost_is_an_error_and_the_other_goes_on(start: Start) -> None:
    helper = start()
    helper.sample()
    helper.scenario.set(0, status=12)
    refused = helper.read(slow=False)
    assert "I/O Error" in refused["error"]
    assert helper.sample(G1).power_instant_watts == 412.0
    helper.scenario.set(0, status=None)
    assert helper.sample().power_instant_watts == 412.0


def test_a_gpu_of_which_nothing_can_be_read_is_no_healthy_one(start: Start) -> None:
    helper = start()
    helper.sample()
    helper.scenario.set(0, status=16)
    assert "Internal error" in helper.read(slow=True)["error"]


def test_s38_a_suspended_gpu_is_not_asked(start: Start, tmp_path: Path) -> None:
    helper = start()
    state = tmp_path / "pci" / bdf_of(0) / "power" / "runtime_status"
    state.parent.mkdir(parents=True)
    state.write_text("suspended\n", encoding="ascii")
    helper.ask(do="inventory")
    before = [call for call in helper.scenario.calls() if call.startswith("0 ") and "device_" not in call]
    assert before == ["0 asic_info"], "its name only; the ioctl for it does not wake"
    sample = helper.sample()
    assert sample == GpuSample(gpu=GpuId(G0), at_s=0.0)
    assert [call for call in helper.scenario.calls() if call.startswith("0 ") and "device_" not in call] == before
    state.write_text("active\n", encoding="ascii")
    assert helper.sample().ecc_corrected_total == 5.0


def test_a_bad_serial_number_hides_one_gpu_only(start: Start) -> None:
    helper = start()
    helper.scenario.set(0, asic_info__asic_serial="not hex")
    assert [entry["gpu"] for entry in helper.ask(do="inventory")["ok"]] == [G1]


@pytest.mark.parametrize(("status", "missing"), [(34, True), (51, True), (10, False), (17, False)])
def test_a_library_that_does_not_start_says_whether_it_is_missing(
    start: Start,
    status: int,
    missing: bool,
) -> None:
    helper = start(opened=False)
    helper.scenario.set("lib", init=status)
    reply = helper.ask(do="open")
    assert reply["error"].startswith("AMD SMI does not start: AMDSMI_STATUS")
    assert reply["missing"] is missing


def test_no_library_and_one_that_is_too_old_are_told_in_one_line(start: Start, tmp_path: Path) -> None:
    old = tmp_path / "old"
    (old / "lib").mkdir(parents=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(old / "lib" / "libamd_smi.so")],
        input=b"int amdsmi_init(void) { return 0; }\n",
        check=True,
    )
    reply = start(library=old, opened=False).ask(do="open")
    assert "does not fit the amdsmi binding" in reply["error"]
    assert reply["missing"]
    assert "\n" not in reply["error"]


def test_no_library_is_told_in_one_line(start: Start) -> None:
    reply = start(library=None, opened=False).ask(do="open")
    assert reply == {"id": 1, "error": "libamd_smi.so is not found; set ROCM_HOME or LD_LIBRARY_PATH", "missing": True}


def test_closing_shuts_the_library_down(start: Start) -> None:
    helper = start()
    helper.sample()
    helper.end()
    assert helper.scenario.calls()[-1] == "lib shut_down"


def test_every_number_is_finite_json(start: Start) -> None:
    reply = start().read(slow=True)["reading"]
    numbers = [value for value in reply.values() if isinstance(value, int | float)]
    assert numbers
    assert all(math.isfinite(value) for value in numbers)


def test_s32_a_gpu_whose_call_hangs_is_left_alone_and_the_others_go_on(tmp_path: Path, rocm: Path) -> None:
    async def case() -> None:
        scenario = Scenario(tmp_path / "scenario", gpus=3)
        environ = {**os.environ, "ROCM_HOME": str(rocm), "FAKE_AMD_SMI": str(scenario.file)}
        config = DevicesConfig(backend="amd", call_deadline_seconds=2.0, restart_first_seconds=0.001)
        clock = FakeClock()
        devices = HelperDevices(vendor="amd", clock=clock, config=config, environ=environ)
        try:
            assert len(await devices.sample()) == 3
            scenario.put(1, {"hang.power_info": 1})
            await devices.sample()
            clock.now_s += 1.0
            assert [sample.gpu for sample in await devices.sample()] == [G0, uuid_of(2)]
            assert list(devices.troubles) == [G1]
        finally:
            scenario.let_go()
            await devices.close()

    asyncio.run(case())
