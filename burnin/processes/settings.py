"""Reads how GPUs are set, what is in use of them and by whom, without a context on them. Torch-free.

NVIDIA: by NVML, else by `nvidia-smi`; AMD: by amdsmi (written from its interface, not run on hardware yet). Nothing
here writes. Runs in a child process, as vendor calls may hang.
"""

import select
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

from burnin.processes.readers import number, open_reader, smi_rows
from burnin.verdict.settings import Settings

LOOK_EVERY_S = 0.5
"""Between two looks for other users: a run that gives way has two seconds, of which this is the longest part."""


def settings_of(backend: str, gpus: Collection[str]) -> dict[str, Settings]:
    """How these GPUs are set; those that cannot be read are left out, and so is what stands in for a GPU."""
    if backend != "cuda":
        return {}
    found = {}
    for gpu in gpus:
        for read in (_nvml, _amd, _smi):
            settings = read(gpu)
            if settings is not None:
                found[gpu] = settings
                break
    return found


def _nvml(gpu: str) -> Settings | None:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
    except nvml.NVMLError:
        return None

    def ask(name: str, *arguments: int) -> Any:
        try:
            return getattr(nvml, name)(handle, *arguments)
        except nvml.NVMLError:
            return None

    memory = ask("nvmlDeviceGetMemoryInfo")
    persistence = ask("nvmlDeviceGetPersistenceMode")
    return Settings(
        power_limit_watts=_scaled(ask("nvmlDeviceGetPowerManagementLimit"), 1e-3),
        application_sm_clock_hertz=_scaled(ask("nvmlDeviceGetApplicationsClock", nvml.NVML_CLOCK_SM), 1e6),
        application_memory_clock_hertz=_scaled(ask("nvmlDeviceGetApplicationsClock", nvml.NVML_CLOCK_MEM), 1e6),
        persistence=bool(persistence) if persistence is not None else None,
        compute_mode=ask("nvmlDeviceGetComputeMode"),
        memory_used_bytes=int(memory.used) if memory is not None else None,
    )


def _amd(gpu: str) -> Settings | None:
    try:
        smi = import_module("amdsmi")
    except (ImportError, OSError, KeyError):  # without ROCm's library its import itself fails, in several ways
        return None
    try:
        smi.amdsmi_init()
        handles = [
            handle
            for handle in smi.amdsmi_get_processor_handles()
            if gpu.removeprefix("GPU-").lower() in str(smi.amdsmi_get_gpu_device_uuid(handle)).lower()
        ]
    except smi.AmdSmiException:
        return None
    if not handles:
        return None

    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(smi, name)(handles[0], *arguments)
        except smi.AmdSmiException:
            return None

    cap = ask("amdsmi_get_power_cap_info") or {}
    used = ask("amdsmi_get_gpu_memory_usage", smi.AmdSmiMemoryType.VRAM)
    level = ask("amdsmi_get_gpu_perf_level")
    return Settings(
        power_limit_watts=_scaled(cap.get("power_cap"), 1e-6),
        performance_level=str(level) if level is not None else None,
        memory_used_bytes=int(used) if isinstance(used, int) else None,
    )


def _smi(gpu: str) -> Settings | None:
    fields = "power.limit,clocks.applications.graphics,clocks.applications.memory,memory.used"
    rows = smi_rows(gpu, fields)
    if not rows:
        return None
    limit, graphics, memory, used = (number(cell) for cell in rows[0])
    return Settings(
        power_limit_watts=limit,
        application_sm_clock_hertz=_scaled(graphics, 1e6),
        application_memory_clock_hertz=_scaled(memory, 1e6),
        memory_used_bytes=round(used * (1 << 20)) if used is not None else None,
    )


def _scaled(value: object, unit: float) -> float | None:
    """A reading in base units; None where there is none, or the library writes a word for it."""
    return value * unit if isinstance(value, int | float) and not isinstance(value, bool) else None


def lookout(
    users: Callable[[], Mapping[str, Collection[int]]],
    own: Collection[int],
    *,
    wait: Callable[[], None],
) -> dict[str, list[int]]:
    """Look until somebody else uses a GPU: GPU → process ids of others.

    In a container the driver may tell other numbers than the processes know of themselves. So what is there at the
    first look, one process a GPU, is taken for our own, whatever its number.

    Args:
        users: GPU → processes that use it.
        own: processes of this run.
        wait: until the next look.
    """
    first: dict[str, set[int]] = {}
    while True:
        for gpu, pids in users().items():
            strange = set(pids) - set(own)
            known = first.setdefault(gpu, strange if len(strange) <= 1 else set())
            if strange - known:
                return {gpu: sorted(strange - known)}
        wait()


def watch(
    backend: str, gpus: Collection[str], own: Collection[int], *, alive: Callable[[], None]
) -> dict[str, list[int]]:
    """Look after real GPUs; see `lookout`. Of stand-ins there are no other users: it waits for ever."""
    readers = {gpu: open_reader(backend, gpu) for gpu in gpus}

    def wait() -> None:
        select.select((), (), (), LOOK_EVERY_S)
        alive()

    return lookout(lambda: {gpu: reader.processes() for gpu, reader in readers.items()}, own, wait=wait)
