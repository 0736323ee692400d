"""A host as the controller sees it: lifecycle, holds, strikes and what it waits for."""

from dataclasses import dataclass
from enum import StrEnum

from fleetd.model.finding import FaultClass
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId


class Lifecycle(StrEnum):
    """Where a host stands. Only `healthy` and `probation` serve users."""

    NEW = "new"
    QUALIFYING = "qualifying"
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    QUARANTINED = "quarantined"
    REPAIRING = "repairing"
    PROBATION = "probation"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of a host's inventory."""

    gpu: GpuId
    index: int
    vendor: str
    """`nvidia`, `amd` or `sim`."""
    sku: str
    pci_address: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What an agent says first on every connection."""

    host: HostName
    boot_id: BootId
    agent_version: str
    capabilities: tuple[str, ...]
    inventory: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A reason why a host is kept from its users. A host is free when all holds on it are gone."""

    owner: str
    """`fleetd` or `operator:NAME`. Nobody lifts a hold of another owner, except by an override with a reason."""
    reason: str
    evidence: tuple[FindingId, ...]
    gpu: GpuId | None
    fault_class: FaultClass
    boot_id: BootId | None
    at_s: float
    proof_level: str | None
    """The burn-in level that must pass before the hold may go; None: an operator's decision only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A transient fault counted against a GPU."""

    gpu: GpuId
    finding: FindingId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBurnin:
    """A burn-in that was ordered and has not ended."""

    order_id: OrderId
    level: str
    issued_at_s: float
    not_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host of the fleet, as decided from everything known about it."""

    name: HostName
    state: Lifecycle
    why: str
    """Why it is in this state."""
    since_s: float
    """Wall time at which it entered this state."""
    boot_id: BootId | None
    inventory: tuple[Gpu, ...]
    holds: tuple[Hold, ...]
    strikes: tuple[Strike, ...]
    pending: PendingBurnin | None
    proof: FindingId | None
    """The last passing burn-in of this boot, if any."""
    orders_issued: int
    """How many orders were ever issued for this host; numbers the next order's id."""
    attempts: int
    """Burn-ins in a row that ended without a judgement."""
