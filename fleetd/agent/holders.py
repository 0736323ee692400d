"""Which processes have a GPU's device open: as long as one has, a reset is refused or takes that process with it."""

import re
from dataclasses import dataclass
from pathlib import Path

HOLDERS_MAX = 64
_DEVICE = re.compile(r"/dev/(?:nvidia(?:\d+|ctl|-uvm)|kfd|dri/renderD\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process, and one of the devices that it has open."""

    pid: int
    name: str
    device: str


def holders(proc: Path = Path("/proc")) -> tuple[Holder, ...]:
    """The first `HOLDERS_MAX` such processes, by number. Those of other users are seen by root only."""
    found: list[Holder] = []
    for folder in sorted((one for one in proc.iterdir() if one.name.isdecimal()), key=lambda one: int(one.name)):
        try:
            opened = {str(link.readlink()) for link in (folder / "fd").iterdir()}
            name = (folder / "comm").read_text(errors="replace").strip()
        except OSError:
            continue  # it has just ended, or is another user's
        devices = sorted(path for path in opened if _DEVICE.fullmatch(path))
        if devices:
            found.append(Holder(pid=int(folder.name), name=name, device=devices[0]))
    return tuple(found[:HOLDERS_MAX])
