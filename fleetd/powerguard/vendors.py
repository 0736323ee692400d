"""The only calls that set something on a GPU: NVML's limit and locked clock, AMD SMI's power cap. By plain ctypes.

Nothing is read but who a device is: a limit written to the wrong GPU is worse than none. Whether a limit is in force is
read back by the agent, through the vendor's own binding. Sources: nvml.h, amdsmi.h (7.x).
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

_AMDSMI_INIT_GPUS = 2
_AMDSMI_UUID_BYTES = 38
_NVML_UUID_BYTES = 96
_MESSAGES = {
    "nvidia": {2: "out of range", 3: "not supported (MIG, or a virtual function)", 4: "no permission", 15: "GPU lost"},
    "amd": {1: "out of range", 2: "not supported", 10: "no permission", 31: "not found"},
}
_SENSORS = {"ppt0": 0, "ppt1": 1}


class CannotWrite(Exception):  # noqa: N818 - it says what there is not
    """A limit was not written; the message is one line."""


class Vendor(Protocol):
    """Writes the limits of one vendor's GPUs. Any call may block for as long as the driver likes."""

    def write(self, gpu: str, pci: str, knob: str, watts: float) -> None:
        """Set one limit. Raises CannotWrite."""

    def lock_clock(self, gpu: str, pci: str, hertz: float | None) -> None:
        """Let no clock of the GPU's cores be higher than this; None: unlock it. Raises CannotWrite."""

    def close(self) -> None:
        """Let go of the driver until the next write, so that it can be reloaded and GPUs can be reset."""


def _check(vendor: str, what: str, status: int) -> None:
    if status != 0:
        raise CannotWrite(f"{what}: {_MESSAGES[vendor].get(status, 'error')} ({status})")


def _library(*names: str) -> Any:
    said = ""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            said = said or str(error)
    raise CannotWrite(said)


@contextmanager
def _calls_of(library: str) -> Iterator[None]:
    """A library that lacks a call is too old to write through. Raises CannotWrite."""
    try:
        yield
    except AttributeError as error:
        raise CannotWrite(f"{library} is too old: {error}") from error


