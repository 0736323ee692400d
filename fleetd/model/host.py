"""A host as the controller sees it: lifecycle, holds, strikes and what it waits for."""

from dataclasses import dataclass
from enum import StrEnum

from fleetd.model.finding import Ballot, FaultClass
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
    vbios: str | None = None
    firmware: str | None = None
    """Version of the firmware that runs on the GPU (NVIDIA: GSP; AMD: PM)."""
    driver_version: str | None = None
    """Version of the kernel driver."""
    partitions: tuple[str, ...] = ()
    """What it is divided into (NVIDIA: UUIDs of MIG devices; AMD: PCI addresses): one GPU all the same. Known on its
    host only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a host stands and what it works for. None: not known, which is nobody's neighbour."""

    pool: str | None = None
    rack: str | None = None
    nvlink_domain: str | None = None
    power_domain: str | None = None
    job: str | None = None


POWER_LEASES = "power-leases"
"""The capability of an agent that asks for leases of the fleet's power budgets and keeps to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What an agent says first on every connection."""

    host: HostName
    boot_id: BootId
    agent_version: str
    capabilities: tuple[str, ...]
    inventory: tuple[Gpu, ...]
    place: Place = Place()
    at_s: float | None = None
    """The agent's wall clock, seconds since the epoch; None from an agent that does not say."""
    driver_version: str | None = None
    """Of the driver of its GPUs; None: not known, not the same for all, or from an agent that does not say."""


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
    """Its epoch: the boot in which it was put on. Within one boot, evidence voids the proofs and burn-ins before it."""
    at_s: float
    proof_level: str | None
    """The burn-in level that must pass before the hold may go; None: an operator's decision only."""
    after_reboot: bool = False
    """Whether the proof must come from a later boot than the hold."""
    expires_at_s: float | None = None
    """Wall time at which an operator's hold goes by itself. Holds of fleetd never do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """A hold that something keeps from being put on: it stands until it is proven wrong or put on."""

    hold: Hold
    withheld: str
    """What keeps it back."""
    key: str | None
    """What it has in common with other hosts if it is part of a storm (`core.storm`); None: it is this host's alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The host was condemned for a GPU, or for itself: a line in the history of the serial, the slot and the host."""

    gpu: GpuId | None
    slot: str | None
    """PCI address of the GPU at that time, or `#INDEX`."""
    finding: FindingId
    fault_class: FaultClass
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A device fault that was seen, for rules that count."""

    code: str
    gpu: GpuId | None
    finding: FindingId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A job that failed on the host soon after it began."""

    job: str
    at_s: float
    """Wall time at which the controller heard of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A human was told; the same is not told again too soon."""

    about: str
    at_s: float


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
    accepted: bool = False
    """Whether the agent has it on its disk."""
    disruptive: bool = False
    """Whether the host served users when it was ordered, so that it counts against that budget."""
    by_operator: bool = False
    """Whether a person asked for it: the kill switch does not hold it back."""
    awaited_until_s: float | None = None
    """Set when the agent came back late: its result is awaited until then at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueBurnin:
    """A burn-in that could not be ordered yet."""

    level: str
    why: str
    not_before_s: float
    """When to try again, unless something happens before."""
    tries: int = 1
    """How often it was tried."""
    disruptive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """The agent has been away for too long."""

    since_s: float
    """Wall time at which its connection ended."""
    before: Lifecycle
    """The state that the host had."""


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
    """The number of the last order that was issued for this host; what earlier ledgers may have issued is left out."""
    attempts: int
    """Burn-ins in a row that ended without a judgement."""
    place: Place = Place()
    charges: tuple[Charge, ...] = ()
    """What would hold the host if nothing kept it back."""
    marks: tuple[Mark, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    failed_jobs: tuple[FailedJob, ...] = ()
    """The newest that failed fast, since the host was last suspected for them."""
    ballots: tuple[Ballot, ...] = ()
    """Of the last burn-in that passed."""
    driver_version: str | None = None
    """Of the GPUs' driver, as the agent said last; None: it does not say."""
    due: DueBurnin | None = None
    boots: tuple[BootId, ...] = ()
    """Earlier boots, the newest last: a machine never returns to one."""
    told: tuple[Told, ...] = ()
    silent: Silent | None = None
    """Set while the agent has been away for too long."""
    probation_until_s: float | None = None
    """When a probation ends by itself; None: a burn-in must pass."""
    closings: tuple[OrderId, ...] = ()
    """Orders of this ledger that closed the host in its scheduler, and those it has adopted; the newest last."""
    closings_from: int = 0
    """From which order number on they are listed. 0: nowhere, as earlier versions left it; every number is ours."""
    gone: tuple[GpuId, ...] = ()
    """GPUs that it should have and does not show (`core.gone`): with the inventory, all that it should have."""

    @property
    def held(self) -> bool:
        """Whether a hold keeps the host from its users, in whatever state it is."""
        return bool(self.holds)
