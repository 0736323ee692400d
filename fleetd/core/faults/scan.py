"""From an input to a judgement: the streaming scan of a log, and the judgement that documents share with it.

For a document (nvidia-smi -q, amd-smi JSON, …) call `judge(catalogue, observations, format=…)`; for a log feed bytes
to a `LogScan`. A log is sieved in big blocks: only lines with one of a few words are looked at at all, and a message
that was seen before is only counted. Memory is bounded: by the block, the memory of messages and the number of faults.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.fault import Fault
from fleetd.core.faults.incidents import Incidents
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
from fleetd.core.faults.sieve import candidates, short_cut
from fleetd.core.policy import Action

BLOCK_BYTES = 1 << 20
"""A good size of the blocks to feed: the fixed costs of a block vanish, and it still fits in a cache."""

MAX_LINE_BYTES = 8192
"""Of a line that are looked at; a kernel record has at most 1 KiB, a record of the journal a few."""

MAX_REMEMBERED = 4096
"""Messages remembered; when the memory is full it is emptied."""

_WRITER = re.compile(
    r"\b(?:nvrm|kernel|mce|amdgpu|amdkfd|kfd|(?:nvidia|pcieport|edac)\b[^:]{0,40}):|\[drm|^\s*nvidia-\w|\bxid\s*\(",
    re.IGNORECASE,
)
"""Who writes into a kernel log, as its lines name him."""
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
        self._known: dict[bytes | tuple[bool, str], _Known] = {}
        self._seen = False
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

    def include(self, observations: Iterable[Observation], unrecognised: Iterable[Unrecognised] = ()) -> None:
        """Take what a reader of documents saw in the same input, to be judged together with the log."""
        for observation in observations:
            self._incidents.add(observation)
        for item in unrecognised:
            self._list(item.text, item.line)

    def finish(
        self, *, document: bool = False, cannot_judge: str | None = None, notes: Sequence[str] = ()
    ) -> ScanResult:
        """Judge what was fed.

        Args:
            document: Whether a reader of documents understood part of the input: then it need not be a log.
            cannot_judge: Why the document cannot be judged.
            notes: The document's notes.
        """
        if self._rest:
            self._scan(self._rest)
            self._rest = b""
        for observation in self._reader.close():
            self._incidents.add(observation)
        self._incidents.settle(lambda line: split(line.decode("utf-8", "replace")).at)
        findings = self._incidents.findings(self._reader.bus)
        reason = cannot_judge or (None if document else self._cannot_judge(findings))
        return ScanResult(
            format=self._format or "text",
            findings=findings,
            action=None if reason else _worst_root(findings),
            unrecognised=tuple(self._unrecognised),
            unrecognised_total=self._unrecognised_total,
            cannot_judge=reason,
            notes=(*self._incidents.notes, *notes, *self._notes()),
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
        for start, end in candidates(block.lower()):
            number += block.count(b"\n", position, start)
            position = start
            if end - start > MAX_LINE_BYTES:
                self._cut += 1
                end = start + MAX_LINE_BYTES  # noqa: PLW2901 - only the beginning of the line
            line = block[start:end]
            if line.startswith(b"# "):
                continue  # a comment of whoever pasted the log: no log writes it
            key = short_cut(line)
            known = self._known.get(key) if key is not None else None
            if known is None:
                self._one(line.decode("utf-8", "replace").rstrip("\r"), number + 1, key)
            else:
                self._count(known, number + 1, line)
        self._line = number + block.count(b"\n", position)

    def _sample(self, block: bytes) -> None:
        lines = block.split(b"\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
        for line in lines:
            self._control += len(line) - len(line.translate(None, _CONTROL))
            if self._format is None:
                self._format = split(line[:200].decode("utf-8", "replace")).kind

    def _one(self, line: str, number: int, key: bytes | None) -> None:
        """Read a line in full, and remember what its message means if that depends on nothing else."""
        prefix = split(line)
        message = key if key is not None else (prefix.injected, prefix.message)
        known = self._known.get(message)
        if known is not None:
            for fault in known.faults:
                fault.again(number, prefix.at)
        else:
            known = self._look(prefix, number)
            if known.kind is not Kind.PART and not any(f.entry.obeyed for f in known.faults):
                if len(self._known) >= MAX_REMEMBERED:
                    self._known.clear()
                self._known[message] = known
        if known.kind in (Kind.UNRECOGNISED, Kind.MALFORMED):
            # What a program quotes may well be cut: that says nothing about the kernel's lines.
            self._malformed += known.kind is Kind.MALFORMED and not prefix.injected
            self._list(line, number)

    def _count(self, known: _Known, number: int, line: bytes) -> None:
        """Count a message that was read before; its time is read in the end, if it is the last one."""
        for fault in known.faults:
            fault.repeat(number, line)
        if known.kind in (Kind.UNRECOGNISED, Kind.MALFORMED):
            self._malformed += known.kind is Kind.MALFORMED
            self._list(line.decode("utf-8", "replace"), number)

    def _list(self, line: str, number: int | None) -> None:
        self._unrecognised_total += 1
        if len(self._unrecognised) < MAX_UNRECOGNISED:
            self._unrecognised.append(Unrecognised(line=number, text=line.strip()[:MAX_TEXT]))

    def _look(self, prefix: Prefix, number: int) -> _Known:
        if prefix.message.lower().startswith("linux version "):
            self._boots += 1
            return _Known(kind=Kind.PART, faults=())
        kind, observations = self._reader.read(prefix, number)
        if kind not in (Kind.PLAIN, Kind.UNRECOGNISED) or _WRITER.search(prefix.message):
            self._seen = True  # a sentence that only names a driver is no log
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
            return "lines that look like XIDs or hardware error records cannot be read, and nothing else was found"
        if self._format is None and not self._seen:
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
