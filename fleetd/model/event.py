"""Events: everything that can change what the controller thinks of a host or the fleet. The journal is made of them."""

from dataclasses import dataclass

from fleetd.model.finding import Finding
from fleetd.model.host import Hello
from fleetd.model.ids import GpuId, HostName, OrderId
from fleetd.model.order import Drain


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConnected:
    """An agent said hello."""

    host: HostName
    hello: Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingReceived:
    """A finding arrived for the first time."""

    host: HostName
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSilent:
    """A host's agent has been away for as long as the policy allows; told again after as long once more."""

    host: HostName
    since_s: float
    """Wall time at which its connection ended."""
    away: int
    """Hosts without a connection at this moment, this one included."""
    known: int
    """Hosts that should have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurninAccepted:
    """The agent has an ordered burn-in on its disk."""

    host: HostName
    order_id: OrderId


@dataclass(frozen=True, slots=True, kw_only=True)
class BurninRefused:
    """The agent will not run a burn-in that was ordered."""

    host: HostName
    order_id: OrderId
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierFound:
    """A GPU is unlike its siblings (same SKU and pool, under load), and has been for the policy's window."""

    host: HostName
    gpu: GpuId
    index: int
    metric: str
    """Name in the metric catalogue."""
    value: float
    median: float
    """Of the siblings; both in the metric's unit."""
    z: float
    """Robust z-score: distance from the median in units of 1.4826 median absolute deviations."""
    siblings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outvoted:
    """Later burn-ins elsewhere in the fleet show that what this host computed in its last one was wrong."""

    host: HostName
    key: str
    """Which ballot."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """A job of the scheduler ended on a host; one that ran on several hosts ends on each of them."""

    host: HostName
    job: str
    """The scheduler's id of it; restarts that have ids of their own are jobs of their own."""
    ok: bool
    """False: it failed. A job that its user cancelled, or that was preempted, is no event."""
    ran_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderObstructed:
    """An order to the scheduler cannot be carried out as things are; it stays open and is tried again."""

    host: HostName
    order_id: OrderId
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerDiffers:
    """The scheduler treats the host otherwise than was ordered, and no order is open that would change it."""

    host: HostName
    closed: bool
    """True: an order of fleetd still keeps work from it; False: it lets work start there."""
    known: bool = True
    """False: the scheduler has no node of the host any more; under another name it may let work start there."""
    order_id: OrderId | None = None
    """The order of fleetd that keeps it closed, which may be about a host of another name. None: it is open, or the
    event is of a version that did not say."""
    why: str = ""
    """The reason that was written there with that order; empty: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorQuarantined:
    """An operator put a hold on the host."""

    host: HostName
    who: str
    reason: str
    expires_at_s: float | None = None
    """Wall time at which the hold goes by itself; None: never."""
    drain: Drain | None = None
    """How work leaves the host, also one that is held already; None: as the policy has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReleased:
    """An operator asks for the host back."""

    host: HostName
    who: str
    reason: str
    override: bool
    """Lift the holds although the proof that they ask for is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorBurnin:
    """An operator orders a burn-in: after a repair, or because he wants to know."""

    host: HostName
    who: str
    reason: str
    level: str | None
    """None: the one that makes the host healthy, or its release possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRepairs:
    """An operator begins to work on the host: nothing is run on it until he orders a burn-in."""

    host: HostName
    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRepaired:
    """An operator is done with a repair: the host is to prove itself."""

    host: HostName
    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSwapped:
    """An operator exchanged a GPU of the host. History follows the serial: it moves with neither of the two."""

    host: HostName
    who: str
    reason: str
    old: GpuId
    new: GpuId


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRetires:
    """An operator takes the host out of the fleet for good."""

    host: HostName
    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRestored:
    """The ledger was put back from a backup: what was decided on the host since then is not known any more.

    Orders of that time are, to those who carried them out. So their ids must not be given to others.
    """

    host: HostName
    who: str
    reason: str
    orders_skipped: int
    """So many order numbers are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    """What kept orders back is gone (budget re-armed, automation resumed, incident closed): judge the host as it is."""

    host: HostName
    why: str
    acquitted: str | None
    """Key of a storm that was found not to be the fault of its hosts: its charges are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """Nothing happened, but time did: pending work may have run out of it."""

    host: HostName
    connected: bool = True
    """Whether the host's agent is there; an agent that is away runs out of nothing."""


HostEvent = (
    AgentConnected
    | AgentSilent
    | FindingReceived
    | BurninAccepted
    | BurninRefused
    | OutlierFound
    | Outvoted
    | JobEnded
    | OrderObstructed
    | SchedulerDiffers
    | Rejudged
    | TimePassed
)
"""What happens to one host by itself."""

OperatorEvent = (
    OperatorQuarantined
    | OperatorReleased
    | OperatorBurnin
    | OperatorRepairs
    | OperatorRepaired
    | OperatorRetires
    | GpuSwapped
    | LedgerRestored
)
"""What operators ask for one host; it may be refused."""

Event = HostEvent | OperatorEvent
"""What can happen to one host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRearmed:
    """A human lets automatic quarantines through again after budgets tripped."""

    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationStopped:
    """A human stops every automatic action at once."""

    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationResumed:
    """A human takes the kill switch back."""

    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentClosed:
    """An incident is over; for a storm, a human says whether its hosts are acquitted."""

    incident: str
    who: str
    reason: str
    acquit: bool
    """Its hosts were not to blame: drop what it charged them with. Else each is judged as it is now."""


FleetEvent = BudgetRearmed | AutomationStopped | AutomationResumed | IncidentClosed
"""What can happen to the fleet as one thing."""

AnyEvent = Event | FleetEvent
"""What a journal holds."""
