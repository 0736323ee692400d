"""What a vendor's case needs of a host: read from files and the agent's socket; nothing is asked of a driver.

Works with the agent dead, and with most of it missing: what could not be had is named, with the reason.
"""

import json
import platform
import re
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any

from fleetd.agent.bundle_pack import PART_BYTES_MAX, Part

FINDINGS_MAX = 10_000
REPORTS_MAX = 8
LOG_LINES_MAX = 5000
_JOURNAL_S = 20.0
_GPU_CLASSES = ("0x03", "0x12", "0x0680")
"""PCI classes: display and processing accelerators, and NVSwitches, which are bridges of their own kind."""
_PCI_FACTS = (
    *("class", "vendor", "device", "subsystem_vendor", "subsystem_device", "numa_node", "local_cpulist"),
    *("current_link_speed", "current_link_width", "max_link_speed", "max_link_width"),
)
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PARAMETERS = re.compile(r"nvidia|nouveau|amdgpu|amd_iommu|intel_iommu|iommu|pci|nomodeset|numa|isolcpus|nohz|modprobe")
"""Kernel parameters that concern GPUs; the others may say anything."""
_KERNEL_WORDS = re.compile(
    r"NVRM|nvidia|nvlink|nvswitch|SXid|amdgpu|kfd|\[drm|pcieport|AER|pciehp|DPC|Hardware Error|mce|EDAC|GHES|"
    r"BERT|IOMMU|DMAR|AMD-Vi|Out of memory|oom-kill|hung_task|soft lockup|vfio",
    re.IGNORECASE,
)
"""The kernel's lines about GPUs and what carries them; the rest of its log is nobody's business."""


def had(name: str, make: Callable[[], str]) -> Part:
    """A part from a function; when that raises OSError, ValueError or sqlite3.Error, it is missing, and says why."""
    try:
        text = make()
    except (OSError, ValueError, sqlite3.Error) as error:
        return Part(name=name, missing=" ".join(str(error).split()) or type(error).__name__)
    return Part(name=name, text=text) if text else Part(name=name, missing="there is nothing")


def as_json(body: Any) -> str:
    """Text of a JSON part."""
    return json.dumps(body, indent=2, sort_keys=True) + "\n"


def tail(path: Path) -> str:
    """The end of a text file, at most what a part may have. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - PART_BYTES_MAX))
        return file.read(PART_BYTES_MAX).decode(errors="replace")


# ── the agent's state ───────────────────────────────────────────────────────────────────────────────────────────────


def spooled(state_dir: Path) -> str:
    """The findings that the controller has not acknowledged, one JSON object a line. Raises OSError, sqlite3.Error.

    The agent has its database to itself, so a copy is read; one that was being written at that moment may not open.
    """
    with tempfile.TemporaryDirectory(prefix="fleetd-bundle-") as folder:
        copy = Path(folder) / "spool.db"
        copyfile(state_dir / "spool.db", copy)
        log = state_dir / "spool.db-wal"
        if log.exists():
            copyfile(log, Path(f"{copy}-wal"))
        database = sqlite3.connect(copy)
        try:
            rows = database.execute(
                "SELECT seq, kind, body FROM finding ORDER BY seq DESC LIMIT ?", (FINDINGS_MAX,)
            ).fetchall()
        finally:
            database.close()
    lines = (json.dumps({"seq": seq, "kind": kind, "finding": json.loads(body)}) for seq, kind, body in reversed(rows))
    return "".join(f"{line}\n" for line in lines)


def reports(state_dir: Path) -> Iterator[Part]:
    """The newest burn-in reports."""
    try:
        newest = sorted((state_dir / "burnin").glob("*.json"), key=lambda path: path.stat().st_mtime)[-REPORTS_MAX:]
    except OSError as error:
        yield Part(name="burnin", missing=str(error))
        return
    if not newest:
        yield Part(name="burnin", missing="there is no report of a burn-in")
    for path in newest:
        yield had(f"burnin/{path.name}", lambda path=path: tail(path))  # type: ignore[misc]


# ── the host ────────────────────────────────────────────────────────────────────────────────────────────────────────


def versions(root: Path, *, fleetd: str) -> str:
    """Of fleetd, the kernel, the drivers and the distribution; what is not there is null."""

    def word(path: str) -> str | None:
        try:
            return (root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    return as_json(
        {
            "fleetd": fleetd,
            "python": platform.python_version(),
            "kernel": f"{platform.release()} {platform.version()}",
            "machine": platform.machine(),
            "os_release": word("etc/os-release"),
            "nvidia_driver": word("proc/driver/nvidia/version"),
            "nvidia_module": word("sys/module/nvidia/version"),
            "amdgpu_module": word("sys/module/amdgpu/version"),
            "rocm": word("opt/rocm/.info/version"),
            "bios": word("sys/class/dmi/id/bios_version"),
            "board": word("sys/class/dmi/id/board_name"),
            "kernel_parameters": " ".join(
                one for one in (word("proc/cmdline") or "").split() if _PARAMETERS.match(one)
            ),
        }
    )


def topology(root: Path) -> str:
    """GPUs and NVSwitches on PCI with the bridges above them, their links and NUMA nodes. Raises OSError."""
    found: dict[str, dict[str, str | None]] = {}
    for entry in sorted((root / "sys/bus/pci/devices").iterdir()):
        device = entry.resolve()
        if not (_fact(device, "class") or "").startswith(_GPU_CLASSES):
            continue
        above = [parent for parent in device.parents if _PCI_ADDRESS.fullmatch(parent.name)]
        for place in (device, *above):
            facts = {name: _fact(place, name) for name in _PCI_FACTS}
            found[place.name] = {**facts, "below": place.parent.name, "driver": _link(place / "driver")}
    return as_json(found) if found else ""


def _fact(device: Path, name: str) -> str | None:
    try:
        return (device / name).read_text(errors="replace").strip()
    except OSError:
        return None


def _link(path: Path) -> str | None:
    return path.resolve().name if path.exists() else None


def kernel_lines(text: str) -> str:
    """Of a kernel log what is about GPUs and what carries them, the newest lines."""
    lines = [line for line in text.splitlines() if _KERNEL_WORDS.search(line)]
    return "".join(f"{line}\n" for line in lines[-LOG_LINES_MAX:])


def journal(*options: str) -> str:
    """Lines of the journal. Raises OSError or ValueError when there is none, or it does not answer."""
    command = ["journalctl", "--quiet", "--no-pager", "--no-hostname", "--output=short-iso-precise", *options]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_JOURNAL_S, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"journalctl does not answer within {_JOURNAL_S:.0f} s") from None
    if done.returncode:
        raise ValueError(done.stderr.decode(errors="replace") or f"journalctl: exit code {done.returncode}")
    return done.stdout[-PART_BYTES_MAX:].decode(errors="replace")
