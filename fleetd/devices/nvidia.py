"""NVIDIA: readings of NVML in fleetd's units. Runs in the helper process only.

Cost of a call, measured on an H200: power, clocks and utilisation about 1 µs each, memory and field values 5 µs, the
replay counter 0.2 ms, the energy counter 4 ms of CPU. `nvmlDeviceGetPcieThroughput` blocks for 21 ms and is never
called. NVML itself takes 18 MiB of memory.
"""

import gc
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from fleetd.devices.reader import Reading, VendorError

_MISSING = ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")
"""Errors of opening the library that say that there is nothing to talk to."""
_SILENT = (
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_GPU_NOT_FOUND",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_TIMEOUT",
    "NVML_ERROR_UNINITIALIZED",
)
"""Errors that speak for the whole GPU. Any other error means that the one reading could not be had (None)."""
_ABSENT = {32: 2**32 - 1, 64: 2**64 - 1}
"""NVML's "no value" is the largest unsigned integer of the width."""
_UNION_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of `nvmlValue_t` by `nvmlValueType_t`."""
_WIDTHS = (64, 32, 64, 64, 64, 32, 16)

_REASON_POWER_CAP = 0x4
_REASON_THERMAL = 0x20 | 0x40  # software and hardware thermal slowdown
_REASON_POWER_BRAKE = 0x80
"""Bits of the clocks' event reasons (nvml.h, nvmlClocksEventReason*)."""


