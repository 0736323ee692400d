"""Where tests run: which devices there are, what they are called, and what makes their results comparable.

Runs in child processes only: asking torch for devices loads the driver, and the parent must be able to fork and to end.
"""

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from burnin.processes.readers import open_reader
from burnin.spec import Device
from burnin.verdict.health import Facts
from burnin.vote import vote_key

DECIDING = ("seed", "keys", "words", "checksum", "golden", "crew", "arch")
"""Modules that decide what is computed, beside the folders of kernels, workloads and collectives."""
NO_GPU = "no GPU: torch {version} sees none here; use --backend cpu or --backend sim, or install a torch for this GPU"


def torch_device(backend: str, ordinal: int) -> torch.device:
    """The torch device of a child; a GPU becomes the current one."""
    if backend != "cuda":
        return torch.device("cpu")
    torch.cuda.set_device(ordinal)
    return torch.device("cuda", ordinal)


def discover(backend: str, *, gpus: int | None, host: str) -> dict[str, Any]:
    """List the devices of a backend (`auto`: cuda if torch sees a GPU).

    Returns:
        `backend`; `devices` (as `burnin.spec.Device`); `ordinals` (gpu → torch's ordinal); `busy` (gpu → process ids of
        others on it); `versions`; `refused`: why there is nothing to run on, else empty.
    """
    versions = _versions()
    found: dict[str, Any] = {"backend": backend, "versions": versions, "busy": {}, "ordinals": {}, "refused": ""}
    if backend in {"auto", "cuda"}:
        count = torch.cuda.device_count()
        found["backend"] = "cuda"
        if count == 0:
            return found | {"devices": [], "refused": NO_GPU.format(version=torch.__version__)}
        listed = [_cuda_device(ordinal, versions) for ordinal in range(count)]
        if gpus is not None and gpus > count:
            why = f"--gpus {gpus}: this host shows {count} GPUs; ask for no more"
            return found | {"devices": [], "refused": why}
        for ordinal, (device, busy) in enumerate(listed[:gpus]):
            found["ordinals"][device.gpu] = ordinal
            if busy:
                found["busy"][device.gpu] = list(busy)
        return found | {"devices": [asdict(device) for device, _ in listed[:gpus]]}
    count = gpus or (8 if backend == "sim" else 1)
    key = vote_key(sku=backend, cpu=_cpu_name(), isa=torch.backends.cpu.get_cpu_capability(), **versions)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    devices = [
        Device(
            gpu=f"{backend.upper()}-{host}-{index:02d}",
            index=index,
            sku="simulated" if backend == "sim" else _cpu_name(),
            sm_count=1,
            memory_bytes=memory // count,
            vote_key=key,
        )
        for index in range(count)
    ]
    return found | {"devices": [asdict(device) for device in devices]}


def _cuda_device(ordinal: int, versions: Mapping[str, str]) -> tuple[Device, tuple[int, ...]]:
    """One GPU and the processes of others on it."""
    properties = torch.cuda.get_device_properties(ordinal)
    reader = open_reader("cuda", f"GPU-{properties.uuid}")
    return device_of(properties, reader.facts(), ordinal=ordinal, versions=versions), reader.processes()


def device_of(properties: Any, facts: Facts, *, ordinal: int, versions: Mapping[str, str]) -> Device:
    """Describe a GPU.

    A part of a partitioned GPU is a device of its own: it has fewer multiprocessors and less memory, and another vote
    key than a whole one or a part of another kind, even where torch gives both the same name.

    Args:
        properties: what torch says of it.
        facts: what the vendor's library says of it.
        ordinal: torch's number, which is its index where nobody knows better.
        versions: of everything that may change a bit of a result.
    """
    key = vote_key(
        sku=properties.name,
        sm_count=properties.multi_processor_count,
        architecture=getattr(properties, "gcnArchName", f"{properties.major}.{properties.minor}"),
        partition=facts.partition,
        driver=facts.driver,
        firmware=facts.firmware,
        **versions,
    )
    return Device(
        gpu=f"GPU-{properties.uuid}",
        index=ordinal if facts.index is None else facts.index,
        sku=properties.name,
        sm_count=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        vote_key=key,
    )


def _versions() -> dict[str, str]:
    """Versions of everything that may change a bit of a result."""
    found = {"burnin": _kernel_hash(), "torch": torch.__version__, "python": platform.python_version()}
    parts = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    try:
        parts["triton"] = metadata.version("triton")
    except metadata.PackageNotFoundError:
        parts["triton"] = None
    if torch.cuda.is_available():
        cudnn: Any = torch.backends.cudnn  # its functions are not typed
        parts["cudnn"] = str(cudnn.version()) if cudnn.is_available() else None
    return found | {name: version for name, version in parts.items() if version is not None}


def _kernel_hash() -> str:
    """Digest of the sources that decide what is computed."""
    root = Path(__file__).parents[1]
    digest = blake2b(digest_size=8)
    alone = [root / f"{name}.py" for name in DECIDING]
    for path in sorted(
        [*root.glob("kernels/*.py"), *root.glob("workloads/*.py"), *root.glob("collectives/*.py"), *alone]
    ):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
