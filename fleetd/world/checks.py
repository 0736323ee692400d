"""What must hold in every world, whatever happened in it. Each check answers with one line for each thing broken."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from fleetd.core.fleet import FLEET, areas_of
from fleetd.core.invariants import EARLIER, FLEETD
from fleetd.core.replay import Replay
from fleetd.model.event import (
    FindingReceived,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepairs,
    OperatorRetires,
    SchedulerDiffers,
)
from fleetd.model.finding import Finding
from fleetd.model.fleet import AreaKey
from fleetd.model.host import Hold, Host, Lifecycle
from fleetd.model.ids import FindingId, HostName, OrderId
from fleetd.model.journal import JournalEntry, SpoolProgress
from fleetd.model.order import Order, Quarantine, Release, RunBurnin
from fleetd.world.outcome import Outcome

_SHOWN = 20


def broken(outcome: Outcome, *, settled: bool) -> list[str]:
    """Everything that is broken, at most twenty lines; empty for a good world.

    Args:
        outcome: what is left of the world.
        settled: whether the world was calm for long enough at its end for everything to be delivered and done.
    """
    found = [
        *no_quarantine_without_evidence(outcome),
        *budgets_are_kept(outcome),
        *each_finding_counts_once(outcome),
        *replay_is_equal(outcome),
        *automation_stops_when_told(outcome),
        *persisted_before_acting(outcome),
        *foreign_holds_stay(outcome),
    ]
    if settled:
        found += [*all_is_delivered(outcome), *all_is_calm(outcome)]
    return found[:_SHOWN]


def _steps(outcome: Outcome) -> Iterator[tuple[float, Host | None, Host, JournalEntry]]:
    """(virtual time, the host before, the host after, entry) of each entry that is about a host."""
    hosts: dict[HostName, Host] = {}
    for at_s, entry in outcome.journal:
        if entry.host is not None:
            yield at_s, hosts.get(entry.host.name), entry.host, entry
            hosts[entry.host.name] = entry.host


def _by_itself(entry: JournalEntry) -> bool:
    """Whether automation took the host of this entry away from its users."""
    by_people = isinstance(entry.event, OperatorQuarantined | OperatorRepairs | OperatorRetires)
    return not by_people and any(isinstance(order, Quarantine) for order in entry.orders)


def no_quarantine_without_evidence(outcome: Outcome) -> Iterator[str]:
    """Every automatic quarantine rests on stored findings of a hardware class, and on a real trouble."""
    stored: dict[FindingId, HostName] = {}
    for at_s, _, host, entry in _steps(outcome):
        if isinstance(entry.event, FindingReceived):
            stored[entry.event.finding.id] = entry.event.finding.host
        if not _by_itself(entry):
            continue
        where = f"{at_s:.0f} s: {host.name} was quarantined"
        ours = [hold for hold in host.holds if hold.owner == FLEETD]
        if not ours:
            yield f"{where} without a hold"
        for hold in ours:
            # What is known of a GPU goes with it to another host.
            its_gpu = any(gpu.gpu == hold.gpu for gpu in host.inventory)
            about_it = all(f in stored and (its_gpu or stored[f] == host.name) for f in hold.evidence)
            if not hold.evidence or not about_it:
                yield f"{where} without evidence of its own: {hold.evidence}"
            if not hold.fault_class.is_hardware:
                yield f"{where} for {hold.fault_class}, which is no hardware"
        if host.name not in outcome.planted:
            yield f"{where} and nothing was ever wrong with it: {entry.why}"


def budgets_are_kept(outcome: Outcome) -> Iterator[str]:
    """No automatic quarantine beyond what the policy allows in any area, counted anew from the journal."""
    budgets = outcome.policy.budgets
    members: dict[AreaKey, dict[HostName, bool]] = {}
    ordered: dict[AreaKey, list[float]] = {}
    for at_s, before, host, entry in _steps(outcome):
        for key in () if before is None else areas_of(before):
            members[key].pop(host.name, None)
        for key in areas_of(host):
            if host.state is not Lifecycle.RETIRED:
                members.setdefault(key, {})[host.name] = host.held
            else:
                members.setdefault(key, {})
        for order in entry.orders:
            if not isinstance(order, Quarantine):
                continue
            for key in areas_of(host):
                limit = budgets.quarantines if key == FLEET else budgets.quarantines_by.get(key.area)
                times = ordered.setdefault(key, [])
                recent = 0 if limit is None else sum(t > entry.at_s - limit.window_seconds for t in times)
                times.append(entry.at_s)
                if limit is None or not _by_itself(entry):
                    continue
                held, hosts = sum(members[key].values()), len(members[key])
                if held > limit.allowed(hosts) or recent >= limit.max_in_window:
                    yield f"{at_s:.0f} s: {host.name} goes beyond the budget of {key}: {held} held, {recent} recently"


def each_finding_counts_once(outcome: Outcome) -> Iterator[str]:
    """Every finding is stored once and decides once, however often it arrived; every order is issued once."""
    decided: Counter[FindingId] = Counter()
    ordered: Counter[OrderId] = Counter()
    for _, before, host, entry in _steps(outcome):
        ordered.update(order.id for order in entry.orders)
        if isinstance(entry.event, FindingReceived) and (before != host or entry.orders or entry.withheld):
            decided[entry.event.finding.id] += 1
    yield from (f"finding {finding} decided {times} times" for finding, times in decided.items() if times > 1)
    yield from (f"order {order} was issued {times} times" for order, times in ordered.items() if times > 1)
    yield from _stored_once(outcome)


def _stored_once(outcome: Outcome) -> Iterator[str]:
    """The ledger's rows are the findings that were accepted, as they were first told, each place in a spool once."""
    accepted: dict[FindingId, Finding] = {}
    places: Counter[tuple[HostName, SpoolProgress]] = Counter()
    for _, entry in outcome.journal:
        if isinstance(entry.event, FindingReceived):
            accepted.setdefault(entry.event.finding.id, entry.event.finding)
            if entry.progress is not None:
                places[entry.event.host, entry.progress] += 1
    rows = Counter(row.id for row in outcome.rows)
    yield from (f"finding {finding} is stored {times} times" for finding, times in rows.items() if times > 1)
    yield from (f"finding {finding} was accepted and is not stored" for finding in accepted if finding not in rows)
    for row in outcome.rows:
        if accepted.get(row.id) != row:
            yield f"finding {row.id} is stored as nobody told it"
    for (host, place), times in places.items():
        if times > 1:
            yield f"place {place.seq} in spool {place.spool} of {host} was accepted {times} times"


