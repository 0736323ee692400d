"""Opens the machine of a backend. Imports torch."""

from typing import TextIO

import torch

from burnin.load.cpu import CpuMachine
from burnin.load.cuda import CudaMachine
from burnin.load.drive import Machine, tell
from burnin.spec import SpecError


def open_machine(backend: str, *, ordinal: int, seed: int, stdout: TextIO) -> Machine:
    """Open and say what it is, in one JSON line. Raises SpecError where there is no such device."""
    if backend == "cpu":
        tell(stdout, event="device", backend=backend, part="cpu", gpu="", driver=None, torch=torch.__version__)
        return CpuMachine(seed=seed)
    count = torch.cuda.device_count()
    if not 0 <= ordinal < count:
        raise SpecError(f"--device {ordinal}: torch sees {count} GPUs here; use --backend cpu, or a torch for this GPU")
    properties = torch.cuda.get_device_properties(ordinal)
    gpu = f"GPU-{properties.uuid}"
    machine = CudaMachine(gpu=gpu, ordinal=ordinal, seed=seed)
    tell(
        stdout,
        event="device",
        backend=backend,
        part=properties.name,
        gpu=gpu,
        driver=machine.driver(),
        torch=torch.__version__,
    )
    return machine
