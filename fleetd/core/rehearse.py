"""What a journal would have looked like under another policy: its events decided anew, and the differences.

Events are taken as they were. What would have happened differently because of a different order is not known: a burn-in
that the other policy would not have ordered is still in the journal, and one that only it orders never ends.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleetd.core.earlier import knows
from fleetd.core.play import kinds_of
from fleetd.core.policy import Policy
from fleetd.core.replay import Replay
from fleetd.core.timeline import Kind
from fleetd.model.event import (
    AnyEvent,
    BurninAccepted,
    BurninRefused,
    FindingReceived,
    FleetEvent,
    SchedulerDiffers,
)
from fleetd.model.fact import Beginning
from fleetd.model.finding import BurninEnded
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName, OrderId
from fleetd.model.journal import JournalEntry

LATE_S = 5.0
"""A controller sees that something is due a tick late, and the journal has it then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one event led to."""

    orders: tuple[Kind, ...]
    withheld: tuple[Kind, ...]
    state: Lifecycle | None
    """Of the host; None for an event of the whole fleet."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An event that leads to something else under the other policy."""

    at_s: float
    host: HostName | None
    event: str
    was: Outcome
    would: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """A whole journal under another policy."""

    entries: int
    differences: tuple[Difference, ...]
    """The first ones."""
    differences_total: int
    orders_were: dict[str, int]
    orders_would: dict[str, int]
    hosts: tuple[tuple[HostName, Lifecycle, Lifecycle], ...]
    """Hosts that would be in another state at the end: (name, was, would)."""
    burnins_unknown: int
    """Burn-ins that would have been ordered and of which the journal knows no end."""


def rehearse(
    entries: Iterable[JournalEntry], policy: Policy, *, limit: int, beginning: Beginning | None = None
) -> Rehearsal:
    """Decide the events of a journal under another policy.

    Args:
        entries: the journal, from its beginning, in order.
        policy: the other policy.
        limit: so many differences are kept; all are counted.
        beginning: where a pruned journal begins: as the policy of that time left the hosts. None: at nothing.
    """
    replay = Replay(policy)
    then: dict[HostName, Host] = {}
    if beginning is not None:
        replay.begin_at(beginning)
        then.update(replay.hosts)
    were: Counter[str] = Counter()
    would: Counter[str] = Counter()
    kept: list[Difference] = []
    total = differences = 0
    for entry in entries:
        total += 1
        for _, taken in replay.pass_time(entry.at_s - LATE_S, connected=False):
            would.update(kinds_of(iter(taken.step.orders)))
        event = _translated(entry.event, then, replay)
        step = replay.take(entry.at_s, event).step
        was = Outcome(
            orders=kinds_of(iter(entry.orders)),
            withheld=kinds_of(w.order for w in entry.withheld),
            state=entry.host.state if entry.host is not None else None,
            why=entry.why,
        )
        now = Outcome(
            orders=kinds_of(iter(step.orders)),
            withheld=kinds_of(w.order for w in step.withheld),
            state=step.state.state if step.state is not None else None,
            why=step.why,
        )
        were.update(was.orders)
        would.update(now.orders)
        host = None if isinstance(event, FleetEvent) else event.host
        if (was.orders, was.withheld, was.state) != (now.orders, now.withheld, now.state):
            differences += 1
            if len(kept) < limit:
                kept.append(Difference(at_s=entry.at_s, host=host, event=type(event).__name__, was=was, would=now))
        if entry.host is not None:
            then[entry.host.name] = entry.host
    return Rehearsal(
        entries=total,
        differences=tuple(kept),
        differences_total=differences,
        orders_were=dict(sorted(were.items())),
        orders_would=dict(sorted(would.items())),
        hosts=tuple(
            (name, then[name].state, replay.hosts[name].state)
            for name in sorted(then.keys() & replay.hosts.keys())
            if then[name].state is not replay.hosts[name].state
        ),
        burnins_unknown=sum(_waits_for_ever(host, then.get(host.name)) for host in replay.hosts.values()),
    )


def _waits_for_ever(host: Host, then: Host | None) -> bool:
    return host.pending is not None and (then is None or then.pending is None)


def _translated(event: AnyEvent, then: dict[HostName, Host], replay: Replay) -> AnyEvent:
    """The event with the id of the order that the other policy waits for in place of the one that was waited for.

    Only when the levels are the same: a weaker run says nothing about a stronger one. An order that closed the host in
    its scheduler and was known then is known to the other policy, too, by whatever number.
    """
    if isinstance(event, FleetEvent):
        return event
    was, ours = then.get(event.host), replay.hosts.get(event.host)
    if isinstance(event, SchedulerDiffers) and event.order_id is not None and was is not None:
        return replace(event, order_id=None) if knows(was, event.order_id) else event
    pending = ours.pending if ours is not None else None
    if was is None or was.pending is None or pending is None or pending.level != was.pending.level:
        return event
    if isinstance(event, BurninAccepted | BurninRefused) and event.order_id == was.pending.order_id:
        return replace(event, order_id=pending.order_id)
    if isinstance(event, FindingReceived) and _ends(event, was.pending.order_id):
        finding = event.finding
        assert isinstance(finding, BurninEnded)  # noqa: S101 - `_ends` says so
        return replace(event, finding=replace(finding, order_id=pending.order_id))
    return event


def _ends(event: FindingReceived, order: OrderId) -> bool:
    return isinstance(event.finding, BurninEnded) and event.finding.order_id == order
