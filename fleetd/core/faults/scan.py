"""From an input to a judgement: the streaming scan of a log, and the judgement that documents share with it.

For a document (nvidia-smi -q, amd-smi JSON, …) call `judge(catalogue, observations, format=…)`; for a log feed bytes
to a `LogScan`. A log is sieved in big blocks: only lines with one of a few words are looked at at all, and a message
that was seen before is only counted. Memory is bounded: by the block, the memory of messages and the number of faults.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.incidents import Fault, Incidents
from fleetd.core.faults.lines import Kind, LineReader
from fleetd.core.faults.observation import (
    MAX_TEXT,
    MAX_UNRECOGNISED,
    Finding,
    Observation,
    ScanResult,
    Unrecognised,
    worst,
)
from fleetd.core.faults.prefix import Prefix, split
from fleetd.core.policy import Action

BLOCK_BYTES = 1 << 20
"""A good size of the blocks to feed: large enough that a block's fixed costs vanish, small enough to stay in a cache."""

MAX_LINE_BYTES = 8192
"""Of a line that are looked at; a kernel record has at most 1 KiB, a record of the journal a few."""

MAX_REMEMBERED = 4096
"""Messages remembered; when the memory is full it is emptied."""

TRIGGERS = (
    b"nvrm", b"xid", b"nvidia", b"nvswitch", b"amdgpu", b"kfd", b"[drm", b"hardware error", b"pcie", b"aer", b"dpc",
    b"edr: ", b"smu", b"mce", b"edac", b"oom", b"of memory", b"segfault", b"panic", b"sysrq", b"oops", b"lockup", b"rcu",
    b"blocked for", b"page_fault", b"page fault", b"poison", b"error address", b"gpu re", b"bad page", b"psp ", b"vram is",
    b"dmar", b"bug: ", b"kernel bug", b"protection fault", b"linux version", b"ras rec", b"pcm", b"mes ", b"ring ", b"fence wait",
    b"ip block", b"aca", b"fallen off", b"in bus",
)  # fmt: skip
"""Words of which every line that matters has one (in lower case); a test holds it against the catalogue."""

_SAMPLE_LINES = 400
"""Lines at the start in which a log is told from something else."""
_CONTROL = bytes(n for n in range(32) if n not in b"\t\n\r\x0b\x0c\x1b")


def judge(
    catalogue: Catalogue,
    observations: Iterable[Observation],
    *,
    format: str,  # noqa: A002 - the word of the command line and of the JSON
    unrecognised: Sequence[Unrecognised] = (),
    cannot_judge: str | None = None,
    notes: Sequence[str] = (),
) -> ScanResult:
    """Fold observations into findings and take the worst action of the roots.

    Args:
        catalogue: What the codes mean.
        observations: In the order of the input.
        format: Name of the input's format.
        unrecognised: What looked like trouble and matched nothing.
        cannot_judge: Why the input cannot be judged; findings are reported all the same.
        notes: Sentences for the operator.
    """
    incidents = Incidents(catalogue)
    for observation in observations:
        incidents.add(observation)
    findings = incidents.findings()
    return ScanResult(
        format=format,
        findings=findings,
        action=None if cannot_judge else _worst_root(findings),
        unrecognised=tuple(unrecognised[:MAX_UNRECOGNISED]),
        unrecognised_total=len(unrecognised),
        cannot_judge=cannot_judge,
        notes=(*incidents.notes, *notes),
    )


def _worst_root(findings: Sequence[Finding]) -> Action:
    return worst(*(finding.action for finding in findings if finding.role == "root"))


@dataclass(frozen=True, slots=True)
class _Known:
    """What a message was when it was first seen."""

    kind: Kind
    faults: tuple[Fault, ...]


