"""AMD: readings of AMD SMI in fleetd's units. Runs in the helper process only.

What is not done, and why: a GPU that is suspended is not asked, since asking wakes it and has invented RAS errors;
`amdsmi_get_violation_status` sleeps inside the library, so the same accumulators are read from `gpu_metrics`;
`amdsmi_gpu_xgmi_error_status` clears what it reads; profiling counters belong to the user's profiler.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleetd.devices import amd_power, amd_readings
from fleetd.devices.pci import PCI_DEVICES
from fleetd.devices.reader import Reading, VendorError

_MISSING = (4, 5, 34, 51)
"""Status of opening that says that there is nothing to talk to: no module, no symbol, no driver (two wordings)."""
_SILENT = (8, 12, 31, 32, 34)
"""Status that speaks for the whole GPU: time-out, I/O error, not found, not initialised, driver not loaded."""
_FOR_GOOD = (2, 3, 5, 10)
"""Not supported, not implemented, no such symbol, no permission: not asked again by this process."""
_GONE = 31
"""Not found: of a handle that was one, that the GPU has been taken out or fell off the bus."""
_WHOLE_MEMORY = "NPS1"
"""One memory partition: the first partition of the GPU tells all of its memory."""


class AmdReader:
    """The `Reader` of AMD SMI.

    Partitions of one GPU (CPX, DPX, …) are one GPU, read through the first of them: they share board, power and fate,
    and the firmware tells power, temperatures and counters of the whole. The others are named and not asked.
    """

    def __init__(self, pci_devices: Path = PCI_DEVICES) -> None:
        """`pci_devices` is where the kernel shows PCI devices and whether they are suspended."""
        self._pci_devices = pci_devices
        self._smi: Any = None
        self._handles: dict[str, Any] = {}
        self._addresses: dict[str, str] = {}
        self._gauges: dict[str, amd_readings.Between] = {}
        self._refused: dict[str, set[str]] = {}
        self._places: Mapping[str, str] = {}
        self._split_memory: set[str] = set()

    def places(self, known: Mapping[str, str]) -> None:
        """See `Placed`."""
        self._places = known

    def open(self) -> None:
        """Import `amdsmi`, which loads libamd_smi.so, and initialise it. Raises VendorError."""
        try:
            import amdsmi  # noqa: PLC0415 - only the helper of a host that has AMD GPUs may load it
        except ModuleNotFoundError as error:
            raise VendorError("amdsmi is not installed; install fleetd[amd]", missing=True) from error
        except (KeyError, OSError) as error:  # the binding prints why, and then stumbles over it
            raise VendorError("libamd_smi.so is not found; set ROCM_HOME or LD_LIBRARY_PATH", missing=True) from error
        except AttributeError as error:
            raise VendorError(f"libamd_smi.so does not fit the amdsmi binding: {error}", missing=True) from error
        try:
            amdsmi.amdsmi_init(amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)
        except amdsmi.AmdSmiException as error:
            raise VendorError(f"AMD SMI does not start: {_say(error)}", missing=_status(error) in _MISSING) from error
        self._smi = amdsmi

    def inventory(self) -> list[dict[str, Any]]:
        """The GPUs that the library can name; one that has no name is left out. Raises VendorError."""
        self._handles.clear()  # a handle of a GPU that is gone must not be used again
        found: list[dict[str, Any]] = []
        nameless: list[str] = []
        for parts in self._boards(nameless).values():
            try:
                found.append(self._entry(len(found), parts))
            except (self._smi.AmdSmiException, ValueError) as error:  # ValueError: a serial number that is none
                nameless.append(_say(error))
        if not found:
            raise VendorError(f"AMD SMI names no GPU ({'; '.join(nameless) or 'it counts none'})")
        return found

    def _boards(self, nameless: list[str]) -> dict[str, list[tuple[str, Any]]]:
        """Address and handle of each partition by the board it is on. Asks no GPU: addresses are the library's own."""
        smi = self._smi
        try:
            handles = smi.amdsmi_get_processor_handles()
        except smi.AmdSmiException as error:
            raise VendorError(f"AMD SMI cannot list the GPUs: {_say(error)}") from error
        boards: dict[str, list[tuple[str, Any]]] = {}
        for handle in handles:
            try:
                address = smi.amdsmi_get_gpu_device_bdf(handle)
            except smi.AmdSmiException as error:
                nameless.append(_say(error))
                continue
            boards.setdefault(address.rpartition(".")[0], []).append((address, handle))
        for parts in boards.values():
            parts.sort(key=lambda part: part[0])
        return boards

    def _entry(self, index: int, parts: list[tuple[str, Any]]) -> dict[str, Any]:
        """What the inventory says of a GPU. Raises AmdSmiException or ValueError when it has no name."""
        smi, (address, handle) = self._smi, parts[0]
        gpu = smi.amdsmi_get_gpu_device_uuid(handle)
        name = smi.amdsmi_get_gpu_asic_info(handle)["market_name"]
        self._keep(gpu, parts)
        entry = {"gpu": gpu, "index": index, "vendor": "amd", "sku": name, "pci_address": address}
        if not self._suspended(gpu):
            calls = _Calls(smi, handle, self._refused.setdefault(gpu, set()))
            with suppress(VendorError):  # a GPU that has a name but does not answer is told by its samples
                entry |= amd_readings.versions(calls)
        return entry | ({"partitions": [part for part, _ in parts]} if len(parts) > 1 else {})

    def _keep(self, gpu: str, parts: list[tuple[str, Any]]) -> None:
        self._addresses[gpu], self._handles[gpu] = parts[0]
        self._split_memory.discard(gpu)
        if len(parts) > 1 and not self._suspended(gpu):
            calls = _Calls(self._smi, parts[0][1], self._refused.setdefault(gpu, set()))
            with suppress(VendorError):
                if calls.one("gpu_memory_partition") != _WHOLE_MEMORY:
                    self._split_memory.add(gpu)

    def _find(self, gpu: str) -> Any:
        """The handle of a GPU that this helper has not been asked for yet, by its place if that is known."""
        board = self._places.get(gpu, "").rpartition(".")[0]
        if parts := self._boards([]).get(board):
            with suppress(self._smi.AmdSmiException, ValueError):
                if self._smi.amdsmi_get_gpu_device_uuid(parts[0][1]) == gpu:
                    self._keep(gpu, parts)
                    return self._handles[gpu]
        self.inventory()
        return self._handles.get(gpu)

    def sample(self, gpu: str, *, slow: bool) -> Reading:
        """Read one GPU by its UUID; see `Reader`. Of a suspended GPU everything is absent."""
        handle = self._handles[gpu] if gpu in self._handles else self._find(gpu)
        if handle is None:
            raise VendorError("AMD SMI no longer names it")
        if self._suspended(gpu):
            self._gauges.pop(gpu, None)
            return {}
        calls = _Calls(self._smi, handle, self._refused.setdefault(gpu, set()))
        between = self._gauges.setdefault(gpu, amd_readings.Between())
        reading = amd_readings.quick(calls, between)
        dear = amd_readings.slow(calls, self._smi) if slow else {}
        if calls.last_error and all(value is None or value == [] for value in reading.values()):
            raise VendorError(calls.last_error)
        if gpu in self._split_memory:  # what is told is of the first partition, and no part of the whole is the whole
            reading |= {"memory_used_bytes": None, "memory_total_bytes": None}
        return {**reading, **dear}

    def power(self, gpu: str, *, energy: bool, samples: bool) -> Mapping[str, Any]:
        """Limits and draw of one GPU; see `Powered`. AMD SMI offers no ring of samples."""
        del samples
        handle = self._handles[gpu] if gpu in self._handles else self._find(gpu)
        if handle is None or self._suspended(gpu):
            raise VendorError("AMD SMI no longer names it" if handle is None else "it is suspended")
        calls = _Calls(self._smi, handle, self._refused.setdefault(gpu, set()))
        return amd_power.power(calls, self._smi, handle, energy=energy)

    def close(self) -> None:
        """Shut the library down, so that a GPU reset finds no handle of ours."""
        smi, self._smi = self._smi, None
        self._handles.clear()
        if smi is not None:
            with suppress(smi.AmdSmiException):  # the process ends now, and its handles with it
                smi.amdsmi_shut_down()

    def _suspended(self, gpu: str) -> bool:
        try:
            status = (self._pci_devices / self._addresses[gpu] / "power" / "runtime_status").read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return False  # a container without /sys: the driver is asked
        return status.strip() in {"suspended", "suspending"}


