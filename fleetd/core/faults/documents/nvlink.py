"""NVLink as the tools show it: `nvidia-smi nvlink` (status and errors) and `dcgmi nvlink`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetd.core.faults.documents.found import Found, number, slug
from fleetd.core.faults.documents.nvidia_smi import Line
from fleetd.core.policy import Action
from fleetd.model.finding import Severity

MARKS = ("(uuid: ", "gpuid ", "connection traversing", "nvlink error counts")
"""What a text with something of this has one of, in lower case; looked for before anything is read."""

_GPU = re.compile(r"\s*GPU (?P<index>\d+): (?P<name>.*?)\s*\(UUID: (?P<uuid>[\w/-]+)\)\s*$")
_LINK = re.compile(r"\s*Link (?P<link>\d+)\s*:\s*(?P<value>.*?)\s*$")
_ALL_INACTIVE = re.compile(r"Unable to retrieve NVLink information as all links are inactive", re.IGNORECASE)
_DCGM_GPU = re.compile(r"\s*gpuId (?P<index>\d+):\s*$")
_TOPOLOGY = re.compile(
    r"\s*(?:GPU|NIC)\d+\s+(?:X|NV\d+|SYS|NODE|PHB|PXB|PIX|GPU\d+)\b|\s*(?:X|SYS|NODE|PHB|PXB|PIX|NV#)\s+= "
)
"""`nvidia-smi topo -m`: how the GPUs are connected, nothing about their health."""
_DCGM_LINKS = re.compile(r"\s*[UDX_](?:\s+[UDX_])*\s*$")
_DCGM_ERRORS = re.compile(r"\s*\|\s*NVLINK Error Counts\b", re.IGNORECASE)
_DCGM_CELL = re.compile(
    r"\s*\|\s*(?:(?P<gpu>GPU:? (?:ID:? )?\d+)|Link:? (?P<link>\d+)|->\s*(?P<name>[A-Za-z ]+?Errors?))\s*"
    r"\|?\s*(?P<count>\d+|N/A|Not Supported|Not Specified)?\s*\|\s*$",
    re.IGNORECASE,
)
"""A row of `dcgmi nvlink -e`: whose, which link, or a counter."""
_NO_NVLINK_EXPECTED = re.compile(r"PCIe|GH200|\bMIG\b|\b(?:L4|L40S?|T4|A10|A16|A2)\b", re.IGNORECASE)
"""Products on which inactive links are normal: no bridge, no switch, or links that go elsewhere."""


@dataclass(slots=True, kw_only=True)
class _Gpu:
    """One GPU's links."""

    device: str
    name: str
    line: int
    text: str
    active: set[int] = field(default_factory=set)
    inactive: set[int] = field(default_factory=set)
    none_active: bool = False
    """The tool says that all are inactive."""


def read_text(lines: Sequence[Line], found: Found) -> set[int]:
    """Read link states and link error counters; return the numbers of the lines that were understood."""
    claimed = _dcgm_errors(lines, found)
    gpus: list[_Gpu] = []
    dcgm: str | None = None
    for line_number, line in lines:
        gpu, link = _GPU.match(line), _LINK.match(line)
        if gpu is not None:
            gpus.append(_Gpu(device=f"GPU {gpu['index']}", name=gpu["name"], line=line_number, text=line))
        elif _ALL_INACTIVE.search(line):
            if gpus:
                gpus[-1].none_active, gpus[-1].text = True, line
                found.health += 1
        elif link is not None and gpus:
            _link(gpus[-1], link, (line_number, line), found)
        elif (header := _DCGM_GPU.match(line)) is not None:
            dcgm = f"GPU {header['index']}"
        elif dcgm is not None and _DCGM_LINKS.match(line):
            _dcgm_links(dcgm, line_number, line, found)
        elif _TOPOLOGY.match(line):
            found.health += 1
        else:
            continue
        found.values += 1
        claimed.add(line_number)
    _judge_inactive(gpus, found)
    return claimed


def _link(gpu: _Gpu, match: re.Match[str], at: Line, found: Found) -> None:
    """A line of a link: a speed, `<inactive>`, or `NAME Errors: N`."""
    found.health += 1
    link, value = int(match["link"]), match["value"]
    lowered = value.lower()
    if "inactive" in lowered:
        gpu.inactive.add(link)
        if len(gpu.inactive) == 1:
            gpu.line, gpu.text = at
    elif lowered.endswith(("gb/s", "mb/s")):
        gpu.active.add(link)
    elif ":" in value:
        name, _, count = value.rpartition(":")
        _counter(name, number(count), device=gpu.device, link=str(link), at=at, found=found)


