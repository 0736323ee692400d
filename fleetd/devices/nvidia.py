"""NVIDIA: the `Reader` of NVML, through nvidia-ml-py. Runs in the helper process only. NVML takes 18 MiB of memory."""

import gc
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fleetd.devices import nvidia_power, nvidia_read
from fleetd.devices.nvidia_calls import Calls, codes
from fleetd.devices.nvidia_read import Gpm
from fleetd.devices.parts import part_of
from fleetd.devices.reader import Reading, VendorError

_MISSING = ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")
"""Errors of opening the library that say that there is nothing to talk to."""
_NOT_THERE = ("NVML_ERROR_NOT_FOUND", "NVML_ERROR_GPU_NOT_FOUND")
_TOO_OLD = ("NVML_ERROR_FUNCTION_NOT_FOUND",)


class NvidiaReader:
    """The `Reader` of NVML."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._gpus: dict[str, tuple[Calls, Gpm]] = {}
        self._places: Mapping[str, str] = {}

    def places(self, known: Mapping[str, str]) -> None:
        """See `Placed`."""
        self._places = known

    def open(self) -> None:
        """Import `pynvml` and initialise NVML. Raises VendorError."""
        try:
            import pynvml  # noqa: PLC0415 - only the helper of a host that has NVIDIA GPUs may load it
        except ImportError as error:
            raise VendorError("nvidia-ml-py is not installed; install fleetd[nvidia]", missing=True) from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            if error.value in codes(pynvml, _TOO_OLD):
                raise VendorError("NVML is too old for nvidia-ml-py; update the NVIDIA driver", missing=True) from error
            missing = error.value in codes(pynvml, _MISSING)
            raise VendorError(f"NVML does not start: {error}", missing=missing) from error
        self._nvml = pynvml
        _give_memory_back()

    def inventory(self) -> list[dict[str, Any]]:
        """The GPUs that NVML can name; one that is lost has no name and is left out. Raises VendorError."""
        nvml = self._nvml
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise VendorError(f"NVML cannot count the GPUs: {error}") from error
        found: list[dict[str, Any]] = []
        lost: list[str] = []
        for index in range(count):
            try:
                found.append(self._named(index))
            except nvml.NVMLError as error:
                lost.append(f"GPU {index}: {error}")
        if not found:
            raise VendorError(f"NVML names no GPU ({'; '.join(lost) or 'it counts none'})")
        return found

    def _named(self, index: int) -> dict[str, Any]:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return {
            "gpu": _text(nvml.nvmlDeviceGetUUID(handle)),
            "index": index,
            "vendor": "nvidia",
            "sku": _text(nvml.nvmlDeviceGetName(handle)),
            "pci_address": _text(nvml.nvmlDeviceGetPciInfo(handle).busId),
            "vbios": self._word("nvmlDeviceGetVbiosVersion", handle),
            "firmware": self._word("nvmlDeviceGetGspFirmwareVersion", handle),
            "driver_version": self._word("nvmlSystemGetDriverVersion"),
            "partitions": self._mig_devices(handle),
        }

    def _mig_devices(self, handle: Any) -> list[str]:
        """UUIDs of the MIG devices of a GPU; none where MIG is off, or cannot be."""
        nvml, found = self._nvml, []
        with suppress(nvml.NVMLError, AttributeError):  # an older binding or driver has no MIG
            if nvml.nvmlDeviceGetMigMode(handle)[0]:
                for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                    with suppress(nvml.NVMLError_NotFound):  # the instances need not be without gaps
                        found.append(
                            _text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)))
                        )
        return found

    def _word(self, name: str, *args: Any) -> str | None:
        """A text that is good to have."""
        try:
            value = getattr(self._nvml, name)(*args)
        except (self._nvml.NVMLError, AttributeError, UnicodeDecodeError):
            return None
        return _text(value) if isinstance(value, str | bytes) else None

    def sample(self, gpu: str, *, slow: bool) -> Reading:
        """Read one GPU by its UUID; see `Reader`."""
        nvml = self._nvml
        calls, gpm = self._gpus.get(gpu) or self._attach(gpu)
        calls.last_error = ""
        reading = nvidia_read.quick(nvml, calls)
        if slow:
            reading |= {**nvidia_read.slow(nvml, calls), **gpm.read()}
        if calls.last_error and all(value is None or value == [] for value in reading.values()):
            raise VendorError(calls.last_error)
        return reading

    def power(self, gpu: str, *, energy: bool, samples: bool) -> Mapping[str, Any]:
        """Limits and draw of one GPU; see `Powered`."""
        calls, _ = self._gpus.get(gpu) or self._attach(gpu)
        return nvidia_power.power(calls, energy=energy, samples=samples)

    def _attach(self, gpu: str) -> tuple[Calls, Gpm]:
        nvml = self._nvml
        try:
            calls = Calls(nvml, self._handle(gpu))
            calls.part = part_of(_text(calls.get("nvmlDeviceGetName") or ""))
            self._gpus[gpu] = calls, Gpm(nvml, calls)
        except nvml.NVMLError as error:
            gone = error.value in codes(nvml, _NOT_THERE)
            raise VendorError("NVML no longer names it" if gone else str(error)) from error
        return self._gpus[gpu]

    def _handle(self, gpu: str) -> Any:
        """By its place, which touches this GPU alone; by its UUID NVML looks at all (nvml.h). Raises NVMLError."""
        nvml = self._nvml
        if place := self._places.get(gpu):
            with suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByPciBusId(place)
                if _text(nvml.nvmlDeviceGetUUID(handle)) == gpu:
                    return handle  # else another part has been plugged in there
        return nvml.nvmlDeviceGetHandleByUUID(gpu)

    def close(self) -> None:
        """Shut NVML down, so that a GPU reset finds no handle of ours."""
        nvml, self._nvml = self._nvml, None
        if nvml is None:
            return
        with suppress(nvml.NVMLError):  # the process ends now, and its handles with it
            for _, gpm in self._gpus.values():
                gpm.close()
        self._gpus.clear()
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _give_memory_back() -> None:
    """Return what importing and initialising left free in the heap, which counts as the agent's memory (glibc only)."""
    import ctypes  # noqa: PLC0415 - here with the binding, which is built on it

    gc.collect()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _text(value: str | bytes) -> str:
    """Older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else value
