"""`nvidia-smi`: the full report (`-q`, text and XML), the overview table, and what it says instead of a report."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from fleetd.core.faults.documents.found import Found, Reading, number, slug
from fleetd.core.faults.documents.nvidia_values import judge_readings

Line = tuple[int, str]
"""A line with its number."""

MARKS = (
    "nvsmi log", "nvidia-smi", "nvml:", "inforom is corrupted", "device handle for gpu", "no devices were found",
    "gpu is lost", "ecc errors", "ecc mode", "remapped rows", "retired pages", "clocks event reasons",
    "clocks throttle reasons", "gpu recovery action", "gpu reset status", "gpu 0000", "err! ",
)  # fmt: skip
"""What a text with something of this has one of, in lower case; looked for before anything is read."""

_GPU = re.compile(r"GPU\s+((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_PAIR = re.compile(r"(?P<indent>\s*)(?P<key>[^\s:|#<{\[][^:|]{0,60}?)\s*(?P<gap>\s:|:\s|:$)\s*(?P<value>.*?)\s*$")
_SECTION = re.compile(r"(?P<indent>\s+)(?P<key>[A-Z][\w ./()-]{1,60}?)\s*$")
_TOP = re.compile(r"=+NVSMI LOG=+|(?:Timestamp|Driver Version|CUDA Version|Attached GPUs)\s+:")
_REPORT = re.compile(
    r"\s+(?:ECC Errors|ECC Mode|Remapped Rows|Retired Pages|Clocks (?:Event|Throttle) Reasons|Fabric|GPU Reset Status"
    r"|Temperature|Volatile|Aggregate|FB Memory Usage|PCI)\s*$|\s+(?:Product Name|GPU Recovery Action|GPU UUID)\s+:"
)
_TABLE_ROW = re.compile(
    r"\|\s*(?P<index>\d+)\s+(?P<name>\S.*?)\s*\|\s*(?P<address>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\."
    r"[0-9A-Fa-f])\s+\S*\s*\|\s*(?P<ecc>\S+)"
)
_ADDRESS = r"(?P<device>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?)"
_SAYINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Unable to determine the device handle for gpu\s*" + _ADDRESS, re.IGNORECASE),
     "nvidia.nvml.gpu_lost"),
    (re.compile(r"(?:gpu\s+" + _ADDRESS + r"[^|]*)?gpu is lost", re.IGNORECASE), "nvidia.nvml.gpu_lost"),
    (re.compile(r"infoROM is corrupted at gpu\s+" + _ADDRESS, re.IGNORECASE), "nvidia.inforom.corrupted"),
    (re.compile(r"No devices were found", re.IGNORECASE), "nvidia.smi.no_devices"),
    (re.compile(r"couldn't communicate with the NVIDIA driver", re.IGNORECASE), "nvidia.smi.driver_unreachable"),
    (re.compile(r"Failed to initialize NVML: Driver/library version mismatch", re.IGNORECASE),
     "nvidia.smi.version_mismatch"),
    (re.compile(r"Failed to initialize NVML: ", re.IGNORECASE), "nvidia.smi.nvml_init"),
)  # fmt: skip
"""What nvidia-smi says in place of a report, the most telling first."""
_ANY_SAYING = re.compile(r"handle|gpu is lost|inforom|no devices|driver|nvml", re.IGNORECASE)
"""Every saying has one of these: most lines are done with here."""


def read_text(lines: Sequence[Line], found: Found) -> set[int]:
    """Read every report, table and saying among the lines; return the numbers of the lines that were understood."""
    claimed: set[int] = set()
    judge_readings(_readings(lines, claimed, found), found)
    device: str | None = None
    for number_, line in lines:
        if number_ in claimed:
            continue
        row = _TABLE_ROW.match(line.lstrip())
        if row is not None:
            device = row["address"]
            _table(number_, line, row, found)
        elif device is not None and line.lstrip().startswith("|") and "ERR!" in line:
            found.see("nvidia.nvml.unknown_error", device, number_, line)
        elif not _saying(number_, line, found):
            continue
        claimed.add(number_)
    return claimed


def _saying(line_number: int, line: str, found: Found) -> bool:
    if "NVRM" in line or _ANY_SAYING.search(line) is None:
        return False
    for pattern, code in _SAYINGS:
        match = pattern.search(line)
        if match is not None:
            found.see(code, match.groupdict().get("device"), line_number, line)
            return True
    return False


def _table(line_number: int, line: str, row: re.Match[str], found: Found) -> None:
    """A GPU's first row of the overview: `|   0  NAME  On | 00000000:07:00.0 Off |   0 |`."""
    found.values += 1
    found.health += 1  # a driver that cannot reach the GPU prints ERR! here
    errors = number(row["ecc"])
    if errors:
        why = f"{errors:.0f} uncorrectable errors since the last reset"
        found.see("nvidia.ecc.dram_ue", row["address"], line_number, line, why=why)
    if "ERR!" in line or "Unknown Error" in line:
        found.see("nvidia.nvml.unknown_error", row["address"], line_number, line)


