"""What the answers of `/api/v1` look like; the OpenAPI document is made of these. Units are those of the model."""

from dataclasses import dataclass
from typing import Literal

from fleetd.model.fact import Fact
from fleetd.model.finding import Finding
from fleetd.model.fleet import Incident, Stopped, Tripped
from fleetd.model.host import Charge, Hold, Host, Lifecycle, PendingBurnin
from fleetd.model.ids import GpuId, HostName
from fleetd.model.telemetry import GpuSample

Flag = Literal["held", "withheld", "burnin", "away"]
FLAGS: dict[Flag, int] = {"held": 1, "withheld": 2, "burnin": 4, "away": 8}
"""Bits of a host on the map: a hold is on it; a hold is withheld; a burn-in is ordered or runs; its agent is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBrief:
    """A host in a list."""

    name: HostName
    state: Lifecycle
    why: str
    since_s: float
    pool: str | None
    rack: str | None
    sku: str | None
    """Several, joined by `+`, for a host with several kinds of GPU; null without GPUs."""
    gpus: int
    connected: bool
    holds: tuple[Hold, ...]
    charges: tuple[Charge, ...]
    pending: PendingBurnin | None
    probation_until_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPage:
    """A page of hosts."""

    position: str
    hosts: list[HostBrief]
    more: bool
    """Whether there are more after the last one: ask with `after`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRack:
    """A rack; hosts of which none is known stand in one without a name, each pool's apart."""

    name: str | None
    pool: str | None
    hosts: list[tuple[str, int, int, int]]
    """Each: name, index in `states`, sum of `flags`, number of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetMap:
    """The whole fleet in little, for a picture of it."""

    position: str
    states: list[str]
    flags: dict[Flag, int]
    racks: list[MapRack]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDetail:
    """One host."""

    position: str
    version: str
    """Of the host as it is decided; `If-Match` of a change may name it, and the change is refused if it is another."""
    host: Host
    connected: bool
    samples: tuple[GpuSample, ...]
    """The latest."""
    findings: tuple[Finding, ...]
    """Newest first, at most 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderBrief:
    """An order that followed from a decision."""

    id: str
    kind: str
    """`Quarantine`, `Release`, `RunBurnin` or `Notify`."""
    why: str
    level: str | None = None
    """Of a burn-in."""
    drain: str | None = None
    """Of a quarantine: how work leaves."""
    withheld: str | None = None
    """What kept it back; null: nothing did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One decision on a host."""

    at_s: float
    event: str
    """What was decided on: `FindingReceived`, `OperatorReleased`, …"""
    who: str | None
    """The person who asked; null: nobody did."""
    reason: str
    why: str
    refused: bool
    state: Lifecycle | None
    """Afterwards."""
    holds: int
    orders: list[OrderBrief]
    finding: Finding | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What was decided on a host, newest first, at most 200."""

    entries: list[TimelineEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeries:
    """The last readings of one GPU; null: not read."""

    gpu: GpuId
    power_watts: list[float | None]
    temperature_celsius: list[float | None]
    sm_clock_hertz: list[float | None]
    utilization_ratio: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """A short window of a host's readings. All series are as long as `at_s`."""

    at_s: list[float]
    gpus: list[GpuSeries]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """The fleet as one thing."""

    position: str
    hosts: int
    states: dict[str, int]
    """Hosts by state."""
    connected: int
    held: int
    withheld: int
    tripped: tuple[Tripped, ...]
    stopped: Stopped | None
    """The kill switch; null: automation runs."""
    incidents: tuple[Incident, ...]
    incidents_opened: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPage:
    """A page of what the journal says in short, in its order or the newest first."""

    facts: tuple[Fact, ...]
    more: bool
    """Whether there are more after the last one: ask with its `position` as `after`; of the newest, as `before`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """Who you are."""

    name: str
    role: str
    csrf: str | None
    """What changes by this session's cookie must show in `X-Fleetd-CSRF`; null: there is no session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SdTarget:
    """A group of Prometheus's HTTP service discovery."""

    targets: list[str]
    labels: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsReport:
    """What became of alerts."""

    firing: int
    resolved: int
    taken: int
    refused: list[str]
