"""Which GPUs a process holds, by the device files that it has open: a job can lie about it, its open files cannot."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

_NVIDIA_MAJOR = 195
"""Character devices of the NVIDIA driver (Documentation/admin-guide/devices.txt of the kernel)."""
_DRM_MAJOR = 226
_NVIDIA_CONTROL = 255
_RENDER_FIRST = 128
FILES_MAX = 4096
"""Open files of a process that are looked at."""
_FLAGS = re.compile(r"^flags:\s*([0-7]+)", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


def open_devices(pid: int, proc: Path = Path("/proc")) -> frozenset[tuple[int, int]]:
    """Return (major, minor) of the character devices that a process has open; blocks as long as /proc does.

    Their numbers count, not their names: in a container, a name can be anything. What is opened as a path only (O_PATH)
    does not count: that takes no permission, and no device. Nothing of a process that has ended, or that is not ours to
    see.
    """
    found = set()
    try:
        with os.scandir(proc / str(pid) / "fd") as entries:
            for _, entry in zip(range(FILES_MAX), entries, strict=False):
                try:
                    status = os.stat(entry.path)  # noqa: PTH116 - of what the link points to, without reading its name
                except OSError:
                    continue
                if stat.S_ISCHR(status.st_mode) and not _path_only(proc / str(pid) / "fdinfo" / entry.name):
                    found.add((os.major(status.st_rdev), os.minor(status.st_rdev)))
    except OSError:
        return frozenset()
    return frozenset(found)


def _path_only(information: Path) -> bool:
    """Whether a file was opened as a path only (proc_pid_fdinfo(5)), or nobody can tell."""
    try:
        flags = _FLAGS.search(information.read_text(encoding="ascii"))
    except OSError:
        return True
    return flags is None or bool(int(flags[1], 8) & os.O_PATH)


def addresses(devices: Iterable[tuple[int, int]], *, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> set[str]:
    """Return the PCI addresses of the GPUs among character devices."""
    minors = {minor for major, minor in devices if major == _NVIDIA_MAJOR and minor < _NVIDIA_CONTROL}
    found = set()
    if minors:
        for information in (proc / "driver" / "nvidia" / "gpus").glob("*/information"):
            try:
                match = _MINOR.search(information.read_text(errors="replace"))
            except OSError:
                continue
            if match is not None and int(match[1]) in minors:
                found.add(information.parent.name)
    for major, minor in devices:
        if major == _DRM_MAJOR and minor >= _RENDER_FIRST:
            try:
                found.add((sys / "class" / "drm" / f"renderD{minor}" / "device").resolve(strict=True).name)
            except OSError:
                continue
    return found