def _counter(name: str, count: float | None, *, device: str, link: str, at: Line, found: Found) -> None:
    """Judge one error counter: corrected by the link itself, or a link that had to be trained again."""
    found.values += 1
    if not count or count < 0:
        return
    words = slug(name)
    if "recovery" in words and "success" not in words:
        code = "nvidia.nvlink.recovery"
    elif "crc" in words or "flit" in words:
        code = "nvidia.nvlink.crc"
    elif "replay" in words:
        code = "nvidia.nvlink.replay"
    elif "effective" in words or "malformed" in words or "integrity" in words:
        code = "nvidia.nvlink.crc"
    else:
        return
    found.see(code, device, *at, part=f"link {link}", why=f"{name.strip()} {count:.0f} on link {link}")


def _dcgm_links(device: str, line_number: int, line: str, found: Found) -> None:
    found.health += 1
    for link, state in enumerate(line.split()):
        if state == "D":
            why = f"link {link} is down"
            found.see("nvidia.nvlink.inactive", device, line_number, line, part=f"link {link}", why=why)


def _dcgm_errors(lines: Sequence[Line], found: Found) -> set[int]:
    """Read the table of `dcgmi nvlink -e`: the counters follow their link, the links their GPU."""
    claimed: set[int] = set()
    device: str | None = None
    link = ""
    for line_number, line in lines:
        cell = _DCGM_CELL.match(line) if device is not None else None
        if _DCGM_ERRORS.match(line):
            device, link = "", ""
        elif cell is None or device is None:
            continue
        elif cell["gpu"] is not None:
            device = "GPU " + cell["gpu"].split()[-1]
        elif cell["link"] is not None:
            link = cell["link"]
        elif cell["count"] is not None:
            found.health += 1
            at = (line_number, line)
            _counter(cell["name"], number(cell["count"]), device=device, link=link, at=at, found=found)
        found.values += 1
        claimed.add(line_number)
    return claimed


def _judge_inactive(gpus: Sequence[_Gpu], found: Found) -> None:
    """An inactive link is a fault only where a sibling of the same product shows that it should be active.

    The same text is normal on boards without a bridge, on single-GPU hosts and under MIG: what the host should have is
    not in the document, so without such a sibling it is reported and nothing is asked for.
    """
    for gpu in gpus:
        if not gpu.none_active and not gpu.inactive:
            continue
        siblings = [other for other in gpus if other is not gpu and other.name == gpu.name]
        expected = set[int]().union(*(other.active for other in siblings))
        if gpu.active and "SXM" in gpu.name:
            expected |= gpu.inactive  # a module on a baseboard has every link wired
        broken = bool(expected) if gpu.none_active else bool(expected & gpu.inactive)
        if broken and not _NO_NVLINK_EXPECTED.search(gpu.name):
            links = "all" if not gpu.active else ", ".join(str(link) for link in sorted(expected & gpu.inactive))
            why = f"inactive here and wired on boards of this kind: links {links}"
            found.see("nvidia.nvlink.inactive", gpu.device, gpu.line, gpu.text, why=why)
        else:
            why = (
                "no other GPU of the document shows that this link should be active: normal without a bridge or switch"
            )
            found.see(
                "nvidia.nvlink.inactive",
                gpu.device,
                gpu.line,
                gpu.text,
                why=why,
                action=Action.NONE,
                severity=Severity.INFO,
            )


def read_dcgm_json(document: dict[str, Any], line: int, found: Found) -> bool:
    """Read `dcgmi nvlink -e -j`; False when it is something else."""
    header = document.get("header")
    titles = [str(part) for part in header] if isinstance(header, list) else []
    body = document.get("body")
    if not isinstance(body, dict) or not any("nvlink" in title.lower() for title in titles):
        return False
    device = next((title for title in titles if re.fullmatch(r"GPU \d+", title)), "")
    for name, count, link in _dcgm_counters(body):
        text = f"{device} link {link}: {name}: {count}"
        _counter(name, count, device=device, link=link, at=(line, text), found=found)
    return True


def _dcgm_counters(body: dict[str, Any]) -> Iterable[tuple[str, float | None, str]]:
    for link, content in body.items():
        children = content.get("children") if isinstance(content, dict) else None
        if not isinstance(children, dict):
            continue
        for name, child in children.items():
            value = child.get("value") if isinstance(child, dict) else child
            yield str(name), number(str(value)), str(link).removeprefix("Link ").strip()
