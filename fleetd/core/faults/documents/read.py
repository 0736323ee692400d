"""From a pasted text to observations: which tools wrote it, what each part says, and what is left for the log scanner.

One text may hold several outputs (a bug report has nvidia-smi's and the kernel's), so every reader whose marks are
there reads, in turn, the lines that those before it have not understood.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fleetd.core.faults.documents import (
    agents,
    amd_smi,
    dcgm,
    exposition,
    gpu_burn,
    loose_json,
    nvidia_smi,
    nvlink,
)
from fleetd.core.faults.documents.found import Found
from fleetd.core.faults.documents.nvidia_smi import Line
from fleetd.core.faults.observation import Observation, Unrecognised

DOCUMENT_BYTES_MAX = 16 << 20
"""Larger inputs are logs: no tool prints as much about one host, and a document has to fit in the memory."""
FORMATS = ("nvidia-smi", "amd-smi", "dcgm", "prometheus", "agent")
"""The formats read here, as the command line names them."""

_LINE_MAX = 4096
"""Characters of a line that are looked at: no tool writes longer ones outside JSON."""

TextReader = Callable[[Sequence[Line], Found], set[int]]
_TEXT: tuple[tuple[str, re.Pattern[str], TextReader], ...] = tuple(
    (name, re.compile(marks, re.IGNORECASE | re.MULTILINE), reader)
    for name, marks, reader in (
        (
            "prometheus",
            r"^\s*# (?:HELP|TYPE) \w|^\s*(?:DCGM_|nvidia_|gpu_|rocm_|amd_|amdgpu_|rdc_|pcie_)\w+(?:\{[^}\n]*\})? [-+\d]",
            exposition.read,
        ),
        (
            "nvidia-smi",
            r"NVSMI LOG|NVIDIA-SMI|\bNVML: |infoROM is corrupted|device handle for gpu|No devices were found|GPU is lost"
            r"|^\s*(?:ECC Errors|Remapped Rows|Retired Pages|Clocks (?:Event|Throttle) Reasons|GPU Recovery Action)\b"
            r"|^GPU [0-9a-f]{8}:[0-9a-f]{2}:|\|\s*\d+\s+[^|]*\|\s*[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d",
            nvidia_smi.read_text,
        ),
        ("nvidia-smi", r"^\s*GPU \d+: .*\(UUID: |^\s*gpuId \d+:", nvlink.read_text),
        ("dcgm", r"^\s*\|[^|\n]*\|\s*(?:Pass|Fail|Skip|Warn|Healthy)\b|^\s*\|\s*(?:Warning|Error)\s*\|", dcgm.read_text),
        (
            "amd-smi",
            r"^\s*GPU: *\d+\s*$|LINK METRIC TABLE|LINK STATUS|ROCm System Management|^Device\s+\[|^\s*GPU\[\d+\]|amd-?smi"
            r"|Concise Info|amdgpu not found|any GPU devices|list of afids|^GPU\d+\s",
            amd_smi.read_text,
        ),
        ("agent", r"proc'd: .*errors: |^\s*GPU \d+: (?:OK|FAULTY)\s*$", gpu_burn.read_text),
        (
            "agent",
            r"Xid\w*Error: Xid=|device marked unhealthy|detected NVSwitch|\] \[tid \d+\]|cper record|set to unhealthy"
            r"|XID ?\d+ ?(?:\([^)\n]*\))? detected on",
            agents.read_text,
        ),
    )
)
"""Format, marks of it and reader, in the order in which they read."""

_XML = re.compile(r"^[ \t]*(?:<\?xml\b[^>\n]{0,200}>\s*)?<(?:!DOCTYPE[ \t]+)?nvidia_smi_log\b", re.MULTILINE)
_XML_END = "</nvidia_smi_log>"
JsonReader = Callable[[Any, int, Found], bool]
_JSON: tuple[tuple[str, JsonReader], ...] = (
    ("agent", agents.read_json),
    ("dcgm", lambda value, line, found: isinstance(value, dict) and nvlink.read_dcgm_json(value, line, found)),
    ("dcgm", dcgm.read_json),
    ("amd-smi", amd_smi.read_json),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What was read of a text."""

    format: str
    """The format of most of it."""
    observations: tuple[Observation, ...]
    """In the order of the text."""
    unrecognised: tuple[Unrecognised, ...]
    cannot_judge: str | None
    """Why it cannot be judged, one sentence; None when it can."""
    notes: tuple[str, ...]
    rest: str
    """The text with every line blanked that was understood here, so that line numbers hold: for the log scanner."""


