"""From a pasted text to observations: which tools wrote it, what each part says, and what is left for the log scanner.

One text may hold several outputs (a bug report has nvidia-smi's and the kernel's), so every reader whose marks are
there reads, in turn, the lines that those before it have not understood.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetd.core.faults.documents import (
    agents,
    amd_smi,
    dcgm,
    dcgm_health,
    dcgm_table,
    exposition,
    gpu_burn,
    loose_json,
    nvidia_query,
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
_TEXT: tuple[tuple[str, tuple[str, ...], TextReader], ...] = (
    ("prometheus", exposition.MARKS, exposition.read),
    ("nvidia-smi", nvidia_query.MARKS, nvidia_query.read_text),
    ("nvidia-smi", nvidia_smi.MARKS, nvidia_smi.read_text),
    ("nvidia-smi", nvlink.MARKS, nvlink.read_text),
    ("dcgm", dcgm_health.MARKS, dcgm_health.read_text),
    ("dcgm", dcgm_table.MARKS, dcgm_table.read_text),
    ("amd-smi", amd_smi.MARKS, amd_smi.read_text),
    ("agent", gpu_burn.MARKS, gpu_burn.read_text),
    ("agent", agents.MARKS, agents.read_text),
)
"""Format, its marks (a text without any is not read) and reader, in the order in which they read."""

_XML = re.compile(r"^[ \t]*(?:<\?xml\b[^>\n]{0,200}>\s*)?<(?:!DOCTYPE[ \t]+)?nvidia_smi_log\b", re.MULTILINE)
_XML_END = "</nvidia_smi_log>"
JsonReader = Callable[[Any, int, Found], bool]
_JSON: tuple[tuple[str, JsonReader], ...] = (
    ("agent", agents.read_json),
    ("dcgm", lambda value, line, found: isinstance(value, dict) and nvlink.read_dcgm_json(value, line, found)),
    ("dcgm", dcgm_health.read_json),
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
    """Whether the text has marks of a format that is read here; most logs have none."""
    if "nvidia_smi_log" in text or loose_json.has_document(text):
        return True
    lower = text.lower()
    return any(_has(lower, marks) for _, marks, _ in _TEXT)


def _has(lower: str, marks: tuple[str, ...]) -> bool:
    return any(mark in lower for mark in marks)


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
        cannot_judge=_cannot_judge(found, wanted, understood),
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
    everything: list[Line] = [(n, line.rstrip("\r")) for n, line in enumerate(text.split("\n"), 1)]
    lines, unknown = everything, list[Line]()
    if loose_json.has_document(text):
        decoded = loose_json.decode(text)
        lines = [(n, line.rstrip("\r")) for n, line in decoded.prose]
        # Records of the journal are JSON too: what is not known here is for the log scanner.
        unknown = [
            everything[n - 1] for first, last in _read_json(decoded, found, understood) for n in range(first, last + 1)
        ]
        if decoded.broken and not decoded.values and text.lstrip()[:1] in ("{", "["):
            understood.setdefault("agent", 0)
    short = [(n, line[:_LINE_MAX]) for n, line in lines]
    lower = text.lower()
    for name, marks, reader in _TEXT:
        if not _has(lower, marks):
            continue
        before = found.values
        claimed = reader(short, found)
        if claimed:
            understood[name] = understood.get(name, 0) + found.values - before
            short = [(n, line) for n, line in short if n not in claimed]
    left = {n for n, _ in short} | {n for n, _ in unknown}
    return "\n".join(line if n in left else "" for n, line in everything)


def _read_json(decoded: loose_json.LooseJson, found: Found, understood: dict[str, int]) -> Iterator[tuple[int, int]]:
    """Read the documents; yield first and last line of each that is not known here."""
    for first, last, value in decoded.values:
        for name, reader in _JSON:
            before = found.values
            if reader(value, first, found):
                understood[name] = understood.get(name, 0) + max(found.values - before, 1)
                break
        else:
            yield first, last
    if decoded.repaired:
        found.notes.append("the JSON is not valid: it was read without its trailing commas and dots")
    if decoded.broken:
        found.cannot_judge = f"the JSON breaks off at line {decoded.broken}"


def _cannot_judge(found: Found, wanted: str | None, understood: Mapping[str, int]) -> str | None:
    """A document is judged when something in it was understood and nothing that matters was lost.

    One that breaks off and shows a fault before the break is judged by that fault: more of it cannot make it better.
    """
    if found.cannot_judge is not None:
        return None if found.observations else found.cannot_judge
    if not found.values:
        return f"nothing in it is output of {wanted} as it is known here" if wanted else "nothing in it is known here"
    if not found.health and set(understood) == {"nvidia-smi"}:
        return "no value in this output of nvidia-smi tells a good GPU from a bad one: give that of `nvidia-smi -q`"
    return None


def _broken_note(found: Found) -> tuple[str, ...]:
    return (found.cannot_judge,) if found.cannot_judge is not None and found.observations else ()
