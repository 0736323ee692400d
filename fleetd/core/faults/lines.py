"""One log line into observations: XID and SXid, blocks of several lines, AMD's numbers, the catalogue's expressions.

`LineReader` keeps a little state: blocks that come in several lines (firmware records, "The NVIDIA GPU … has fallen
off the bus") and the last AMD device named, because a reset's lines often leave the address out.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum

from fleetd.core.faults import amd_lines, nvidia_lines
from fleetd.core.faults.bus import Bus
from fleetd.core.faults.catalogue import Catalogue, Entry
from fleetd.core.faults.observation import Moment, Observation
from fleetd.core.faults.prefix import Prefix

MAX_RECORDS = 64
"""Firmware records that are open at a time."""
NEAR_LINES = 200
"""An AMD line without an address may belong to the device named at most so many lines before."""

_ADDRESS = re.compile(
    r"(?<![0-9a-f:.])(?:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?|[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])(?![0-9a-f])",
    re.IGNORECASE,
)
_GPU_WORD = re.compile(r"nvrm|\bxid|amdgpu|nvidia|nvswitch|\bkfd\b|\[drm", re.IGNORECASE)
_TROUBLE = re.compile(
    r"error|fail|fatal|fault|time(?:d )?[- ]?out|\bh[au]ng|\blost\b|corrupt|unrecover|not respond|uncorrect|assert"
    r"|stuck",
    re.IGNORECASE,
)
_GPU_DRIVER = re.compile(
    r"\b(?:nvidia|amdgpu)\s+[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}|\bslot\([\w-]*gpu[\w-]*\)", re.IGNORECASE
)
_RECEIVED = re.compile(
    r"error (?:message )?received(?: from)?:? +([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\b", re.IGNORECASE
)
"""Whom a port's error message names: that device is at fault, the port only tells."""
_NOTHING = re.compile(
    r"(?<![\w.:/=-])(?:no|without|0|zero)\s+(?:(?:new|any|known|pending|corrected|uncorrected|correctable|uncorrectable|fatal|ras|ecc"
    r"|link|fabric|retired|bad|hw|hardware)\s+)*(?:errors?|fail(?:ed|ures?)?|faults?|time-?outs?)\b"
    r"|\berror (?:injection|counters?|count|status|reporting|handling|logging|detection) (?:is |are |was |were )?"
    r"(?:now )?(?:en|dis|un)?(?:abled|supported|cleared|reset|initialized|initialised|registered)\b"
    r"|\b(?:(?:un)?correct(?:able|ed) )?errors?\s*[:=]\s*(?:0x)?0+\b(?!\s*/)|\bverification failed: signature\b",
    re.IGNORECASE,
)
"""Words of trouble in a sentence that says there is none: they are taken out before anything is looked for."""
_GHES = re.compile(r"(?:\{(?P<record>\d+)\})?\s*\[hardware error\]\s*:\s*(?P<rest>.*)", re.IGNORECASE)
_GHES_START = re.compile(r"hardware error from apei", re.IGNORECASE)
_GHES_SEVERITY = re.compile(
    r"(?:event severity|error \d+, type)\s*:\s*(corrected|recoverable|fatal|info)", re.IGNORECASE
)
_GHES_SECTION = re.compile(r"section_type\s*:\s*(pcie)?", re.IGNORECASE)
_SEVERITIES = ("info", "corrected", "recoverable", "fatal")
_GHES_DEVICE = re.compile(r"^\s*device_id:\s*([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", re.IGNORECASE)
_GONE_START = re.compile(r"the nvidia gpu (?:at )?([0-9a-f:.]{5,16})", re.IGNORECASE)
_GONE_END = re.compile(r"fallen off the bus and is not responding", re.IGNORECASE)
_WITHOUT_ADDRESS = ("amd.reset.", "amd.init.", "amd.suspend.", "amd.psp.")