def replay_is_equal(outcome: Outcome) -> Iterator[str]:
    """The events of the journal, judged again, give the same hosts, orders and reasons."""
    replay = Replay(outcome.policy)
    for at_s, entry in outcome.journal:
        step = replay.take(entry.at_s, entry.event).step
        made = {
            "host": step.state,
            "orders": step.orders,
            "withheld": step.withheld,
            "fleet": step.fleet,
            "why": step.why,
        }
        changed = [name for name, value in made.items() if value != getattr(entry, name)]
        if changed:
            yield f"{at_s:.0f} s: judged again, {', '.join(changed)} differ: {step.why} (was: {entry.why})"
            return
    if replay.fleet.record != outcome.image.fleet:
        yield "replayed, the fleet's record is another one than the ledger's"


def automation_stops_when_told(outcome: Outcome) -> Iterator[str]:
    """While the kill switch is on, automation takes no host away."""
    stopped = False
    for at_s, entry in outcome.journal:
        if stopped and _by_itself(entry):
            yield f"{at_s:.0f} s: {entry.why} (and automation was stopped)"
        if entry.fleet is not None:
            stopped = entry.fleet.stopped is not None


def persisted_before_acting(outcome: Outcome) -> Iterator[str]:
    """Nothing was done that was not on disk before, and no order was carried out twice."""
    issued: dict[OrderId, float] = {}
    for at_s, entry in outcome.journal:
        for order in entry.orders:
            issued.setdefault(order.id, at_s)
    for carried in outcome.carried:
        if issued.get(carried.order.id, float("inf")) > carried.at_s:
            yield f"{carried.at_s:.0f} s: {carried.order.id} was carried out before it was on disk"
    times = Counter(carried.order.id for carried in outcome.carried)
    yield from (f"order {order} was carried out {count} times" for order, count in times.items() if count > 1)


