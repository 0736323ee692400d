"""The journal: each event with the decision it led to. Replaying the events gives the same fleet."""

from dataclasses import dataclass

from fleetd.model.event import AnyEvent, JobEnded
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.ids import HostName, SpoolId
from fleetd.model.order import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolProgress:
    """A finding's place in its host's spool: stored with the finding, so that it counts exactly once."""

    spool: SpoolId
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldOrder:
    """An order that a budget or the policy's stage kept back."""

    order: Order
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One event and what was decided on it; written in one transaction with everything it changes."""

    at_s: float
    """Wall time of the decision, seconds since the epoch."""
    event: AnyEvent
    host: Host | None
    """The host after the decision; None for an event of the whole fleet."""
    orders: tuple[Order, ...]
    withheld: tuple[WithheldOrder, ...]
    refused: bool
    """An operator's request that was not granted; `why` says what is missing."""
    fleet: FleetRecord | None
    """The fleet's record after the decision, where that changed it (a budget tripped, an incident opened, …)."""
    why: str
    progress: SpoolProgress | None
    """For a finding that came through a spool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRecord:
    """An order and what became of it."""

    order: Order
    done: bool
    result: str
    """What the actuator or the agent said; empty while the order is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreImage:
    """Everything a controller needs to go on where the last one stopped."""

    hosts: tuple[Host, ...]
    spools: tuple[tuple[HostName, SpoolProgress], ...]
    """Highest sequence number stored, by host and spool."""
    open_orders: tuple[Order, ...]
    """Orders that nobody has confirmed, in the order of issue."""
    fleet: FleetRecord
    quarantines: tuple[tuple[float, HostName], ...]
    """Wall time and host of the newest quarantine orders, ascending in the order of issue."""
    recent: tuple[JournalEntry, ...]
    """The newest entries with a finding, oldest first: what happened just before counts for what happens now."""
    job_ends: tuple[JournalEntry, ...] = ()
    """The newest entries with the end of a job, oldest first."""
    jobs_heard: tuple[JobEnded, ...] = ()
    """The ends of jobs that a scheduler may still tell again, oldest first: many more, where a job has many hosts."""