def is_document(text: str) -> bool:
    """Whether the text has marks of a format that is read here; a log has none."""
    return bool(_XML.search(text) or loose_json.has_document(text) or any(marks.search(text) for _, marks, _ in _TEXT))


def read(text: str, wanted: str | None = None) -> Document | None:
    """Read a text.

    Args:
        text: At most `DOCUMENT_BYTES_MAX` long; the caller cuts.
        wanted: One of `FORMATS` when the user says what it is: then nothing of it there means that it cannot be judged.

    Returns:
        None when `wanted` is None and nothing of any format was found: then it is a log.
    """
    found = Found()
    understood: dict[str, int] = {}
    rest = _read_lines(_read_xml(text, found, understood), found, understood)
    if not understood and wanted is None:
        return None
    return Document(
        format=wanted or max(understood, key=lambda name: understood[name]),
        observations=tuple(sorted(found.observations, key=lambda observation: observation.line or 0)),
        unrecognised=tuple(found.unrecognised),
        cannot_judge=_cannot_judge(found, wanted),
        notes=(*found.notes, *_broken_note(found)),
        rest=rest,
    )


def _read_xml(text: str, found: Found, understood: dict[str, int]) -> str:
    """Read every XML report; return the text with them blanked."""
    kept: list[str] = []
    position = 0
    while (begin := _XML.search(text, position)) is not None:
        end = text.find(_XML_END, begin.start())
        end = len(text) if end < 0 else end + len(_XML_END)
        skipped = text.count("\n", 0, begin.start())
        nvidia_smi.read_xml(text[begin.start() : end], skipped, found)
        understood["nvidia-smi"] = found.values
        kept += (text[position : begin.start()], "\n" * text.count("\n", begin.start(), end))
        position = end
    return "".join((*kept, text[position:])) if kept else text


def _read_lines(text: str, found: Found, understood: dict[str, int]) -> str:
    """Read the JSON documents and the lines around them; return the rest."""
    total = text.count("\n") + 1
    decoded = loose_json.decode(text) if loose_json.has_document(text) else None
    if decoded is None:
        lines: list[Line] = [(n, line.rstrip("\r")) for n, line in enumerate(text.split("\n"), 1)]
    else:
        lines = [(n, line.rstrip("\r")) for n, line in decoded.prose]
        _read_json(decoded, found, understood)
    short = [(n, line[:_LINE_MAX]) for n, line in lines]
    for name, marks, reader in _TEXT:
        if not marks.search(text):
            continue
        before = found.values
        claimed = reader(short, found)
        if claimed:
            understood[name] = understood.get(name, 0) + found.values - before
            short = [(n, line) for n, line in short if n not in claimed]
    left = {n for n, _ in short}
    rest = [""] * total
    for n, line in lines:
        if n in left:
            rest[n - 1] = line
    return "\n".join(rest)


def _read_json(decoded: loose_json.LooseJson, found: Found, understood: dict[str, int]) -> None:
    for line, value in decoded.values:
        for name, reader in _JSON:
            before = found.values
            if reader(value, line, found):
                understood[name] = understood.get(name, 0) + max(found.values - before, 1)
                break
        else:
            found.wonder(line, f"a JSON document that is not known here: {str(value)[:200]}")
            understood.setdefault("agent", 0)
    if decoded.repaired:
        found.notes.append("the JSON is not valid: it was read without its trailing commas and dots")
    if decoded.broken:
        found.cannot_judge = f"the JSON breaks off at line {decoded.broken}"
        understood.setdefault("agent", 0)


def _cannot_judge(found: Found, wanted: str | None) -> str | None:
    """A document is judged when something in it was understood and nothing that matters was lost.

    One that breaks off and shows a fault before the break is judged by that fault: more of it cannot make it better.
    """
    if found.cannot_judge is not None:
        return None if found.observations else found.cannot_judge
    if not found.values:
        return f"nothing in it is output of {wanted} as it is known here" if wanted else "nothing in it is known here"
    return None


def _broken_note(found: Found) -> tuple[str, ...]:
    return (found.cannot_judge,) if found.cannot_judge is not None and found.observations else ()