def foreign_holds_stay(outcome: Outcome) -> Iterator[str]:
    """A hold of an operator goes only when he, or somebody overriding him, releases it; no held host is given back.

    What an earlier ledger held goes when anybody releases it.
    """
    for at_s, before, host, entry in _steps(outcome):
        kept = {(hold.owner, hold.at_s) for hold in host.holds}
        for hold in _foreign(before):
            gone = (hold.owner, hold.at_s) not in kept and not _expired(hold, entry.at_s)
            if gone and not _lifts(entry, hold, {owner for owner, _ in kept}):
                yield f"{at_s:.0f} s: {host.name} lost the hold of {hold.owner} ({hold.reason}) by itself: {entry.why}"
        if host.holds and any(isinstance(order, Release) for order in entry.orders):
            owners = ", ".join(sorted({hold.owner for hold in host.holds}))
            yield f"{at_s:.0f} s: {host.name} was given back while {owners} held it"


def _lifts(entry: JournalEntry, hold: Hold, owners: Collection[str]) -> bool:
    """Whether an entry is about somebody who may lift this very hold, or who puts another one in its place."""
    event = entry.event
    match event:
        case OperatorReleased():
            return not entry.refused and (event.override or hold.owner in {EARLIER, f"operator:{event.who}"})
        case OperatorQuarantined() | OperatorRepairs() | OperatorRetires():
            return hold.owner == f"operator:{event.who}" and hold.owner in owners
        case SchedulerDiffers():  # what is adopted after it is held for both
            return hold.owner == EARLIER and hold.owner in owners
        case _:
            return False


def _expired(hold: Hold, now_s: float) -> bool:
    return hold.expires_at_s is not None and hold.expires_at_s <= now_s


def _foreign(host: Host | None) -> tuple[Hold, ...]:
    return () if host is None else tuple(hold for hold in host.holds if hold.owner != FLEETD)


def all_is_delivered(outcome: Outcome) -> Iterator[str]:
    """Every finding that was safe on a host's disk is in the ledger, and nothing is left to do."""
    stored = {e.event.finding.id for _, e in outcome.journal if isinstance(e.event, FindingReceived)}
    reachable = {host.name for host in outcome.hosts} - outcome.sick
    for finding in outcome.found.values():
        if finding.host in reachable and finding.id not in stored:
            yield f"finding {finding.id} never reached the ledger"
    carried = {c.order.id for c in outcome.carried}
    for number, (_, entry) in enumerate(outcome.journal):
        for order in entry.orders:
            if isinstance(order, RunBurnin) or order.id in carried:
                continue
            if not _taken_back(order, (later for _, later in islice(outcome.journal, number + 1, None))):
                yield f"order {order.id} was never carried out: {order.why}"


def _taken_back(order: Order, later: Iterable[JournalEntry]) -> bool:
    """Whether the contrary was ordered for the same host afterwards: then the first order is void, not forgotten."""
    if not isinstance(order, Quarantine | Release):
        return False
    contrary = Release if isinstance(order, Quarantine) else Quarantine
    return any(isinstance(o, contrary) and o.host == order.host for entry in later for o in entry.orders)


def all_is_calm(outcome: Outcome) -> Iterator[str]:
    """A host with which nothing is wrong any more serves again, unless a human must decide and there is none."""
    changed_s = {entry.host.name: at_s for at_s, entry in outcome.journal if entry.host is not None}
    for host in outcome.hosts:
        # A burn-in that was ordered just now (a healthy GPU can look like an outlier at any time) is no standstill.
        age_s = outcome.seconds - changed_s.get(host.name, 0.0)
        if host.pending is not None and age_s < outcome.policy.qualify.timeout_seconds:
            continue
        at_rest = host.state in (Lifecycle.HEALTHY, Lifecycle.PROBATION, Lifecycle.RETIRED)
        waits = not outcome.attended and (host.held or host.charges or host.told)
        foreign = bool(_foreign(host))
        if host.name not in outcome.sick and not at_rest and not waits and not foreign:
            yield f"{host.name} is well and yet {host.state} since {host.since_s:.0f}: {host.why}"
        if host.held != (host.name in outcome.drained):
            yield f"{host.name} is {'held' if host.held else 'free'}, and its scheduler believes otherwise"
    by_name = {host.name: host for host in outcome.hosts}
    for host in outcome.image.hosts:
        if host != by_name.get(host.name):
            yield f"{host.name} is {host.state} on disk and another in memory"
