"""The fake NVML of the tests: `fleetd.sim.vendorlibs.nvidia` with a part that has something to tell."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fleetd.sim.vendorlibs import nvidia

LIBRARIES = Path(tempfile.gettempdir()) / f"fleetd-fakes-{os.getuid()}"
"""Shared by all processes of the tests, and built anew when the source changes."""
LINKS = nvidia.LINKS
H200: Mapping[str, object] = {
    **nvidia.H200,
    "CurrentClocksEventReasons": 0x84,
    "RemappedRows.0": 2,
    "RemappedRows.1": 1,
    "RemappedRows.2": 1,
    "field.165/7": 0,
    "field.163/7": 12,
}
"""An H200 under a bf16 GEMM that waits for a reset (row remap pending) and has link 7 down; NVML's units."""


class Scenario(nvidia.Scenario):
    """GPUs called GPU-0, GPU-1, … of that part."""

    def __init__(self, file: Path, *, gpus: int = 1, part: Mapping[str, object] = H200) -> None:
        super().__init__(file, gpus=gpus, part=part)


def build(*defines: str, folder: Path | None = None) -> Path:
    """The folder of the library; see `nvidia.build`."""
    return nvidia.build(folder or LIBRARIES, *defines)


def environ(scenario: nvidia.Scenario, library: Path) -> dict[str, str]:
    """The environment of a process that finds the fake."""
    return nvidia.environ(scenario.file, library, os.environ)
