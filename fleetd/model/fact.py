"""Facts: what a journal entry says in short, for those who look at many: the audit trail and the report."""

from dataclasses import dataclass, field

from fleetd.model.event import AnyEvent, FindingReceived, GpuSwapped, JobEnded, OperatorReleased, OperatorRepaired
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName
from fleetd.model.journal import JournalEntry

OURS = "fleetd"
"""Owner of the holds that a policy puts on."""

BEGINNING = "Beginning"
"""The kind of the facts that say how hosts stood where a pruned journal begins."""

_ALWAYS = (JobEnded, GpuSwapped, OperatorRepaired)
"""Events that a report counts although no host changes by them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What hosts are grouped by in a report. None: not known, or not said."""

    vendor: str | None = None
    sku: str | None = None
    """Several, joined by `+`, for a host with several kinds of GPU; the same for vendors."""
    pool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One entry of the journal in short."""

    position: int
    """Of the entry in the journal."""
    at_s: float
    """Wall time of the decision, seconds since the epoch."""
    event: str
    """Name of the event's class."""
    host: HostName | None
    """None: the event is about the fleet."""
    who: str | None
    """The person who asked for it; None: it came by itself."""
    reason: str
    """What the person gave as the reason; empty without a person."""
    why: str
    """The decision's reason."""
    refused: bool
    was: str
    """What it was about, before: the host's state and its holds, or the fleet's."""
    now: str
    """The same afterwards."""
    orders: tuple[str, ...] = ()
    """Ids of the orders that followed."""
    # Of the host, afterwards; for an event of the fleet None, 0 and False.
    state: Lifecycle | None = None
    kind: Kind = Kind()
    gpus: int = 0
    held_by_us: bool = False
    """Whether a policy's hold is on it."""
    # Of the event.
    found_at_s: float | None = None
    """When the host saw what it reports, by the host's clock; None: it is no finding."""
    override: bool = False
    """A release without the proof that was asked for."""
    job_ok: bool | None = None
    """None: it is not the end of a job."""
    job_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuery:
    """Which facts are asked for, in the order of the journal unless `newest`. None: any."""

    after: int = 0
    """Only those behind this position."""
    before: int | None = None
    """Only those in front of this position."""
    newest: bool = False
    """The newest of them, newest first; a pruned journal's beginning is not told."""
    limit: int
    """So many at most."""
    notable: bool = False
    """Only those that a report counts."""
    people: bool = False
    """Only those that a person asked for."""
    host: HostName | None = None
    who: str | None = None
    event: str | None = None
    since_s: float | None = None
    until_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where a journal begins: after a position, with the hosts and the fleet as they were then."""

    position: int = 0
    """0: at the very beginning, nothing was pruned."""
    at_s: float = 0.0
    hosts: tuple[Host, ...] = ()
    fleet: FleetRecord = field(default_factory=FleetRecord)


def summary(host: Host | None) -> str:
    """A host in a few words: state, owners of its holds, charges."""
    if host is None:
        return "unknown"
    owners = dict.fromkeys(hold.owner for hold in host.holds)
    parts = [host.state.value]
    parts += [f"held by {', '.join(owners)}"] if owners else []
    parts += [f"{len(host.charges)} charged"] if host.charges else []
    return "; ".join(parts)


def fleet_summary(record: FleetRecord) -> str:
    """The fleet's record in a few words."""
    parts = ["automation running" if record.stopped is None else "automation stopped"]
    parts += [f"{len(record.tripped)} budgets tripped"] if record.tripped else []
    parts += [f"{len(record.incidents)} incidents open"] if record.incidents else []
    return "; ".join(parts)


def person_of(event: AnyEvent) -> str | None:
    """Who asked for it, by his name alone; None when nobody did, or fleetd itself."""
    who: str | None = getattr(event, "who", None)
    return None if who is None or who == OURS else who.removeprefix("operator:")


def is_notable(event: AnyEvent, before: Host | None, after: Host | None) -> bool:
    """Whether a report would count differently without this entry."""
    if isinstance(event, _ALWAYS) or (isinstance(event, OperatorReleased) and event.override):
        return True
    return after is not None and (before is None or _weight(before) != _weight(after))


def fact_of(position: int, entry: JournalEntry, was: str) -> Fact:
    """The fact of an entry; `was` is the summary of what it is about, before it."""
    event, host = entry.event, entry.host
    fleet_now = was if entry.fleet is None else fleet_summary(entry.fleet)
    return Fact(
        position=position,
        at_s=entry.at_s,
        event=type(event).__name__,
        host=None if host is None else host.name,
        who=person_of(event),
        reason=getattr(event, "reason", ""),
        why=entry.why,
        refused=entry.refused,
        was=was,
        now=fleet_now if host is None else summary(host),
        orders=tuple(order.id for order in entry.orders),
        state=None if host is None else host.state,
        kind=Kind() if host is None else kind_of(host),
        gpus=0 if host is None else len(host.inventory),
        held_by_us=host is not None and _held_by_us(host),
        found_at_s=event.finding.at_s if isinstance(event, FindingReceived) else None,
        override=isinstance(event, OperatorReleased) and event.override,
        job_ok=event.ok if isinstance(event, JobEnded) else None,
        job_seconds=event.ran_seconds if isinstance(event, JobEnded) else 0.0,
    )


def beginning_facts(beginning: Beginning) -> tuple[Fact, ...]:
    """How hosts stood where a pruned journal begins, as facts that stand before all others."""
    return tuple(
        Fact(
            position=beginning.position,
            at_s=beginning.at_s,
            event=BEGINNING,
            host=host.name,
            who=None,
            reason="",
            why=host.why,
            refused=False,
            was=summary(host),
            now=summary(host),
            state=host.state,
            kind=kind_of(host),
            gpus=len(host.inventory),
            held_by_us=_held_by_us(host),
        )
        for host in beginning.hosts
    )


def kind_of(host: Host) -> Kind:
    """What a report groups a host by."""
    vendors = "+".join(sorted({gpu.vendor for gpu in host.inventory}))
    skus = "+".join(sorted({gpu.sku for gpu in host.inventory}))
    return Kind(vendor=vendors or None, sku=skus or None, pool=host.place.pool)


def _held_by_us(host: Host) -> bool:
    return any(hold.owner == OURS for hold in host.holds)


def _weight(host: Host) -> tuple[object, ...]:
    """All of a host that a report counts."""
    gpus = tuple((gpu.vendor, gpu.sku) for gpu in host.inventory)
    return host.state, _held_by_us(host), gpus, host.place.pool
