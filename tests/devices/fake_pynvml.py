"""A stand-in for the binding, loaded by the helper process as `pynvml`; what it does is told by a JSON file.

FAKE_NVML names a file: {"init_error": code?, "init_hang": bool?, "print": text?, "driver": text or null?,
"gpus": {UUID: {"error": code?,
"errors": {function: code}, "values": {function: value}, "hang", "stubborn", "die", "garbage", "unnamed": bool?}}}.
A hang lasts until the file with the suffix .go is there; .starts, .ends and .calls record what was called.
"""

import json
import os
import signal
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NO_PERMISSION = 4
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_TIMEOUT = 10
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_RESET_REQUIRED = 16
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
NVML_ERROR_GPU_NOT_FOUND = 28
NVML_ERROR_UNKNOWN = 999
NVML_FI_DEV_POWER_INSTANT = 186
NVML_FI_DEV_MEMORY_TEMP = 82
NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_SM = 1
NVML_CLOCK_MEM = 2
NVML_VOLATILE_ECC = 0
NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
nvmlMemory_v2 = 0x2000028  # noqa: N816 - the binding's name

_FILE = Path(os.environ["FAKE_NVML"])


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def _plan() -> dict:
    return json.loads(_FILE.read_text())


def nvmlInit() -> None:  # noqa: N802 - the binding's name
    plan = _plan()
    with _FILE.with_suffix(".starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    if plan.get("print"):
        print(plan["print"], flush=True)  # noqa: T201 - as a library does that prints
    if plan.get("init_hang"):
        _hang(stubborn=False)
    if plan.get("init_error"):
        raise NVMLError(plan["init_error"])


def nvmlShutdown() -> None:  # noqa: N802 - the binding's name
    with _FILE.with_suffix(".ends").open("a") as ends:
        ends.write(f"{os.getpid()}\n")


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802 - the binding's name
    driver = _plan().get("driver", "580.95.05")
    if driver is None:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return driver


def nvmlDeviceGetCount() -> int:  # noqa: N802 - the binding's name
    return len(_plan()["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> str:  # noqa: N802 - the binding's name
    gpu = list(_plan()["gpus"])[index]
    if _plan()["gpus"][gpu].get("unnamed"):
        raise NVMLError(NVML_ERROR_GPU_IS_LOST)
    return gpu


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:  # noqa: N802 - the binding's name
    return uuid


def _hang(*, stubborn: bool) -> None:
    if stubborn:  # as a process in uninterruptible sleep
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    while not _FILE.with_suffix(".go").exists():
        threading.Event().wait(0.02)


_DEFAULTS = {
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetPowerUsage": 692_123,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTotalEnergyConsumption": 5_000_000_000_123,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetClockInfo": 1425,
    "nvmlDeviceGetTotalEccErrors": 7,
    "nvmlDeviceGetRemappedRows": [1, 0, 1, 0],
    "nvmlDeviceGetPcieReplayCounter": 3,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x84,
    "nvmlDeviceGetUtilizationRates": {"gpu": 97, "memory": 40},
    "nvmlDeviceGetMemoryInfo": {"used": 2**33, "total": 141 * 2**30},
    "nvmlDeviceGetPciInfo": {"busId": "00000000:1B:00.0"},
    "nvmlDeviceGetFieldValues": [
        {"nvmlReturn": 0, "valueType": 1, "value": {"uiVal": 695_500}},
        {"nvmlReturn": 0, "valueType": 1, "value": {"uiVal": 72}},
    ],
}


def _replies() -> int:
    """The helper's own pipe to its parent, which no library should know."""
    return next(fd for fd in range(3, 64) if _is_pipe(fd))


def _is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


def _call(name: str, gpu: str) -> object:
    with _FILE.with_suffix(".calls").open("a") as calls:
        calls.write(f"{gpu} {name}\n")
    plan = _plan()["gpus"][gpu]
    if plan.get("die"):
        os._exit(9)
    if plan.get("garbage"):
        os.write(_replies(), b"<html>not a reply</html>\n")
    if plan.get("hang") and name == "nvmlDeviceGetPowerUsage":
        _hang(stubborn=bool(plan.get("stubborn")))
    error = plan.get("errors", {}).get(name) or (plan.get("error") if name not in _NAMING else None)
    if error:
        raise NVMLError(error)
    value = plan.get("values", {}).get(name, _DEFAULTS.get(name))
    return json.loads(json.dumps(value), object_hook=lambda fields: SimpleNamespace(**fields))


_NAMING = ("nvmlDeviceGetName", "nvmlDeviceGetPciInfo")


def nvmlDeviceGetUUID(handle: str) -> str:  # noqa: N802 - the binding's name
    return handle


def __getattr__(name: str) -> object:
    if name not in _DEFAULTS:
        raise AttributeError(name)
    return lambda handle, *_args, **_kwargs: _call(name, handle)