class Nvml:
    """NVIDIA. One initialisation for the process, tried again as long as it fails."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Any = None

    def _opened(self) -> Any:
        with self._lock:
            if self._open is None:
                library = _library("libnvidia-ml.so.1")
                with _calls_of("NVML"):
                    library.nvmlDeviceGetHandleByPciBusId_v2.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
                    library.nvmlDeviceGetHandleByUUID.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
                    library.nvmlDeviceGetUUID.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint]
                    library.nvmlDeviceSetPowerManagementLimit.argtypes = [ctypes.c_void_p, ctypes.c_uint]
                    started = library.nvmlInitWithFlags(0)
                _check("nvidia", "NVML does not start", started)
                self._open = library
            return self._open

    def close(self) -> None:
        """See `Vendor`."""
        with self._lock:
            library, self._open = self._open, None
            if library is not None:
                library.nvmlShutdown()

    def _handle(self, library: Any, gpu: str, pci: str) -> ctypes.c_void_p:
        """By its place, which touches no other GPU; by its name when another part stands there. Raises CannotWrite."""
        handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(_NVML_UUID_BYTES)
        if pci and library.nvmlDeviceGetHandleByPciBusId_v2(pci.encode(), ctypes.byref(handle)) == 0:
            status = library.nvmlDeviceGetUUID(handle, name, _NVML_UUID_BYTES)
            if status == 0 and name.value.decode(errors="replace") == gpu:
                return handle
        _check("nvidia", "not found", library.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(handle)))
        return handle

    def write(self, gpu: str, pci: str, knob: str, watts: float) -> None:
        """See `Vendor`. The unit of the call is mW, rounded down."""
        if knob != "limit":
            raise CannotWrite(f"NVIDIA has no {knob}")
        library = self._opened()
        handle = self._handle(library, gpu, pci)
        _check("nvidia", "power limit", library.nvmlDeviceSetPowerManagementLimit(handle, int(watts * 1000 + 1e-6)))

    def lock_clock(self, gpu: str, pci: str, hertz: float | None) -> None:
        """See `Vendor`. The unit of the call is MHz, rounded down; the lowest clock stays free."""
        library = self._opened()
        handle = self._handle(library, gpu, pci)
        try:
            lock, unlock = library.nvmlDeviceSetGpuLockedClocks, library.nvmlDeviceResetGpuLockedClocks
        except AttributeError as error:
            raise CannotWrite("locked clock: this driver is too old for it") from error
        lock.argtypes, unlock.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], [ctypes.c_void_p]
        if hertz is None:
            _check("nvidia", "unlocking the clock", unlock(handle))
        else:
            _check("nvidia", "locked clock", lock(handle, 0, int(hertz / 1e6 + 1e-6)))


class AmdSmi:
    """AMD. Handles are named once; a GPU that is not among them makes the library be asked anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Any = None
        self._handles: dict[str, ctypes.c_void_p] = {}

    def _opened(self) -> Any:
        with self._lock:
            if self._open is None:
                home = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm"
                library = _library(str(Path(home) / "lib" / "libamd_smi.so"), "libamd_smi.so")
                pointer = ctypes.c_void_p
                with _calls_of("AMD SMI"):
                    library.amdsmi_init.argtypes = [ctypes.c_uint64]
                    library.amdsmi_get_socket_handles.argtypes = [pointer, pointer]
                    library.amdsmi_get_processor_handles.argtypes = [pointer, pointer, pointer]
                    library.amdsmi_get_gpu_device_uuid.argtypes = [pointer, pointer, ctypes.c_char_p]
                    library.amdsmi_set_power_cap.argtypes = [pointer, ctypes.c_uint32, ctypes.c_uint64]
                _check("amd", "AMD SMI does not start", library.amdsmi_init(_AMDSMI_INIT_GPUS))
                self._open = library
            return self._open

    def close(self) -> None:
        """See `Vendor`."""
        with self._lock:
            library, self._open = self._open, None
            self._handles = {}
            if library is not None:
                library.amdsmi_shut_down()

    def _handle(self, library: Any, gpu: str) -> ctypes.c_void_p:
        with self._lock:
            if gpu not in self._handles:
                self._handles = dict(self._named(library))
            if gpu not in self._handles:
                raise CannotWrite("not found: AMD SMI does not name it")
            return self._handles[gpu]

    def _named(self, library: Any) -> list[tuple[str, ctypes.c_void_p]]:
        sockets = ctypes.c_uint32()
        _check("amd", "sockets", library.amdsmi_get_socket_handles(ctypes.byref(sockets), None))
        each = (ctypes.c_void_p * max(1, sockets.value))()
        _check("amd", "sockets", library.amdsmi_get_socket_handles(ctypes.byref(sockets), each))
        found = []
        for number in range(sockets.value):
            count, where = ctypes.c_uint32(), ctypes.c_void_p(each[number])
            _check("amd", "processors", library.amdsmi_get_processor_handles(where, ctypes.byref(count), None))
            parts = (ctypes.c_void_p * max(1, count.value))()
            _check("amd", "processors", library.amdsmi_get_processor_handles(where, ctypes.byref(count), parts))
            for place in range(count.value):
                handle, size = ctypes.c_void_p(parts[place]), ctypes.c_uint32(_AMDSMI_UUID_BYTES)
                name = ctypes.create_string_buffer(_AMDSMI_UUID_BYTES)
                if library.amdsmi_get_gpu_device_uuid(handle, ctypes.byref(size), name) == 0:
                    found.append((name.value.decode(errors="replace"), handle))
        return found

    def write(self, gpu: str, pci: str, knob: str, watts: float) -> None:
        """See `Vendor`. The unit of the call is µW, rounded down; AMD SMI has no way to a GPU by its place alone."""
        del pci
        if knob not in _SENSORS:
            raise CannotWrite(f"AMD has no {knob}")
        library = self._opened()
        handle = self._handle(library, gpu)
        _check("amd", knob, library.amdsmi_set_power_cap(handle, _SENSORS[knob], int(watts * 1_000_000 + 1e-3)))

    def lock_clock(self, gpu: str, pci: str, hertz: float | None) -> None:
        """See `Vendor`. AMD's actuators are the two limiters."""
        raise CannotWrite(f"{gpu} at {pci}: of AMD no clock is locked, not at {hertz}")


def vendors() -> dict[str, Vendor]:
    """Name → writer; no library is loaded before the first write."""
    return {"nvidia": Nvml(), "amd": AmdSmi()}