class LogScan:
    """A streaming scan of one log. Feed blocks of bytes of any size, then `finish`.

    Args:
        catalogue: What to look for.
        format: The format that the user named; None: told from the lines.
    """

    def __init__(self, catalogue: Catalogue, *, format: str | None = None) -> None:  # noqa: A002 - as in `judge`
        self._catalogue = catalogue
        self._format = format
        self._reader = LineReader(catalogue)
        self._incidents = Incidents(catalogue)
        self._known: dict[str, _Known] = {}
        self._rest = b""
        self._line = 0
        self._bytes = 0
        self._control = 0
        self._cut = 0
        self._boots = 0
        self._malformed = 0
        self._unrecognised: list[Unrecognised] = []
        self._unrecognised_total = 0
        self._skipping = False

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the log."""
        if not self._bytes:
            block = block.removeprefix(b"\xef\xbb\xbf")
        self._bytes += len(block)
        end = block.rfind(b"\n") + 1
        if end == 0:
            self._hold(block)
            return
        whole = b"" if self._skipping else self._rest
        if self._skipping:
            # The rest of an over-long line, whose beginning was looked at already.
            first = block.find(b"\n") + 1
            self._line += 1
            block, end = block[first:], end - first
            self._skipping = False
        self._rest = b""
        self._scan(whole + block[:end])
        self._hold(block[end:])

    def finish(self) -> ScanResult:
        """Judge what was fed."""
        if self._rest:
            self._scan(self._rest)
            self._rest = b""
        for observation in self._reader.close():
            self._incidents.add(observation)
        findings = self._incidents.findings()
        reason = self._cannot_judge(findings)
        return ScanResult(
            format=self._format or "text",
            findings=findings,
            action=None if reason else _worst_root(findings),
            unrecognised=tuple(self._unrecognised),
            unrecognised_total=self._unrecognised_total,
            cannot_judge=reason,
            notes=(*self._incidents.notes, *self._notes()),
        )

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _hold(self, tail: bytes) -> None:
        """Keep the unfinished last line; of one without end only the beginning."""
        if self._skipping:
            return
        self._rest += tail
        if len(self._rest) > MAX_LINE_BYTES:
            self._cut += 1
            line = self._line
            self._scan(self._rest[:MAX_LINE_BYTES])
            self._line = line
            self._rest = b""
            self._skipping = True

    def _scan(self, block: bytes) -> None:
        """Look at the lines of a block that have a trigger."""
        if self._line < _SAMPLE_LINES:
            self._sample(block)
        position, number = 0, self._line
        for start, end in _candidates(block.lower()):
            number += block.count(b"\n", position, start)
            position = start
            if end - start > MAX_LINE_BYTES:
                self._cut += 1
                end = start + MAX_LINE_BYTES  # noqa: PLW2901 - only the beginning of the line
            self._one(block[start:end].decode("utf-8", "replace").rstrip("\r"), number + 1)
        self._line = number + block.count(b"\n", position)

    def _sample(self, block: bytes) -> None:
        lines = block.split(b"\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
        for line in lines:
            self._control += len(line) - len(line.translate(None, _CONTROL))
            if self._format is None:
                self._format = split(line[:200].decode("utf-8", "replace")).kind

    def _one(self, line: str, number: int) -> None:
        prefix = split(line)
        key = ("!" if prefix.injected else "") + prefix.message
        known = self._known.get(key)
        if known is None:
            known = self._look(prefix, number)
            if known.kind is not Kind.PART and not any(fault.entry.obeyed for fault in known.faults):
                if len(self._known) >= MAX_REMEMBERED:
                    self._known.clear()
                self._known[key] = known
        else:
            for fault in known.faults:
                fault.again(number, prefix.at)
        if known.kind is Kind.UNRECOGNISED or known.kind is Kind.MALFORMED:
            self._malformed += known.kind is Kind.MALFORMED
            self._unrecognised_total += 1
            if len(self._unrecognised) < MAX_UNRECOGNISED:
                self._unrecognised.append(Unrecognised(line=number, text=line.strip()[:MAX_TEXT]))

    def _look(self, prefix: Prefix, number: int) -> _Known:
        if prefix.message.lower().startswith("linux version "):
            self._boots += 1
        kind, observations = self._reader.read(prefix, number)
        added = (self._incidents.add(observation) for observation in observations)
        return _Known(kind=kind, faults=tuple(fault for fault in added if fault is not None))

    def _cannot_judge(self, findings: Sequence[Finding]) -> str | None:
        if findings:
            return None
        if not self._bytes:
            return "the input is empty"
        if self._control:
            return "the input is not text: it has control characters where a log has none"
        if self._malformed:
            return "there are lines that look like XIDs and cannot be read, and nothing else was found"
        if self._format is None and not self._known:
            return "the input is not recognised as a kernel log; name its --format if it is one"
        return None

    def _notes(self) -> list[str]:
        notes = []
        if self._cut:
            notes.append(f"{self._cut} lines were longer than {MAX_LINE_BYTES} bytes; only their beginning was read")
        if self._boots > 1:
            notes.append(f"the log covers {self._boots} boots: a fault before a boot is not cured by it")
        if self._unrecognised_total > len(self._unrecognised):
            notes.append(f"only the first {len(self._unrecognised)} unrecognised lines are listed")
        return notes


def _candidates(lower: bytes) -> list[tuple[int, int]]:
    """Begin and end of every line with a trigger, in order."""
    found: set[tuple[int, int]] = set()
    size = len(lower)
    for trigger in TRIGGERS:
        position = lower.find(trigger)
        while position >= 0:
            start = lower.rfind(b"\n", 0, position) + 1
            end = lower.find(b"\n", position)
            end = size if end < 0 else end
            found.add((start, end))
            position = lower.find(trigger, end)
    return sorted(found)
