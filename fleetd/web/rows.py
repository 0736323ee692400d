"""The model in the shapes of the API."""

from collections.abc import Iterable

from fleetd.model.event import FindingReceived
from fleetd.model.fact import person_of
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName
from fleetd.model.journal import JournalEntry
from fleetd.model.order import Order, Quarantine, RunBurnin
from fleetd.web.shapes import FLAGS, Flag, FleetMap, HostBrief, MapRack, OrderBrief, Timeline, TimelineEntry

_STATES = [state.value for state in Lifecycle]
_STATE_NUMBER = {state: number for number, state in enumerate(Lifecycle)}


def sku_of(host: Host) -> str | None:
    """The kinds of GPU of a host, joined by `+`."""
    return "+".join(sorted({gpu.sku for gpu in host.inventory})) or None


def brief(host: Host, *, connected: bool) -> HostBrief:
    """A host for a list."""
    return HostBrief(
        name=host.name,
        state=host.state,
        why=host.why,
        since_s=host.since_s,
        pool=host.place.pool,
        rack=host.place.rack,
        sku=sku_of(host),
        gpus=len(host.inventory),
        connected=connected,
        holds=host.holds,
        charges=host.charges,
        pending=host.pending,
        probation_until_s=host.probation_until_s,
    )


def flags(host: Host, *, connected: bool) -> int:
    """The sum of a host's flags."""
    held, withheld, burnin, away = FLAGS.values()
    return (
        held * bool(host.holds)
        + withheld * bool(host.charges)
        + burnin * (host.pending is not None)
        + away * (not connected and host.state is not Lifecycle.RETIRED)
    )


def word_flags(host: Host, *, connected: bool) -> set[Flag]:
    """The same as words."""
    bits = flags(host, connected=connected)
    return {word for word, bit in FLAGS.items() if bits & bit}


def row(host: Host, *, connected: bool) -> tuple[str, int, int, int]:
    """A host on the map: name, index of its state, sum of its flags, number of its GPUs."""
    return host.name, _STATE_NUMBER[host.state], flags(host, connected=connected), len(host.inventory)


def fleet_map(hosts: Iterable[Host], connected: frozenset[HostName], *, position: str) -> FleetMap:
    """All hosts by pool and rack, each sorted by name; those whose place is not known come last."""
    racks: dict[tuple[str | None, str | None], MapRack] = {}
    for host in hosts:
        place = host.place.pool, host.place.rack
        rack = racks.get(place)
        if rack is None:
            rack = racks[place] = MapRack(pool=place[0], name=place[1], hosts=[])
        rack.hosts.append(row(host, connected=host.name in connected))
    ordered = sorted(racks.values(), key=lambda r: (r.pool is None, r.pool or "", r.name is None, r.name or ""))
    return FleetMap(position=position, states=_STATES, flags=FLAGS, racks=ordered)


def timeline(entries: Iterable[JournalEntry]) -> Timeline:
    """What was decided, in the order given."""
    return Timeline(entries=[_entry(entry) for entry in entries])


def _entry(entry: JournalEntry) -> TimelineEntry:
    orders = [_order(order) for order in entry.orders]
    orders += [_order(held.order, withheld=held.why) for held in entry.withheld]
    return TimelineEntry(
        at_s=entry.at_s,
        event=type(entry.event).__name__,
        who=person_of(entry.event),
        reason=getattr(entry.event, "reason", ""),
        why=entry.why,
        refused=entry.refused,
        state=None if entry.host is None else entry.host.state,
        holds=0 if entry.host is None else len(entry.host.holds),
        orders=orders,
        finding=entry.event.finding if isinstance(entry.event, FindingReceived) else None,
    )


def _order(order: Order, *, withheld: str | None = None) -> OrderBrief:
    return OrderBrief(
        id=order.id,
        kind=type(order).__name__,
        why=order.why,
        level=order.level if isinstance(order, RunBurnin) else None,
        drain=order.drain.value if isinstance(order, Quarantine) else None,
        withheld=withheld,
    )