@dataclass(slots=True, kw_only=True)
class _Report:
    """Where in a report the reader is."""

    device: str | None = None
    inside: bool = False
    sections: list[tuple[int, str]] = field(default_factory=list)
    """Indentation and name, outermost first."""

    def begin(self, device: str | None) -> None:
        self.device, self.inside, self.sections = device, True, []

    def enter(self, indent: int, name: str) -> str:
        """Take a name at an indentation; return its path."""
        while self.sections and self.sections[-1][0] >= indent:
            self.sections.pop()
        self.sections.append((indent, slug(name)))
        return "/".join(name for _, name in self.sections)


def _readings(lines: Sequence[Line], claimed: set[int], found: Found) -> Iterator[Reading]:
    """The values of every `-q` report. A report ends at the first line that has not its shape."""
    report = _Report()
    for line_number, line in lines:
        gpu = _GPU.match(line)
        if gpu is not None or _TOP.match(line) or (not report.inside and _REPORT.match(line)):
            report.begin(gpu[1] if gpu is not None else None)
            claimed.add(line_number)
            found.values += 1
            if gpu is not None:
                continue
        if not report.inside:
            continue
        if not line.strip():
            claimed.add(line_number)
            continue
        pair = _PAIR.match(line)
        section = None if pair is not None else _SECTION.match(line)
        shape = pair or section
        if shape is None or (not shape["indent"] and not _TOP.match(line)) or "NVRM" in line:
            report.inside = False
            continue
        claimed.add(line_number)
        path = report.enter(len(shape["indent"].expandtabs(8)), shape["key"])
        if pair is not None and pair["value"]:
            yield Reading(device=report.device, path=path, value=pair["value"], line=line_number, text=line)


# ── XML ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_DEPTH_MAX = 64
_TEXT_MAX = 4096


class _Refused(Exception):  # noqa: N818 - it is an answer
    """The document has something that no nvidia-smi writes."""


class _Xml:
    """Collects the leaves below each `<gpu>`."""

    def __init__(self, skipped_lines: int) -> None:
        self.readings: list[Reading] = []
        self._skipped_lines = skipped_lines
        self._path: list[str] = []
        self._text = ""
        self._device: str | None = None
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.EntityDeclHandler = self._entity

    def _entity(self, *_declaration: object) -> None:
        # Entities are how a small document becomes a large one; nvidia-smi declares none.
        raise _Refused("it declares entities")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= _DEPTH_MAX:
            raise _Refused(f"it is more than {_DEPTH_MAX} levels deep")
        if name == "gpu" and len(self._path) <= 1:
            self._device = attributes.get("id")
        self._path.append(name.lower())
        self._text = ""

    def _data(self, text: str) -> None:
        if len(self._text) < _TEXT_MAX:
            self._text += text[:_TEXT_MAX]

    def _end(self, name: str) -> None:
        value = self._text.strip()
        if value:
            path = "/".join(self._path[self._path.index("gpu") + 1 :] if "gpu" in self._path else self._path)
            text = f"<{name}>{value}</{name}>"
            line = self._skipped_lines + self.parser.CurrentLineNumber
            self.readings.append(Reading(device=self._device, path=path, value=value, line=line, text=text))
        self._text = ""
        self._path.pop()
        if name == "gpu" and len(self._path) <= 1:
            self._device = None


def read_xml(text: str, skipped_lines: int, found: Found) -> None:
    """Read `nvidia-smi -q -x`. What stands before a break is read; the break makes the document unjudged.

    Args:
        text: From the beginning of the XML.
        skipped_lines: How many lines stand before it.
        found: Where the result goes.
    """
    xml = _Xml(skipped_lines)
    try:
        # The last argument: there is no more to come.
        xml.parser.Parse(text.strip().encode("utf-8", "replace"), True)  # noqa: FBT003 - expat takes it by position
    except expat.ExpatError as error:
        line = skipped_lines + error.lineno
        found.cannot_judge = f"the XML breaks off at line {line} ({expat.ErrorString(error.code)})"
    except _Refused as refusal:
        found.cannot_judge = f"the XML is not nvidia-smi's: {refusal}"
    judge_readings(xml.readings, found)
