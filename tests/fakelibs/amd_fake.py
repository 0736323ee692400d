"""The fake AMD SMI of the tests: `fleetd.sim.vendorlibs.amd` that writes down every call."""

from collections.abc import Mapping
from pathlib import Path

from fleetd.sim.vendorlibs import amd
from fleetd.sim.vendorlibs.amd import MI300X, bdf_of, build, uuid_of

__all__ = ["MI300X", "Scenario", "bdf_of", "build", "uuid_of"]


class Scenario(amd.Scenario):
    """GPUs with names like the vendor's."""

    def __init__(self, file: Path, *, gpus: int = 2, part: Mapping[str, object] = MI300X) -> None:
        super().__init__(file, gpus=gpus, part=part)
        self.put("lib", {"record": 1})

    def set(self, who: object = "lib", **values: object) -> None:
        """Say what `who` answers from now on; `__` in a name stands for a dot."""
        self.put(who, {name.replace("__", "."): value for name, value in values.items()})

    def calls(self) -> list[str]:
        """`WHO WHAT` of every call so far."""
        return self.lines(".calls")
