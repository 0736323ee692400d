"""Reads health counters and sensors of one GPU from whatever the host has to read them with. Torch-free.

NVIDIA: the NVML bindings (`pynvml`) if they are installed, else `nvidia-smi`. AMD: `amdsmi` if ROCm put it there
(written from its interface, not run on hardware yet). Simulated GPUs: zeros. A CPU: the kernel's EDAC counters.
Vendor calls may hang, so all of this runs in a child process under the watchdog.
"""

import os
import subprocess
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from burnin.verdict.health import Counters, Facts, Reader, ReadingError, Sensors

SMI_TIMEOUT_S = 10.0
"""Time limit of one `nvidia-smi` call; with a lost GPU it can hang for ever."""
SMI_SENSORS_EVERY_S = 5.0
"""`nvidia-smi` costs about 0.1 s, so its sensors are read no more often than this."""
CLOCK_LIMITS = {
    0x02: "application clock setting",
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}
"""Bits of NVML's clock event reasons (nvml.h), in words; idle (bit 0) holds nothing back."""
CAP_MAX_MICROWATTS = 1e10
"""No part may draw 10 kW; amdsmi fills a field that it does not have with ones."""
EDAC = Path("/sys/devices/system/edac/mc")


def open_reader(backend: str, gpu: str) -> Reader:
    """Choose how to read one GPU (`gpu`: its UUID)."""
    if backend == "sim":
        return _Still(Counters(source="simulated", uncorrectable_total=0, correctable_total=0, remap_failed=False))
    if backend == "cpu":
        return _Edac()
    for open_one in (_open_nvml, _open_amd):
        reader = open_one(gpu)
        if reader is not None:
            return reader
    smi = _Smi(gpu)
    return smi if smi.counters().source else _Still(Counters(source=""))


