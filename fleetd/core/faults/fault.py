"""One fault as its occurrences come in: how often, when, where, and the worst that was said of it."""

from dataclasses import dataclass, field
from typing import Literal

from fleetd.core.faults.catalogue import Entry
from fleetd.core.faults.observation import MAX_LINES, MAX_TEXT, Finding, Moment, Observation, rank
from fleetd.core.faults.schema import Repeat
from fleetd.core.policy import Action
from fleetd.model.finding import Scope, Severity

CAUSE_AFTER_S = 10.0
"""A follow-on may be printed this long before its cause (two CPUs print at once)."""
CAUSE_BEFORE_S = 600.0
"""A follow-on comes at most this long after its cause: a collective's time-out kills its job after 600 s."""

MAX_COUNTS = 64
"""Counter values that are kept of one fault."""


@dataclass(slots=True)
class Fault:
    """One (code, device, part) as it accumulates."""

    entry: Entry
    first: Observation
    count: int = 0
    lines: list[int] = field(default_factory=list)
    earliest: Moment | None = None
    latest: Moment | None = None
    last_line: bytes | None = None
    """The latest line that only was counted; `Incidents.settle` reads its time."""
    counts: set[int] = field(default_factory=set)
    injected: bool = True
    action: Action | None = None
    severity: Severity | None = None
    scope: Scope | None = None
    why: str | None = None
    cause: str | None = None
    rule: Repeat | None = None
    """What its details ask for when they come again."""
    role: Literal["root", "victim"] = "root"
    asked: Action | None = None
    """What is asked for in the end."""
    extra: list[str] = field(default_factory=list)

    @property
    def base(self) -> Action:
        """What the fault asks for by its text or its entry, before incidents are looked at."""
        return self.action or self.entry.action

    @property
    def final(self) -> Action:
        """What is asked for."""
        return self.asked or self.base

    def again(self, line: int | None, at: Moment | None) -> None:
        """Count one more occurrence."""
        self.count += 1
        if line is not None and len(self.lines) < MAX_LINES and (not self.lines or self.lines[-1] != line):
            self.lines.append(line)
        if at is not None and at.seconds is not None:
            if self.earliest is None or _earlier(at, self.earliest):
                self.earliest = at
            if self.latest is None or _earlier(self.latest, at):
                self.latest = at

    def repeat(self, number: int, line: bytes) -> None:
        """Count a line that says the same again. Its time is left for later: this is the hot path of a flood."""
        self.count += 1
        self.last_line = line
        if len(self.lines) < MAX_LINES and self.lines[-1] != number:
            self.lines.append(number)

    def take(self, observation: Observation) -> None:
        """Let an observation's details count: the worst of them, but the latest of the driver's own words."""
        self.injected = self.injected and observation.injected
        self.counts.update(observation.counts[: max(0, MAX_COUNTS - len(self.counts))])
        # What a site fixed for a code stands, whatever the text says.
        asked = None if self.entry.fixed else observation.action
        newer = self.count == 1 or self.entry.obeyed
        # A line that says nothing about the action stands for its entry's.
        if newer or rank(asked or self.entry.action) > rank(self.base):
            self.action = asked
            self.why = observation.why
            self.scope = observation.scope
        self.rule = observation.repeat or self.rule
        said = observation.severity
        if said is not None and (newer or self.severity is None or said > self.severity):
            self.severity = said
        if self.count == 1:
            self.cause = observation.caused_by
        elif observation.caused_by is None:
            self.cause = None  # once without a named cause: it has to be looked at by itself

    @property
    def hardware(self) -> bool:
        """Whether it can be the cause of a recovery that the driver asks for."""
        return (self.scope or self.entry.scope) is not Scope.APP and not self.injected

    def near(self, cause: "Fault") -> bool:
        """Whether the times allow that `cause` caused this; times that cannot be compared do."""
        start, end = cause.earliest, cause.latest
        first, last = self.earliest, self.latest
        if start is None or end is None or first is None or last is None or start.clock != first.clock:
            return True
        times = [moment.seconds for moment in (start, end, first, last) if moment.seconds is not None]
        begin_s, end_s, first_s, last_s = times  # `again` keeps only moments with seconds
        return last_s >= begin_s - CAUSE_AFTER_S and first_s <= end_s + CAUSE_BEFORE_S

    def starts_before(self, other: "Fault") -> bool:
        """Whether this was seen first."""
        mine, theirs = self.earliest, other.earliest
        if mine is not None and theirs is not None and (_earlier(mine, theirs) or _earlier(theirs, mine)):
            return _earlier(mine, theirs)
        return (self.lines or [0])[0] < (other.lines or [0])[0]

    def merge(self, others: "list[Fault]") -> None:
        """Take over the occurrences of others."""
        self.count += sum(fault.count for fault in others)
        self.lines = sorted({*self.lines, *(line for fault in others for line in fault.lines)})[:MAX_LINES]

    def finding(self) -> Finding:
        """The judgement; a victim asks for nothing by itself, its cause does."""
        victim = self.role == "victim"
        entry = self.entry
        return Finding(
            code=entry.code,
            alias=entry.alias,
            device=self.first.device,
            scope=self.scope or entry.scope,
            role=self.role,
            severity=entry.severity if self.severity is None else self.severity,
            action=Action.NONE if victim else self.final,
            contact_vendor=(entry.contact_vendor or self.final is Action.REPLACE) and not victim and not self.injected,
            at=self.first.at.text if self.first.at else None,
            why="; ".join((self.why or entry.meaning, *dict.fromkeys(self.extra))),
            lines=tuple(self.lines),
            count=self.count,
            text=self.first.text[:MAX_TEXT],
        )


def _earlier(a: Moment, b: Moment) -> bool:
    return a.clock == b.clock and a.seconds is not None and b.seconds is not None and a.seconds < b.seconds
