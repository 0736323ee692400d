"""The fleet as one thing: its areas, what a human must decide before automation goes on, and its open incidents."""

from dataclasses import dataclass
from enum import StrEnum

from fleetd.model.ids import HostName


class Area(StrEnum):
    """What a budget can be about: the whole fleet, or the hosts that share something that can fail or be missed."""

    FLEET = "fleet"
    POOL = "pool"
    RACK = "rack"
    NVLINK_DOMAIN = "nvlink_domain"
    POWER_DOMAIN = "power_domain"
    SKU = "sku"
    JOB = "job"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AreaKey:
    """One area: its kind and its name (the fleet's is empty)."""

    area: Area
    name: str

    def __str__(self) -> str:
        return f"{self.area} `{self.name}`" if self.name else str(self.area)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tripped:
    """A budget that was used up when one more quarantine was due. Only a human re-arms it."""

    key: AreaKey
    at_s: float
    why: str
    told_at_s: float
    """When a human was last paged about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The kill switch is on: nothing is done automatically until a human takes it back."""

    who: str
    reason: str
    at_s: float


class IncidentKind(StrEnum):
    """What makes an incident of what looks like the trouble of many hosts."""

    STORM = "storm"
    """The same fault, or failures of the same burn-in kernels, on many hosts at once: no host is to blame for it."""
    PARTITION = "partition"
    """Many agents fell silent at once: the controller lost its network, not they their hosts."""
    EARLIER = "earlier"
    """The scheduler keeps hosts closed for orders that this ledger does not have: an earlier one was lost, or this one
    was put back from a backup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One open incident."""

    id: str
    """`KIND/KEY/NUMBER`; the number tells the next one of the same kind apart."""
    kind: IncidentKind
    key: str
    opened_at_s: float
    hosts: tuple[HostName, ...]
    """The first of them, by name."""
    hosts_total: int
    why: str
    told_at_s: float
    """When a human was last paged about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRecord:
    """What the ledger keeps of the fleet besides its hosts; small and bounded."""

    tripped: tuple[Tripped, ...] = ()
    stopped: Stopped | None = None
    incidents: tuple[Incident, ...] = ()
    """The open ones."""
    incidents_opened: int = 0
    """How many were ever opened; numbers the next one."""
