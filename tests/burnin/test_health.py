"""Health counters: what is bad, what is only worth a look, and how the readers take what the host gives them."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from burnin.processes import readers
from burnin.verdict.health import Counters, Facts, ReadingError, Sensors, compare
from burnin.workloads import hostcpu

QUIET = Counters(source="NVML", uncorrectable_total=3, remap_failed=False, pcie_width=16, pcie_width_max=16)

SMI = """#!/bin/sh
case "$*" in
  *ecc.errors*) echo "[N/A], 0, No, 8, 16" ;;
  *power.draw*) echo "71.5, 33, 1980, 700.00" ;;
  *driver_version*) echo "580.1, 96.00, Disabled, 4" ;;
  *compute-apps*) printf '11\\n12\\n' ;;
  *) exit 9 ;;
esac
"""


@pytest.mark.parametrize(
    ("before", "after", "bad", "look"),
    [
        (QUIET, QUIET, 0, 0),
        (QUIET, Counters(source="NVML", uncorrectable_total=4), 1, 0),
        (None, Counters(source="NVML", uncorrectable_total=4), 0, 0),
        (QUIET, Counters(source="NVML", remap_failed=True), 1, 0),
        (QUIET, Counters(source="NVML", pcie_width=8, pcie_width_max=16), 0, 1),
        (QUIET, None, 0, 0),
        (Counters(source=""), Counters(source=""), 0, 0),
    ],
)
def test_compare(before: Counters | None, after: Counters | None, bad: int, look: int) -> None:
    found = compare(before, after)
    assert (len(found[0]), len(found[1])) == (bad, look)


def test_nvidia_smi_with_values_it_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nvidia-smi"
    script.write_text(SMI)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    reader = readers.open_reader("cuda", "GPU-1")
    assert reader.counters() == Counters(
        source="nvidia-smi", correctable_total=0, remap_failed=False, pcie_width=8, pcie_width_max=16
    )
    assert reader.sensors() == Sensors(
        power_watts=71.5, temperature_celsius=33.0, sm_clock_hertz=1.98e9, power_limit_watts=700.0
    )
    assert reader.facts() == Facts(driver="580.1", firmware="96.00", partition="mig=Disabled", index=4)
    assert reader.processes() == (11, 12)


def test_a_host_with_nothing_to_read_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    reader = readers.open_reader("cuda", "GPU-1")
    assert reader.counters().source == ""
    assert reader.processes() == ()


class _NvmlError(Exception):
    pass


class _NotSupportedError(_NvmlError):
    pass


def _unsupported(*_: object) -> None:
    raise _NotSupportedError


def test_nvml_units_and_missing_values(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = SimpleNamespace(
        NVMLError=_NvmlError,
        NVMLError_NotSupported=_NotSupportedError,
        NVMLError_FunctionNotFound=_NotSupportedError,
        NVML_VOLATILE_ECC=0,
        NVML_MEMORY_ERROR_TYPE_CORRECTED=0,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetRemappedRows=_unsupported,
        nvmlDeviceGetTotalEccErrors=lambda _handle, kind, _counter: 7 if kind == 1 else 2,
        nvmlDeviceGetCurrPcieLinkWidth=lambda _: 16,
        nvmlDeviceGetMaxPcieLinkWidth=lambda _: 16,
        nvmlDeviceGetPowerUsage=lambda _: 691_250,
        nvmlDeviceGetClockInfo=lambda _handle, _clock: 1425,
        nvmlDeviceGetTemperature=_unsupported,
        nvmlDeviceGetEnforcedPowerLimit=lambda _: 650_000,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x85,
        nvmlDeviceGetComputeRunningProcesses=lambda _: [SimpleNamespace(pid=42)],
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    reader = readers.open_reader("cuda", "GPU-1")
    assert reader.counters() == Counters(
        source="NVML", uncorrectable_total=7, correctable_total=2, pcie_width=16, pcie_width_max=16
    )
    assert reader.sensors() == Sensors(
        power_watts=691.25,
        sm_clock_hertz=1.425e9,
        limits=("software power cap", "hardware power brake"),
        power_limit_watts=650.0,
    )
    assert reader.processes() == (42,)


def test_a_lost_gpu_has_no_clean_counters_and_takes_no_ballot_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise _NvmlError("GPU is lost")

    names = ("NVML_VOLATILE_ECC", "NVML_CLOCK_SM", "NVML_TEMPERATURE_GPU")
    names += ("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED")
    calls = ("RemappedRows", "TotalEccErrors", "CurrPcieLinkWidth", "MaxPcieLinkWidth", "PowerUsage", "ClockInfo")
    calls += ("EnforcedPowerLimit",)
    calls += (
        "Temperature",
        "CurrentClocksThrottleReasons",
        "ComputeRunningProcesses",
        "MigMode",
        "VbiosVersion",
        "Index",
    )
    nvml = SimpleNamespace(
        NVMLError=_NvmlError,
        NVMLError_NotSupported=_NotSupportedError,
        NVMLError_FunctionNotFound=_NotSupportedError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlSystemGetDriverVersion=lost,
        **dict.fromkeys(names, 0),
        **{f"nvmlDeviceGet{call}": lost for call in calls},
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    reader = readers.open_reader("cuda", "GPU-1")
    with pytest.raises(ReadingError, match="GPU is lost"):
        reader.counters()
    assert (reader.sensors(), reader.facts(), reader.processes()) == (Sensors(), Facts(), ())


def test_edac_adds_up_the_memory_controllers(tmp_path: Path) -> None:
    for number, (bad, mended) in enumerate([(1, 5), (2, 0)]):
        controller = tmp_path / f"mc{number}"
        controller.mkdir()
        (controller / "ue_count").write_text(f"{bad}\n")
        (controller / "ce_count").write_text(f"{mended}\n")
    assert readers._Edac(tmp_path).counters() == Counters(source="EDAC", uncorrectable_total=3, correctable_total=5)
    assert readers._Edac(tmp_path / "none").counters().source == ""


def test_two_cores_agree() -> None:
    beats: list[int] = []
    result = hostcpu.check(7, alive=lambda: beats.append(1))
    assert result["equal"] is True
    assert result["why"]
    assert len(result["cores"]) < 2 or len(beats) == 2 * hostcpu.REPEATS