# For `literal`: the parts of an expression that are no plain text.
_ESCAPED_CLASS = re.compile(r"\\[a-zA-Z]")
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]])*\]")
_GROUP = re.compile(r"(?<!\\)\((?:\\.|[^()\\])*\)")
_OPTIONAL = re.compile(r"(?:\\.|[^\\])(?:[?*]|\{[^}]*\})")
_ESCAPE = re.compile(r"\\(.)")
_CUT = re.compile(r"[\0.^$+]")


class Kind(Enum):
    """What a line was."""

    FAULT = "fault"
    HARMLESS = "harmless"
    PART = "part"
    """Of a block: it gave nothing by itself, and must not be looked up by its text alone."""
    UNRECOGNISED = "unrecognised"
    MALFORMED = "malformed"
    """Meant as an XID or a hardware error record, and not readable as one."""
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One expression of the catalogue."""

    entry: Entry
    literal: str
    """Text that every match contains, in lower case; empty if none is sure."""
    expression: re.Pattern[str]


@dataclass(slots=True)
class _Record:
    """A firmware record as its lines come in."""

    line: int | None
    at: Moment | None
    text: str
    severity: str | None = None
    pcie: bool = False
    device: str | None = None


class LineReader:
    """Reads lines; one for each log."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._patterns = [
            Pattern(entry=entry, literal=literal(text), expression=re.compile(text, re.IGNORECASE))
            for entry in catalogue
            for text in entry.match
        ]
        self._harmless = [(literal(text), re.compile(text, re.IGNORECASE)) for text in catalogue.harmless]
        self._records: dict[str, _Record] = {}
        self.bus = Bus()
        self._gone: str | None = None
        self._last_amd: tuple[str, int] | None = None

    def read(self, prefix: Prefix, number: int) -> tuple[Kind, tuple[Observation, ...]]:
        """Read one line.

        Args:
            prefix: The line, taken apart.
            number: 1-based line number, for the evidence.
        """
        message = prefix.message
        if not prefix.injected:
            self.bus.learn(message, number)
        found = [*nvidia_lines.read(self._catalogue, message)]
        if not found and nvidia_lines.looks_like_xid(message):
            return Kind.MALFORMED, ()
        part = False
        if not found:
            part = self._block(prefix, number, found)
        if not found and not part:
            found = self._amd_or_pattern(message, number)
        text = message.strip()
        done = tuple(
            replace(o, at=o.at or prefix.at, line=o.line or number, text=o.text or text, injected=prefix.injected)
            for o in found
        )
        if done:
            return (Kind.PART if part else Kind.FAULT), done
        return (Kind.PART if part else self._rest(message)), ()

    def close(self) -> tuple[Observation, ...]:
        """What blocks were still open at the end."""
        records = [*self._records.values()]
        self._records.clear()
        return tuple(_record(record) for record in records)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _amd_or_pattern(self, message: str, number: int) -> list[Observation]:
        address, received = _ADDRESS.search(message), _RECEIVED.search(message)
        device = received[1] if received else address[0] if address else None
        found = [*amd_lines.read(message, device)]
        if not found:
            hit = self._pattern(_NOTHING.sub("", message), device)
            found = [hit] if hit is not None else []
        for n, observation in enumerate(found):
            if not observation.code.startswith("amd."):
                continue
            if observation.device is not None:
                self._last_amd = (observation.device, number)
            elif (
                observation.code.startswith(_WITHOUT_ADDRESS)
                and self._last_amd is not None
                and number - self._last_amd[1] <= NEAR_LINES
            ):
                found[n] = replace(observation, device=self._last_amd[0])
        return found

    def _pattern(self, message: str, device: str | None) -> Observation | None:
        lower = message.lower()
        for pattern in self._patterns:
            if pattern.literal not in lower:
                continue
            match = pattern.expression.search(message)
            if match is None:
                continue
            groups = match.groupdict()
            if groups.get("cpu") and groups.get("bank"):
                device = f"CPU{int(groups['cpu'])} bank MC{int(groups['bank'])}"
            on_gpu = pattern.entry.on_gpu if _GPU_DRIVER.search(message) else None
            return Observation(code=pattern.entry.code, device=device, part=groups.get("part") or "", action=on_gpu)
        return None

    def _block(self, prefix: Prefix, number: int, found: list[Observation]) -> bool:
        """Lines of a block. Returns whether the line is one; what is complete goes to `found`."""
        message = prefix.message
        gone = _GONE_START.search(message)
        if gone is not None:
            self._gone = gone[1].rstrip(".:")
        if _GONE_END.search(message):
            found.append(Observation(code="nvidia.bus.fallen_off", device=self._gone))
            self._gone = None
            return True
        return gone is not None or self._firmware(prefix, number, found)

    def _firmware(self, prefix: Prefix, number: int, found: list[Observation]) -> bool:
        """A line of a firmware record, told from other drivers' `[Hardware Error]` lines by its open record."""
        ghes = _GHES.search(prefix.message)
        if ghes is None:
            return False
        key, rest = ghes["record"] or "", ghes["rest"]
        record = self._records.get(key)
        start = _GHES_START.search(rest) is not None
        if not start and "amdgpu" in prefix.message.lower():
            return False
        severity, section = _GHES_SEVERITY.search(rest), _GHES_SECTION.search(rest)
        if start or (record is None and (severity or section)):
            # Without the first line of a record in the log, what is left of it counts.
            record = self._open(key, prefix, number, found)
        if record is None:
            return False
        if severity is not None:
            said = severity[1].lower()
            record.severity = said if record.severity is None else max(record.severity, said, key=_SEVERITIES.index)
        if section is not None:
            record.pcie = record.pcie or section[1] is not None
        if (device := _GHES_DEVICE.search(rest)) is not None:
            record.device = device[1]
        return True

    def _open(self, key: str, prefix: Prefix, number: int, found: list[Observation]) -> _Record:
        """Begin a record; the one before it with this number is complete, and so is the oldest of too many."""
        if (before := self._records.pop(key, None)) is not None:
            found.append(_record(before))
        if len(self._records) >= MAX_RECORDS:
            found.append(_record(self._records.pop(next(iter(self._records)))))
        self._records[key] = _Record(line=number, at=prefix.at, text=prefix.message.strip())
        return self._records[key]

    def _rest(self, message: str) -> Kind:
        record = _GHES.search(message)
        told = _NOTHING.sub("", record["rest"] if record is not None else message)
        if not _TROUBLE.search(told) or not (record is not None or _GPU_WORD.search(message)):
            return Kind.PLAIN
        lower = message.lower()
        if amd_lines.counts_nothing(message):
            return Kind.HARMLESS
        if any(text in lower and expression.search(message) for text, expression in self._harmless):
            return Kind.HARMLESS
        return Kind.UNRECOGNISED if record is None else Kind.MALFORMED


def literal(expression: str) -> str:
    """The longest text that every match of an expression contains, in lower case; empty when in doubt.

    Only characters outside groups and classes count, and none that a quantifier may drop.
    """
    plain = _ESCAPED_CLASS.sub("\0", expression)
    plain = _CLASS.sub("\0", plain)
    # Groups from the inside out: what remains between the cuts stands in every match.
    while (flat := _GROUP.sub("\0", plain)) != plain:
        plain = flat
    if "|" in plain:
        return ""
    plain = _OPTIONAL.sub("\0", plain)
    runs = _CUT.split(_ESCAPE.sub(lambda match: match[1], plain))
    return max(runs, key=len).lower()


def _record(record: _Record) -> Observation:
    kind = "pcie" if record.pcie else "other"
    said = record.severity or "recoverable"  # none printed: the kernel prints none only for what it could survive
    severity = "corrected" if said == "info" else said
    return Observation(
        code=f"host.ghes.{kind}.{severity}",
        device=record.device,
        at=record.at,
        line=record.line,
        text=record.text,
    )