class NvidiaReader:
    """The `Reader` of NVML."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self._slow: dict[str, dict[str, float | None]] = {}

    def open(self) -> None:
        """Import `pynvml` and initialise NVML. Raises VendorError."""
        try:
            import pynvml  # noqa: PLC0415 - only the helper of a host that has NVIDIA GPUs may load it
        except ImportError as error:
            raise VendorError("nvidia-ml-py is not installed; install fleetd[nvidia]", missing=True) from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            missing = error.value in {getattr(pynvml, name) for name in _MISSING}
            raise VendorError(f"NVML does not start: {error}", missing=missing) from error
        self._nvml = pynvml
        _give_memory_back()

    def inventory(self) -> list[dict[str, str | int | None]]:
        """The GPUs that NVML can name; one that is lost has no name and is left out. Raises VendorError."""
        nvml = self._nvml
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise VendorError(f"NVML cannot count the GPUs: {error}") from error
        driver = _Calls(nvml).one(nvml.nvmlSystemGetDriverVersion)
        found: list[dict[str, str | int | None]] = []
        lost: list[str] = []
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                found.append(
                    {
                        "gpu": _text(nvml.nvmlDeviceGetUUID(handle)),
                        "index": index,
                        "vendor": "nvidia",
                        "sku": _text(nvml.nvmlDeviceGetName(handle)),
                        "pci_address": _text(nvml.nvmlDeviceGetPciInfo(handle).busId),
                        "driver_version": _text(driver) if driver else None,
                    }
                )
            except nvml.NVMLError as error:
                lost.append(f"GPU {index}: {error}")
        if not found:
            raise VendorError(f"NVML names no GPU ({'; '.join(lost) or 'it counts none'})")
        return found

    def sample(self, gpu: str, *, slow: bool) -> Reading:
        """Read one GPU by its UUID; see `Reader`."""
        nvml = self._nvml
        calls = _Calls(nvml)
        handle = self._handles.get(gpu)
        if handle is None:
            handle = self._handles[gpu] = calls.whole_gpu(lambda: nvml.nvmlDeviceGetHandleByUUID(gpu))
        reading = _quick(nvml, handle, calls)
        if slow:
            self._slow[gpu] = _slow(nvml, handle, calls)
        if calls.last_error and all(value is None for value in reading.values()):
            raise VendorError(calls.last_error)
        return {**reading, **self._slow.get(gpu, {})}

    def close(self) -> None:
        """Shut NVML down, so that a GPU reset finds no handle of ours."""
        nvml, self._nvml = self._nvml, None
        self._handles.clear()
        if nvml is not None:
            with suppress(nvml.NVMLError):  # the process ends now, and its handles with it
                nvml.nvmlShutdown()


class _Calls:
    """Makes NVML calls and tells a reading that the part does not have from a GPU that does not answer."""

    def __init__(self, nvml: Any) -> None:
        self._error: type[Exception] = nvml.NVMLError
        self._silent = {getattr(nvml, name) for name in _SILENT}
        self.last_error = ""

    def whole_gpu(self, call: Callable[[], Any]) -> Any:
        """A call without which there is nothing to say. Raises VendorError."""
        try:
            return call()
        except self._error as error:
            raise VendorError(str(error)) from error

    def one(self, call: Callable[[], Any]) -> Any:
        """A call for one reading: None when it cannot be had. Raises VendorError when the GPU does not answer."""
        try:
            return call()
        except self._error as error:
            if getattr(error, "value", None) in self._silent:
                raise VendorError(str(error)) from error
            self.last_error = str(error)
            return None


def _quick(nvml: Any, handle: Any, calls: _Calls) -> dict[str, float | None]:
    one = calls.one
    fields = (nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_FI_DEV_MEMORY_TEMP)
    instant, memory_temperature = one(lambda: nvml.nvmlDeviceGetFieldValues(handle, list(fields))) or (None, None)
    utilization = one(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    memory = one(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    reasons = one(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    return {
        "power_watts": _scaled(one(lambda: nvml.nvmlDeviceGetPowerUsage(handle)), 1e-3),
        "power_instant_watts": _field(instant, 1e-3),
        "power_limit_watts": _scaled(one(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle)), 1e-3),
        "temperature_celsius": _scaled(one(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
        "memory_temperature_celsius": _field(memory_temperature),
        "sm_clock_hertz": _scaled(one(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)), 1e6),
        "memory_clock_hertz": _scaled(one(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)), 1e6),
        "utilization_ratio": _scaled(utilization and utilization.gpu, 1e-2),
        "memory_used_bytes": _scaled(memory and memory.used, bits=64),
        "memory_total_bytes": _scaled(memory and memory.total, bits=64),
        "throttle_power_ratio": _bit(reasons, _REASON_POWER_CAP),
        "throttle_thermal_ratio": _bit(reasons, _REASON_THERMAL),
        "throttle_power_brake_ratio": _bit(reasons, _REASON_POWER_BRAKE),
    }


def _slow(nvml: Any, handle: Any, calls: _Calls) -> dict[str, float | None]:
    """Counters that are expensive (energy) or change once in days (the rest)."""
    one = calls.one
    rows = one(lambda: nvml.nvmlDeviceGetRemappedRows(handle)) or (None, None, None, None)
    kinds = (nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    ecc = [one(partial(nvml.nvmlDeviceGetTotalEccErrors, handle, kind, nvml.NVML_VOLATILE_ECC)) for kind in kinds]
    return {
        "energy_joules_total": _scaled(one(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)), 1e-3, bits=64),
        "ecc_corrected_total": _scaled(ecc[0], bits=64),
        "ecc_uncorrected_total": _scaled(ecc[1], bits=64),
        "row_remap_pending_ratio": _scaled(rows[2]),
        "row_remap_failed_ratio": _scaled(rows[3]),
        "pcie_replay_total": _scaled(one(lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle))),
    }


def _scaled(value: Any, scale: float = 1.0, *, bits: int = 32) -> float | None:
    """A number in fleetd's unit; None for what NVML gives instead of a number (maximum, negative, NaN, text)."""
    if not isinstance(value, int | float) or value < 0 or value == _ABSENT.get(bits) or not math.isfinite(value):
        return None
    return value * scale


def _field(field: Any, scale: float = 1.0) -> float | None:
    """One `nvmlFieldValue_t`: each has a return code and a type of its own."""
    if field is None or field.nvmlReturn != 0 or not 0 <= field.valueType < len(_UNION_FIELDS):
        return None
    return _scaled(getattr(field.value, _UNION_FIELDS[field.valueType]), scale, bits=_WIDTHS[field.valueType])


def _bit(reasons: Any, mask: int) -> float | None:
    return None if reasons is None else float(bool(reasons & mask))


def _give_memory_back() -> None:
    """Return what importing and initialising left free in the heap, which counts as the agent's memory (glibc only)."""
    import ctypes  # noqa: PLC0415 - here with the binding, which is built on it

    gc.collect()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _text(value: str | bytes) -> str:
    """Older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else value