class _Calls:
    """Makes calls for one GPU, and tells a reading that the part does not have from a GPU that does not answer."""

    def __init__(self, smi: Any, handle: Any, refused: set[str]) -> None:
        self._smi = smi
        self._handle = handle
        self._refused = refused
        self.last_error = ""

    def one(self, name: str, *arguments: Any) -> Any:
        """A call for one reading: None when it cannot be had. Raises VendorError when the GPU does not answer."""
        key = f"{name}{arguments}"
        if key in self._refused:
            return None
        call: Callable[..., Any] = getattr(self._smi, f"amdsmi_get_{name}")
        try:
            return call(self._handle, *arguments)
        except self._smi.AmdSmiException as error:
            status = _status(error)
            if status in _SILENT:
                lost = "the GPU is lost: " if status == _GONE else ""
                raise VendorError(f"{lost}{name}: {_say(error)}") from error
            if status in _FOR_GOOD:
                self._refused.add(key)
            self.last_error = f"{name}: {_say(error)}"
        except (ValueError, KeyError) as error:  # the binding met a number that it has no name for
            self.last_error = f"{name}: the binding does not understand the answer: {error}"
        return None


def _status(error: Exception) -> int | None:
    code = getattr(error, "err_code", None)
    return code if isinstance(code, int) else None


def _say(error: Exception) -> str:
    return str(getattr(error, "err_info", error)).replace("\n", " ")
