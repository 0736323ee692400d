"""`dcgmi health`, as a table and as JSON: which system of which GPU is not well, and what DCGM says of it.

The same trouble stands there three times (overall, GPU, system): only the most specific statement counts.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetd.core.faults.documents.dcgm import GPU_NAMED, of_message, silent
from fleetd.core.faults.documents.found import Found
from fleetd.core.faults.documents.nvidia_smi import Line

MARKS = ("overall health",)
"""What a text with something of this has one of, in lower case; looked for before anything is read."""

_ROW = re.compile(r"\s*\|(?P<name>[^|]*)\|(?P<value>[^|]*)\|\s*$")
_OVERALL = re.compile(r"\s*\|?\s*Overall Health\b\s*[:|]?\s*(?P<status>Healthy|Warning|Failure)\b", re.IGNORECASE)
_FRAME = re.compile(r"\s*[+|][-=+|]*\s*$")
_KIND = re.compile(r"(?P<kind>GPU|NvSwitch|NvLink|CPU|ConnectX)s?\s*$", re.IGNORECASE)
_ENTITY = re.compile(r"(?:->|(?P<kind>GPU|NvSwitch|CPU)(?: ID)?:?)\s*(?P<index>\d+)\s*$", re.IGNORECASE)
_SYSTEM = re.compile(r"->\s*(?P<system>[A-Za-z][\w /-]*?)\s*$")
_SYSTEM_INLINE = re.compile(
    r"\s*(?P<system>[A-Za-z][\w /-]*?)\s*:\s*(?P<status>Healthy|Warning|Failure)\b(?:\s*-)?(?P<text>.*)$", re.IGNORECASE
)
_STATUS = re.compile(r"(?P<status>Healthy|Warning|Failure)\s*$", re.IGNORECASE)
_DEPTH_MAX = 16


@dataclass(slots=True, kw_only=True)
class _Trouble:
    """One statement that something is not well."""

    device: str | None
    system: str
    """Empty: of the device, or of the host, as a whole."""
    status: str
    line: int
    text: str
    said: str = ""
    """DCGM's sentence, put together from the rows it was cut into."""


@dataclass(slots=True, kw_only=True)
class _Report:
    """One report as its rows come in."""

    kind: str = "GPU"
    device: str | None = None
    troubles: list[_Trouble] = field(default_factory=list)
    open: _Trouble | None = None
    """The statement that the rows below may explain."""

    def status(self, status: str, system: str, line: int, text: str) -> None:
        """Take the state of the host, of the device or of one of its systems."""
        self.open = None
        if status.lower() != "healthy":
            self.open = _Trouble(device=self.device, system=system, status=status.lower(), line=line, text=text)
            self.troubles.append(self.open)


def read_text(lines: Sequence[Line], found: Found) -> set[int]:
    """Read the tables among the lines; return the numbers of the lines that were understood."""
    claimed: set[int] = set()
    report: _Report | None = None
    for number, line in lines:
        overall = _OVERALL.match(line)
        if overall is not None:
            _end(report, found)
            report = _Report()
            report.status(overall["status"], "", number, line)
            found.health += 1
        elif report is None or not (_FRAME.match(line) or _row(report, number, line)):
            _end(report, found)
            report = None
            continue
        found.values += 1
        claimed.add(number)
    _end(report, found)
    return claimed


def _row(report: _Report, number: int, line: str) -> bool:
    row = _ROW.match(line)
    if row is None:
        return False
    name, value = row["name"].strip(), row["value"]
    status = _STATUS.match(value.strip())
    inline = _SYSTEM_INLINE.match(value)
    if inline is not None and not name:
        report.status(inline["status"], inline["system"], number, line)
        if report.open is not None:
            report.open.said = inline["text"]
    elif (entity := _ENTITY.match(name)) is not None:
        report.device = f"{entity['kind'] or report.kind} {entity['index']}"
        report.status(status["status"] if status is not None else "Healthy", "", number, line)
    elif (kind := _KIND.match(name)) is not None:
        report.kind, report.open = kind["kind"], None
    elif (system := _SYSTEM.match(name)) is not None:
        if status is not None:
            report.status(status["status"], system["system"], number, line)
    elif name:
        return False
    elif report.open is not None:
        # A cell is one space, the text and padding: a word cut at the cell's edge goes on in the next row.
        report.open.said = report.open.said[: 8 * 1024] + value[1:].removesuffix(" ")
    return True


def _end(report: _Report | None, found: Found) -> None:
    """Tell what a report says, each trouble once, where it was found closest to its cause."""
    if report is None:
        return
    of_systems = [trouble for trouble in report.troubles if trouble.system]
    told = {trouble.device for trouble in of_systems}
    of_devices = [t for t in report.troubles if not t.system and t.device is not None and t.device not in told]
    of_host = [] if of_systems or of_devices else [t for t in report.troubles if t.device is None]
    for trouble in (*of_systems, *of_devices, *of_host):
        _tell(trouble, found)


def _tell(trouble: _Trouble, found: Found) -> None:
    said = " ".join(trouble.said.split())
    named = GPU_NAMED.search(said)
    device = trouble.device or (None if named is None else f"GPU {named[1]}")
    code = of_message(said)
    if code is not None:
        found.see(code, device, trouble.line, said)
        return
    if said:
        found.wonder(trouble.line, said)
    system = trouble.system.lower().removesuffix(" system") or "health"
    silent(system, trouble.status, device, (trouble.line, said or trouble.text), found)


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_json(document: Any, line: int, found: Found) -> bool:
    """Read `dcgmi health -c -j`; False when it is something else."""
    body = document.get("body") if isinstance(document, dict) else None
    overall = body.get("Overall Health") if isinstance(body, dict) else None
    status = _value(overall)
    if not isinstance(body, dict) or _STATUS.match(status) is None:
        return False
    found.values += 1
    found.health += 1
    report = _Report()
    report.status(status, "", line, f"Overall Health: {status}")
    for kind, node in body.items():
        for index, entity in _children(node):
            report.device = f"{kind} {index}"
            report.status(_value(entity) or "Healthy", "", line, f"{report.device}: {_value(entity)}")
            for _, errors in _children(entity):
                for system, state in _children(errors):
                    report.status(_value(state) or "Warning", system, line, f"{report.device}: {system}")
                    if report.open is not None:
                        report.open.said = " ".join(_sentences(state, 0))
    _end(report, found)
    return True


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    children = node.get("children") if isinstance(node, dict) else None
    if isinstance(children, dict):
        yield from ((str(name), child) for name, child in children.items())


def _value(node: Any) -> str:
    value = node.get("value") if isinstance(node, dict) else None
    return value.strip() if isinstance(value, str) else ""


def _sentences(node: Any, depth: int) -> Iterator[str]:
    """Every text below a node that is not a state."""
    if depth > _DEPTH_MAX:
        return
    if isinstance(node, str):
        if not _STATUS.match(node.strip()):
            yield node
    elif isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from _sentences(child, depth + 1)
