"""Builds the fake `libnvidia-ml.so.1` with gcc, and writes the scenario that it follows (its format: `nvml.c`)."""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
LINKS = 18

H200: Mapping[str, object] = {
    "Name": "NVIDIA H200",
    "VbiosVersion": "96.00.A5.00.01",
    "GspFirmwareVersion": "580.159",
    "PowerUsage": 692_123,
    "EnforcedPowerLimit": 700_000,
    "PowerManagementLimit": 700_000,
    "PowerManagementDefaultLimit": 700_000,
    "PowerManagementLimitConstraints.0": 200_000,
    "PowerManagementLimitConstraints.1": 700_000,
    "TotalEnergyConsumption": 5_000_000_000_123,
    "Temperature.0": 61,
    "MarginTemperature": 26,
    "ClockInfo.1": 1425,
    "ClockInfo.2": 3201,
    "MaxClockInfo.1": 1980,
    "MaxClockInfo.2": 3201,
    "UtilizationRates.0": 97,
    "UtilizationRates.1": 40,
    "EncoderUtilization.0": 0,
    "EncoderUtilization.1": 167_000,
    "DecoderUtilization.0": 3,
    "DecoderUtilization.1": 167_000,
    "MemoryInfo.0": 141 * 2**30,
    "MemoryInfo.1": 2**29,
    "MemoryInfo.2": 132 * 2**30,
    "MemoryInfo.3": 2**33,
    "CurrentClocksEventReasons": 0x84,
    "Processes": 2,
    "ProcessMemory": 2**32,
    "EccMode.0": 1,
    "EccMode.1": 1,
    "TotalEccErrors.0": 7,
    "TotalEccErrors.1": 0,
    "MemoryErrorCounter.0.1": 2,
    "MemoryErrorCounter.0.2": 5,
    "MemoryErrorCounter.1.2": 0,
    "MemoryErrorCounter.1.7": 0,
    "RemappedRows.0": 2,
    "RemappedRows.1": 1,
    "RemappedRows.2": 1,
    "RemappedRows.3": 0,
    "CurrPcieLinkGeneration": 5,
    "MaxPcieLinkGeneration": 5,
    "CurrPcieLinkWidth": 16,
    "MaxPcieLinkWidth": 16,
    "PcieReplayCounter": 3,
    "field.186": "695500u",  # POWER_INSTANT
    "field.82": "72u",  # MEMORY_TEMP
    "field.230": 0,  # GET_GPU_RECOVERY_ACTION
    "field.177": 1,  # PCIE_COUNT_NAKS_SENT
    "field.174": 2,  # PCIE_COUNT_NAKS_RECEIVED
    "field.169": 4,  # PCIE_L0_TO_RECOVERY_COUNTER
    "field.74": 2_500_000_000,  # PERF_POLICY_POWER
    "field.271": 0,  # CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN
    "field.91": LINKS,  # NVLINK_LINK_COUNT
    "field.165": 1,  # NVLINK_GET_STATE
    "field.165/7": 0,
    "field.163": 0,  # NVLINK_ERROR_DL_CRC
    "field.163/7": 12,
    "field.161": 0,  # NVLINK_ERROR_DL_REPLAY
    "field.162": 0,  # NVLINK_ERROR_DL_RECOVERY
    "field.138": 1000,  # NVLINK_THROUGHPUT_DATA_TX
    "field.139": 2000,  # NVLINK_THROUGHPUT_DATA_RX
    "gpm.1": 99.0,
    "gpm.2": 96.0,
    "gpm.3": 14.0,
    "gpm.5": 93.0,
    "gpm.10": 17.0,
    "gpm.11": 0.0,
    "gpm.12": 2.0,
    "gpm.13": 0.0,
    "gpm.20": 1.5,
    "gpm.21": 2.5,
    "gpm.60": 100.0,
    "gpm.61": 200.0,
}
"""An H200 under a bf16 GEMM that waits for a reset (row remap pending) and has link 7 down; NVML's units."""


def build(*defines: str, folder: Path | None = None) -> Path:
    """The folder of the library, for LD_LIBRARY_PATH. Built once for all processes, and anew when the source changes.

    `defines`: NO_INIT (a library older than the binding), OLD (before Hopper: no GPM, no margin, no event reasons).
    """
    digest = hashlib.blake2b(SOURCE.read_bytes() + " ".join(defines).encode(), digest_size=8).hexdigest()
    home = (folder or Path(tempfile.gettempdir())) / f"fleetd-fake-nvml-{os.getuid()}-{digest}"
    library = home / "libnvidia-ml.so.1"
    if library.exists():
        return home
    home.mkdir(mode=0o700, exist_ok=True)
    fresh = home / f"{os.getpid()}.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *(f"-D{name}" for name in defines)]
    subprocess.run([*command, str(SOURCE), "-o", str(fresh)], check=True)
    fresh.rename(library)
    return home


class Scenario:
    """The file that the fake follows. Each change is seen by the next call."""

    def __init__(self, file: Path, *, gpus: int = 1, part: Mapping[str, object] = H200) -> None:
        """Write a host of healthy parts, called GPU-0, GPU-1, …"""
        self.file = file
        self._lines: dict[tuple[str, str], object] = {("lib", "count"): gpus, ("lib", "driver"): "580.159"}
        self._lines |= {("*", what): value for what, value in part.items()}
        for gpu in range(gpus):
            self._lines[str(gpu), "UUID"] = f"GPU-{gpu}"
            self._lines[str(gpu), "PciInfo"] = f"00000000:{gpu * 16 + 11:02X}:00.0"
        self.put("lib", {})

    def put(self, who: object, values: Mapping[str, object]) -> None:
        """Say what `who` (`lib`, `*` or a GPU's number) answers; None takes a line away."""
        for what, value in values.items():
            self._lines.pop((str(who), what), None)  # what is said last must stand last
            if value is not None:
                self._lines[str(who), what] = value
        fresh = self.file.with_suffix(".new")
        fresh.write_text("".join(f"{who} {what} = {value}\n" for (who, what), value in self._lines.items()))
        fresh.rename(self.file)

    def take_back(self, who: object, *kinds: str) -> None:
        """Take back what was said of `who` that begins so (`error`, `hang`, …)."""
        self.put(who, {what: None for (name, what) in list(self._lines) if name == str(who) and what.startswith(kinds)})

    def let_go(self) -> None:
        """End every hang."""
        Path(f"{self.file}.go").touch()

    def lines(self, suffix: str) -> list[str]:
        """Lines of `.starts`, `.ends` (process ids) or `.calls` (`WHO WHAT`; only with `lib record = 1`)."""
        file = Path(f"{self.file}{suffix}")
        return file.read_text().splitlines() if file.exists() else []


def environ(scenario: Scenario, library: Path) -> dict[str, str]:
    """The environment of a process that shall find the fake where the loader finds the vendor's library."""
    return {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(scenario.file)}
