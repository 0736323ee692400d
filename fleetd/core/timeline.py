"""Tests of a policy: a timeline of events with what they should lead to. `play` plays them.

The dataclasses are the schema of `policies/tests/*.yaml`: a field is a key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from fleetd.core.limits import MAX_SECONDS
from fleetd.model.finding import FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Lifecycle, Place


class Kind(StrEnum):
    """Kinds of orders, as a timeline names them."""

    QUARANTINE = "quarantine"
    RELEASE = "release"
    BURNIN = "burnin"
    NOTIFY = "notify"


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """The agent says hello. GPUs are named `HOST-INDEX` unless serials are given."""

    boot: str = "b1"
    gpus: int = 8
    serials: tuple[str, ...] | None = None
    sku: str = "simulated"
    driver_version: str | None = None
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A burn-in ended: the one that is pending, unless it was started by the host itself."""

    verdict: Verdict
    gpus: tuple[int, ...] = ()
    """The culprits, by index."""
    fault_class: FaultClass = FaultClass.NONE
    self_started: bool = False
    level: str | None = None
    vote_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """The agent saw a fault of a device."""

    code: str
    severity: Severity
    fault_class: FaultClass
    scope: Scope = Scope.GPU
    gpu: int | None = None
    boot: str | None = None
    """The boot that it is of; None: the present one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of the scheduler ended."""

    id: str
    ok: bool
    ran_seconds: float


class Verb(StrEnum):
    """What people do."""

    QUARANTINE = "quarantine"
    RELEASE = "release"
    OVERRIDE = "override"
    BURNIN = "burnin"
    REPAIR = "repair"
    RETIRE = "retire"


class FleetVerb(StrEnum):
    """What people do to the whole fleet."""

    REARM = "rearm"
    STOP = "stop"
    RESUME = "resume"
    ACQUIT = "acquit"
    """Close all open incidents: their hosts were not to blame."""
    CLOSE = "close"
    """Close all open incidents: judge their hosts as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What should be, after the step. What is left out may be anything."""

    state: Lifecycle | None = None
    """Of each host of the step."""
    states: Mapping[str, Lifecycle] = field(default_factory=dict)
    """Of any hosts."""
    orders: tuple[Kind, ...] | None = None
    """Of all hosts together in the order of issue, with all that follows from the step."""
    withheld: tuple[Kind, ...] | None = None
    why: str | None = None
    """Stands in one of the reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineStep:
    """One moment: the same happens to each of its hosts, one after the other. Without an event time just passes."""

    at: float
    """Seconds from the beginning."""
    hosts: tuple[str, ...] = ()
    hello: Says | None = None
    burnin: Ran | None = None
    fault: Faulted | None = None
    job: Job | None = None
    refuses: str | None = None
    """The agent refuses the pending burn-in, and says why."""
    away: int | None = None
    """The host's agent has been away for too long, and so have so many in all."""
    operator: Verb | None = None
    fleet: FleetVerb | None = None
    expect: Expect = field(default_factory=Expect)

    def __post_init__(self) -> None:
        if not 0 <= self.at <= MAX_SECONDS:
            raise ValueError(f"at must be from 0 to {MAX_SECONDS:g} seconds, not {self.at:g}")
        given = [f.name for f in fields(self) if f.name in _EVENTS and getattr(self, f.name) is not None]
        if len(given) > 1:
            raise ValueError(f"one step has one event, not {' and '.join(given)}")
        if given and given != ["fleet"] and not self.hosts:
            raise ValueError(f"`{given[0]}` needs `hosts`")


_EVENTS = frozenset({"hello", "burnin", "fault", "job", "refuses", "away", "operator", "fleet"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One test."""

    policy: str
    """A shipped policy, or a path from the folder of the test."""
    timeline: tuple[TimelineStep, ...]

    def __post_init__(self) -> None:
        times = [step.at for step in self.timeline]
        if not times or times != sorted(times):
            raise ValueError("the steps of a timeline stand in the order of their times, and there is at least one")
