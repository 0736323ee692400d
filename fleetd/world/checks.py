"""What must hold in every world, whatever happened in it. Each check answers with one line for each thing broken."""

from collections import Counter
from collections.abc import Iterator

from fleetd.core import budget
from fleetd.core.budget import OUT_OF_SERVICE, FleetView
from fleetd.core.judgement import judge
from fleetd.core.lifecycle import FLEETD
from fleetd.model.event import FindingReceived, OperatorQuarantined, OperatorReleased
from fleetd.model.host import Hold, Host, Lifecycle
from fleetd.model.ids import FindingId, HostName, OrderId
from fleetd.model.journal import JournalEntry
from fleetd.model.order import Quarantine, Release, RunBurnin
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
        *persisted_before_acting(outcome),
        *foreign_holds_stay(outcome),
    ]
    if settled:
        found += [*all_is_delivered(outcome), *all_is_calm(outcome)]
    return found[:_SHOWN]


def _steps(outcome: Outcome) -> Iterator[tuple[float, Host | None, JournalEntry]]:
    """(virtual time, the host before, entry) of each entry."""
    hosts: dict[HostName, Host] = {}
    for at_s, entry in outcome.journal:
        yield at_s, hosts.get(entry.host.name), entry
        hosts[entry.host.name] = entry.host


def no_quarantine_without_evidence(outcome: Outcome) -> Iterator[str]:
    """Every automatic quarantine rests on stored findings about this host, of a hardware class, and on a real trouble."""
    stored: dict[FindingId, HostName] = {}
    for at_s, _, entry in _steps(outcome):
        if isinstance(entry.event, FindingReceived):
            stored[entry.event.finding.id] = entry.event.finding.host
        if isinstance(entry.event, OperatorQuarantined) or not any(isinstance(o, Quarantine) for o in entry.orders):
            continue
        where = f"{at_s:.0f} s: {entry.host.name} was quarantined"
        ours = [hold for hold in entry.host.holds if hold.owner == FLEETD]
        if not ours:
            yield f"{where} without a hold"
        for hold in ours:
            if not hold.evidence or any(stored.get(finding) != entry.host.name for finding in hold.evidence):
                yield f"{where} without evidence of its own: {hold.evidence}"
            if not hold.fault_class.is_hardware:
                yield f"{where} for {hold.fault_class}, which is no hardware"
        if entry.host.name not in outcome.planted:
            yield f"{where} and nothing was ever wrong with it: {entry.why}"


def budgets_are_kept(outcome: Outcome) -> Iterator[str]:
    """No automatic quarantine beyond what the policy allows, counted anew from the journal."""
    limit = outcome.policy.budgets.quarantines
    known: dict[HostName, bool] = {}
    ordered_at_s: list[float] = []
    for at_s, _, entry in _steps(outcome):
        known[entry.host.name] = entry.host.state in OUT_OF_SERVICE
        for order in entry.orders:
            if not isinstance(order, Quarantine):
                continue
            recent = sum(t > entry.at_s - limit.window_seconds for t in ordered_at_s)
            ordered_at_s.append(entry.at_s)
            if isinstance(entry.event, OperatorQuarantined):
                continue
            out, allowed = sum(known.values()), max(limit.at_least, int(limit.max_ratio * len(known) + 1e-9))
            if out > allowed or recent >= limit.max_in_window:
                yield f"{at_s:.0f} s: {entry.host.name} goes beyond the budget: {out} out, {recent} recently"


def each_finding_counts_once(outcome: Outcome) -> Iterator[str]:
    """Every finding decides once, however often it arrived; every order is issued once."""
    decided: Counter[FindingId] = Counter()
    ordered: Counter[OrderId] = Counter()
    for _, before, entry in _steps(outcome):
        ordered.update(order.id for order in entry.orders)
        if isinstance(entry.event, FindingReceived) and (before != entry.host or entry.orders or entry.withheld):
            decided[entry.event.finding.id] += 1
    yield from (f"finding {finding} decided {times} times" for finding, times in decided.items() if times > 1)
    yield from (f"order {order} was issued {times} times" for order, times in ordered.items() if times > 1)


def replay_is_equal(outcome: Outcome) -> Iterator[str]:
    """The events of the journal, judged again, give the same hosts, orders and reasons."""
    hosts: dict[HostName, Host] = {}
    seen: set[FindingId] = set()
    view = FleetView()
    limit = outcome.policy.budgets.quarantines
    for at_s, entry in outcome.journal:
        before = hosts.get(entry.host.name)
        if isinstance(entry.event, FindingReceived):
            again = entry.event.finding.id in seen
            seen.add(entry.event.finding.id)
            if again:
                continue
        step = judge(now_s=entry.at_s, host=before, event=entry.event, fleet=view, policy=outcome.policy)
        if (step.state, step.orders, step.why) != (entry.host, entry.orders, entry.why):
            yield f"{at_s:.0f} s: judged again, {entry.host.name} goes another way: {step.why} (was: {entry.why})"
            return
        view = budget.after(view, before=before, step=step, now_s=entry.at_s, budget=limit)
        hosts[entry.host.name] = step.state


def persisted_before_acting(outcome: Outcome) -> Iterator[str]:
    """Nothing was done that was not on disk before, and no order was carried out twice."""
    issued: dict[OrderId, float] = {}
    for at_s, _, entry in _steps(outcome):
        for order in entry.orders:
            issued.setdefault(order.id, at_s)
    for carried in outcome.carried:
        if issued.get(carried.order.id, float("inf")) > carried.at_s:
            yield f"{carried.at_s:.0f} s: {carried.order.id} was carried out before it was on disk"
    times = Counter(carried.order.id for carried in outcome.carried)
    yield from (f"order {order} was carried out {count} times" for order, count in times.items() if count > 1)


def foreign_holds_stay(outcome: Outcome) -> Iterator[str]:
    """A hold of an operator goes only when an operator releases the host, and a held host is never given back."""
    for at_s, before, entry in _steps(outcome):
        kept = {hold.owner for hold in entry.host.holds}
        gone = [h.owner for h in _foreign(before) if h.owner not in kept]
        if gone and not isinstance(entry.event, OperatorReleased):
            yield f"{at_s:.0f} s: {entry.host.name} lost the hold of {', '.join(gone)} by itself"
        if kept and any(isinstance(order, Release) for order in entry.orders):
            yield f"{at_s:.0f} s: {entry.host.name} was given back while {', '.join(sorted(kept))} held it"


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
    for _, entry in outcome.journal:
        for order in entry.orders:
            if not isinstance(order, RunBurnin) and order.id not in carried:
                yield f"order {order.id} was never carried out: {order.why}"


def all_is_calm(outcome: Outcome) -> Iterator[str]:
    """A host with which nothing is wrong any more serves again, unless a human was asked and has not decided."""
    asked = {c.order.host for c in outcome.carried if type(c.order).__name__ in {"Notify", "Quarantine"}}
    for host in outcome.hosts:
        well = host.state in (Lifecycle.HEALTHY, Lifecycle.PROBATION)
        if host.name not in outcome.sick and not well and host.name not in asked:
            yield f"{host.name} is well and yet {host.state} since {host.since_s:.0f}: {host.why}"
    for host in outcome.image.hosts:
        if host not in outcome.hosts:
            yield f"{host.name} is {host.state} on disk and another in memory"
