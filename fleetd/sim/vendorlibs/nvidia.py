"""The fake `libnvidia-ml.so.1` (`nvml.c`): what its GPUs are, and how it is built."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from fleetd.sim.vendorlibs import scenario
from fleetd.sim.vendorlibs.libraries import SOURCES, NoFakeLibrary, compile_library, private

SCENARIO_VARIABLE = "FAKE_NVML"
LINKS = 18
DRIVER = "580.159"

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
    "CurrentClocksEventReasons": 0x04,
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
    "RemappedRows.0": 0,
    "RemappedRows.1": 0,
    "RemappedRows.2": 0,
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
    "field.163": 0,  # NVLINK_ERROR_DL_CRC
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
"""A busy H200 on a healthy host: what each call answers, in NVML's units."""


LIVELY: Mapping[str, object] = {
    "PowerUsage": "685000 ~ 9000",
    "field.186": "685000 ~ 12000",
    "TotalEnergyConsumption": "5000000000123 + 685000",
    "Temperature.0": "61 ~ 3",
    "field.82": "70 ~ 3",
    "ClockInfo.1": "1425 ~ 60",
    "UtilizationRates.0": "97 ~ 2",
    "UtilizationRates.1": "40 ~ 3",
    "Processes": 0,  # the numbers of made-up processes may be those of real ones
    "field.74": "2500000000 + 50000000",
    "field.138": "1000 + 3000000",
    "field.139": "2000 + 3000000",
    "gpm.2": "96.0 ~ 2.0",
    "gpm.3": "14.0 ~ 1.0",
    "gpm.5": "93.0 ~ 3.0",
    "gpm.10": "17.0 ~ 2.0",
}
"""What moves on a GPU at work, as `moving.h` reads it."""
SICK: Mapping[str, object] = {
    "TotalEccErrors.1": 3,
    "MemoryErrorCounter.1.2": 3,
}
"""Uncorrected errors of the device memory."""


class Scenario(scenario.Scenario):
    """The file that the fake follows."""

    def __init__(
        self,
        file: Path,
        *,
        gpus: int = 1,
        part: Mapping[str, object] = H200,
        names: Sequence[str] = (),
        domain: int = 0,
    ) -> None:
        """Write a host of equal parts.

        Args:
            file: is replaced.
            gpus: how many.
            part: what each of them answers.
            names: UUIDs of the GPUs; `GPU-0`, `GPU-1`, … when there are none.
            domain: PCI domain of the GPUs.
        """
        each = [
            {
                "UUID": names[gpu] if names else f"GPU-{gpu}",
                "PciInfo": f"{domain:08X}:{gpu * 16 + 11:02X}:00.0",
            }
            for gpu in range(gpus)
        ]
        super().__init__(file, library={"driver": DRIVER}, every=part, each=each)


def build(folder: Path, *defines: str) -> Path:
    """The folder of the library, for LD_LIBRARY_PATH; built if there is none of this source yet.

    Args:
        folder: keeps what was built. Several processes may build there at a time.
        defines: NO_INIT (a library older than the binding), OLD (before Hopper: no GPM, no margin, no event reasons).

    Raises:
        NoFakeLibrary: it cannot be built or loaded, or the binding is not installed.
    """
    if find_spec("pynvml") is None:
        raise NoFakeLibrary("nvidia-ml-py is not installed: pip install 'fleetd[nvidia]'")
    sources = (SOURCES / "nvml.c", SOURCES / "scenario.h", SOURCES / "moving.h")
    text = b"".join(source.read_bytes() for source in sources) + " ".join(defines).encode()
    home = private(folder) / f"nvidia-{hashlib.blake2b(text, digest_size=8).hexdigest()}"
    library = home / "libnvidia-ml.so.1"
    if not library.exists():
        fresh = private(home) / f"{os.getpid()}.so"
        compile_library(sources[0], fresh, *(f"-D{name}" for name in defines))
        fresh.replace(library)
    return home


def environ(scenario_file: Path, library: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that shall find the fake where the loader finds the vendor's library."""
    before = base.get("LD_LIBRARY_PATH")
    where = f"{library}:{before}" if before else str(library)
    return {**base, "LD_LIBRARY_PATH": where, SCENARIO_VARIABLE: str(scenario_file)}