class _Still:
    """Counters that never move, and no sensors."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def counters(self) -> Counters:
        return self._counters

    def sensors(self) -> Sensors:
        return Sensors()

    def facts(self) -> Facts:
        return Facts()

    def processes(self) -> tuple[int, ...]:
        return ()


class _Edac(_Still):
    """The memory controllers of a CPU, if the kernel counts their errors."""

    def __init__(self, root: Path = EDAC) -> None:
        super().__init__(Counters(source=""))
        self._root = root

    def counters(self) -> Counters:
        controllers = sorted(self._root.glob("mc[0-9]*"))
        if not controllers:
            return Counters(source="")
        totals = {
            name: sum(int((controller / name).read_text()) for controller in controllers)
            for name in ("ue_count", "ce_count")
        }
        return Counters(source="EDAC", uncorrectable_total=totals["ue_count"], correctable_total=totals["ce_count"])


def _open_nvml(gpu: str) -> Reader | None:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        return _Nvml(nvml, nvml.nvmlDeviceGetHandleByUUID(gpu))
    except nvml.NVMLError:
        return None  # no NVIDIA driver here, or the GPU is another vendor's


class _Nvml:
    """One GPU through NVML."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def _read(self, name: str, *args: int) -> Any:
        """One call; None when it cannot be had."""
        try:
            return self._count(name, *args)
        except ReadingError:
            return None

    def _count(self, name: str, *args: int) -> Any:
        """One call; None where the GPU does not support it. Raises ReadingError when the GPU does not answer."""
        try:
            return getattr(self._nvml, name)(self._handle, *args)
        except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound):
            return None
        except self._nvml.NVMLError as error:
            raise ReadingError(f"NVML cannot read it ({name}): {error}") from error

    def counters(self) -> Counters:
        remapped = self._count("nvmlDeviceGetRemappedRows")
        volatile = self._nvml.NVML_VOLATILE_ECC
        corrected, uncorrected = (
            self._nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
            self._nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        )
        return Counters(
            source="NVML",
            uncorrectable_total=self._count("nvmlDeviceGetTotalEccErrors", uncorrected, volatile),
            correctable_total=self._count("nvmlDeviceGetTotalEccErrors", corrected, volatile),
            remap_failed=bool(remapped[3]) if remapped is not None else None,
            pcie_width=self._count("nvmlDeviceGetCurrPcieLinkWidth"),
            pcie_width_max=self._count("nvmlDeviceGetMaxPcieLinkWidth"),
        )

    def sensors(self) -> Sensors:
        milliwatts = self._read("nvmlDeviceGetPowerUsage")
        megahertz = self._read("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)
        celsius = self._read("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU)
        bits = self._read("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        limit = self._read("nvmlDeviceGetEnforcedPowerLimit")
        return Sensors(
            power_watts=milliwatts / 1e3 if milliwatts is not None else None,
            temperature_celsius=float(celsius) if celsius is not None else None,
            sm_clock_hertz=megahertz * 1e6 if megahertz is not None else None,
            limits=tuple(text for bit, text in CLOCK_LIMITS.items() if bits & bit),
            power_limit_watts=limit / 1e3 if limit is not None else None,
        )

    def facts(self) -> Facts:
        mig = self._read("nvmlDeviceGetMigMode")
        try:
            driver = str(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError:
            driver = None
        return Facts(
            driver=driver,
            firmware=self._read("nvmlDeviceGetVbiosVersion"),
            partition=f"mig={mig[0]}" if mig is not None else None,
            index=self._read("nvmlDeviceGetIndex"),
        )

    def processes(self) -> tuple[int, ...]:
        running = self._read("nvmlDeviceGetComputeRunningProcesses") or ()
        return tuple(sorted({int(process.pid) for process in running} - {os.getpid()}))


def smi_rows(gpu: str, fields: str, *, what: str = "gpu") -> list[list[str]]:
    """Rows of fields that `nvidia-smi` tells; none when the command is missing, fails or takes too long."""
    command = ["nvidia-smi", f"--query-{what}={fields}", "--format=csv,noheader,nounits", f"--id={gpu}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


class _Smi:
    """One GPU through `nvidia-smi`, for hosts with a driver and without the bindings."""

    def __init__(self, gpu: str) -> None:
        self._gpu = gpu
        self._sensors = Sensors()
        self._sensors_s: float | None = None

    def _query(self, fields: str, *, what: str = "gpu") -> list[list[str]]:
        return smi_rows(self._gpu, fields, what=what)

    def counters(self) -> Counters:
        rows = self._query(
            "ecc.errors.uncorrected.volatile.total,ecc.errors.corrected.volatile.total,remapped_rows.failure,"
            "pcie.link.width.current,pcie.link.width.max"
        )
        if not rows:
            return Counters(source="")
        uncorrectable, correctable, failed, width, width_max = rows[0]
        return Counters(
            source="nvidia-smi",
            uncorrectable_total=_whole(uncorrectable),
            correctable_total=_whole(correctable),
            remap_failed={"yes": True, "1": True, "no": False, "0": False}.get(failed.lower()),
            pcie_width=_whole(width),
            pcie_width_max=_whole(width_max),
        )

    def sensors(self) -> Sensors:
        now_s = time.perf_counter()
        if self._sensors_s is None or now_s - self._sensors_s > SMI_SENSORS_EVERY_S:
            self._sensors_s = now_s
            rows = self._query("power.draw,temperature.gpu,clocks.sm,enforced.power.limit")
            watts, celsius, megahertz, limit = (number(cell) for cell in rows[0]) if rows else (None,) * 4
            hertz = megahertz * 1e6 if megahertz is not None else None
            self._sensors = Sensors(
                power_watts=watts, temperature_celsius=celsius, sm_clock_hertz=hertz, power_limit_watts=limit
            )
        return self._sensors

    def facts(self) -> Facts:
        rows = self._query("driver_version,vbios_version,mig.mode.current,index")
        if not rows:
            return Facts()
        driver, firmware, mig, index = rows[0]
        return Facts(driver=driver, firmware=firmware, partition=f"mig={mig}", index=_whole(index))

    def processes(self) -> tuple[int, ...]:
        rows = self._query("pid", what="compute-apps")
        pids = {pid for row in rows if (pid := _whole(row[0])) is not None}
        return tuple(sorted(pids - {os.getpid()}))


def number(cell: str) -> float | None:
    """A number of `nvidia-smi`, which writes `[N/A]` and the like where it has none."""
    try:
        return float(cell)
    except ValueError:
        return None


def _whole(cell: str) -> int | None:
    found = number(cell)
    return int(found) if found is not None else None


def _open_amd(gpu: str) -> Reader | None:
    try:
        smi = import_module("amdsmi")
    except (ImportError, OSError, KeyError):  # without ROCm's library its import itself fails, in several ways
        return None
    try:
        smi.amdsmi_init()
        for handle in smi.amdsmi_get_processor_handles():
            if gpu.removeprefix("GPU-").lower() in str(smi.amdsmi_get_gpu_device_uuid(handle)).lower():
                return _Amd(smi, handle)
    except smi.AmdSmiException:
        return None
    return None


class _Amd(_Still):
    """One GPU through amdsmi."""

    def __init__(self, smi: Any, handle: Any) -> None:
        super().__init__(Counters(source=""))
        self._smi = smi
        self._handle = handle

    def counters(self) -> Counters:
        try:
            counts = self._smi.amdsmi_get_gpu_total_ecc_count(self._handle)
        except self._smi.AmdSmiException:
            return Counters(source="")
        return Counters(
            source="amdsmi",
            uncorrectable_total=int(counts["uncorrectable_count"]),
            correctable_total=int(counts["correctable_count"]),
        )

    def facts(self) -> Facts:
        driver = self._ask("gpu_driver_info") or {}
        firmware = self._ask("gpu_vbios_info") or {}
        modes = [self._ask("gpu_compute_partition"), self._ask("gpu_memory_partition")]
        known = [str(mode) for mode in modes if mode]
        return Facts(
            driver=driver.get("driver_version"),
            firmware=firmware.get("version"),
            partition="/".join(known) if known else None,
        )

    def processes(self) -> tuple[int, ...]:
        running = self._ask("gpu_process_list") or ()
        return tuple(sorted({int(one["pid"]) for one in running} - {os.getpid()}))

    def sensors(self) -> Sensors:
        smi = self._smi
        power = self._ask("power_info") or {}
        cap = _positive((self._ask("power_cap_info") or {}).get("power_cap"))  # microwatts; all bits set: none
        clock = self._ask("clock_info", smi.AmdSmiClkType.GFX) or {}
        hot_spot = (smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT)
        celsius = self._ask("temp_metric", *hot_spot)
        watts = _positive(power.get("current_socket_power")) or _positive(power.get("average_socket_power"))
        megahertz = _positive(clock.get("clk"))
        return Sensors(
            power_watts=watts,
            temperature_celsius=_positive(celsius),
            sm_clock_hertz=megahertz * 1e6 if megahertz is not None else None,
            power_limit_watts=cap * 1e-6 if cap is not None and cap < CAP_MAX_MICROWATTS else None,
        )

    def _ask(self, name: str, *arguments: Any) -> Any:
        """One reading; None when it cannot be had."""
        try:
            return getattr(self._smi, f"amdsmi_get_{name}")(self._handle, *arguments)
        except self._smi.AmdSmiException:
            return None


def _positive(value: object) -> float | None:
    """A reading; the library writes "N/A" where a part has none, and zero where it has not been read yet."""
    return float(value) if isinstance(value, int | float) and value > 0 else None
