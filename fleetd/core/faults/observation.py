"""The seam between reading and judging: one thing that one place of an input said about one device.

A parser of lines or of a document makes observations; `incidents.py` folds them into findings. What the input itself
says about severity or action (a severity word, register bits, a count) goes into the optional fields and beats the
catalogue's entry; everything else comes from the entry of `code`.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

from fleetd.core.faults.schema import Repeat
from fleetd.core.policy import Action
from fleetd.model.finding import Scope, Severity

_ADDRESS = re.compile(r"(?:pci:)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-9a-f]))?$", re.IGNORECASE)

_ACTIONS = tuple(action for action in Action if action is not Action.NOTIFY)


def rank(action: Action) -> int:
    """Position on the scale `none < monitor < … < replace`. `notify` is not on it and raises ValueError."""
    return _ACTIONS.index(action)


def worst(*actions: Action) -> Action:
    """The largest action; `none` without any."""
    return max(actions, key=rank, default=Action.NONE)


def device_key(device: str | None) -> str | None:
    """Identity of a device within one input: `0000:3b:00.0`, `00000000:3B:00.0` and `3b:00` are the same one.

    The function number is dropped (drivers print it or not); what is no PCI address is only lower-cased.
    """
    if device is None:
        return None
    match = _ADDRESS.match(device.strip())
    if match is None:
        return device.strip().lower()
    domain = (match[1] or "0").lstrip("0") or "0"
    return f"{domain}:{match[2]}:{match[3]}".lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When something happened, as the input has it."""

    text: str
    """As printed."""
    seconds: float | None = None
    """For comparing two moments of the same clock; None when the text could not be read."""
    clock: Literal["boot", "wall"] = "wall"
    """`boot`: seconds since a boot; `wall`: seconds since the epoch, or since a year's start if no year is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One statement of the input about one device."""

    code: str
    """Catalogue code, such as `nvidia.xid.79`. A code without an entry counts as unknown: warning, monitor."""
    device: str | None = None
    """As printed: a PCI address, `GPU 0`, a UUID, `CPU12 bank MC60`; None when the input does not say."""
    at: Moment | None = None
    line: int | None = None
    """1-based number of the first line; None where the input has no lines of its own."""
    text: str = ""
    """The line or the value, for the operator; cut to a few hundred characters."""
    why: str | None = None
    """What the details mean, one sentence without a full stop; None: the entry's meaning says enough."""
    part: str = ""
    """What tells two faults of one code and device apart (`link 5`, a RAS block); part of the finding's identity."""
    action: Action | None = None
    """What the details ask for; None: the entry's action. It also withstands the driver's recovery action."""
    severity: Severity | None = None
    """What the details say; None: the entry's severity."""
    scope: Scope | None = None
    """What the details say; None: the entry's scope."""
    repeat: Repeat | None = None
    """What the details ask for when they come again; None: as the entry says."""
    caused_by: str | None = None
    """Code that the input itself names as the cause: this is a victim wherever the cause is."""
    detail_only: bool = False
    """A further line about something already said (a register dump): it adds lines to a finding, nothing else."""
    injected: bool = False
    """Written by a program into the kernel log, not by the kernel: never acted on."""
    counts: tuple[int, ...] = ()
    """Counter values printed, where they are needed to tell a fault from a garbage reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecognised:
    """A line that looks like trouble with a GPU and matches nothing known."""

    line: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault of one device in the judgement of a scan."""

    code: str
    alias: str
    """Short code, such as `XID79`."""
    device: str | None
    scope: Scope
    role: Literal["root", "victim"]
    severity: Severity
    action: Action
    contact_vendor: bool
    at: str | None
    """First time, as printed."""
    why: str
    lines: tuple[int, ...]
    """The first lines it stands on, at most `MAX_LINES`."""
    count: int
    """How often it was seen."""
    text: str
    """The first line, as evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """What a scan says."""

    format: str
    """`kmsg`, `dmesg`, `journal`, `syslog`, or a document's format."""
    findings: tuple[Finding, ...]
    action: Action | None
    """Worst of the root findings, `none` without any; None when the input cannot be judged."""
    unrecognised: tuple[Unrecognised, ...] = ()
    """At most `MAX_UNRECOGNISED`."""
    unrecognised_total: int = 0
    cannot_judge: str | None = None
    """Why the input cannot be judged, one sentence; None when it is judged."""
    notes: tuple[str, ...] = field(default=())
    """What else the operator should know (lines cut, findings beyond the bound, lines of other boots)."""


MAX_LINES = 20
MAX_UNRECOGNISED = 200
MAX_TEXT = 400
"""Characters of a line that are kept."""
