"""The quarantine budgets: how many hosts automation may take away from their users, and when it must stop and ask.

A budget is about the fleet or an area of it. When one trips, every further automatic quarantine in its area is withheld
until a human re-arms it. Releases and operators' own holds always pass.
"""

from collections import Counter
from dataclasses import dataclass, replace

from fleetd.core.fleet import FLEET, Fleet, areas_of
from fleetd.core.policy import Budget, Policy
from fleetd.model.fleet import Area, AreaKey, FleetRecord, Tripped
from fleetd.model.host import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """Why one more automatic quarantine may not be ordered now."""

    key: AreaKey
    why: str


def objection(fleet: Fleet, host: Host, *, policy: Policy, now_s: float) -> Objection | None:
    """The first budget that a quarantine of this host does not fit into; None when it fits into all."""
    tripped = {t.key for t in fleet.record.tripped}
    for key in areas_of(host):
        budget = policy.budgets.quarantines if key == FLEET else policy.budgets.quarantines_by.get(key.area)
        if budget is None:
            continue
        if key in tripped:
            return Objection(key=key, why=f"the quarantine budget of {key} has tripped and waits to be re-armed")
        count = fleet.count(key)
        recent = fleet.quarantined_since(key, now_s - budget.window_seconds)
        why = _used_up(budget, hosts=count.hosts, have=count.held, recent=recent)
        if why is not None:
            return Objection(key=key, why=f"the quarantine budget of {key} is used up: {why}")
    return None


def burnin_objection(fleet: Fleet, *, policy: Policy) -> str | None:
    """Why one more host that serves users may not be burnt in now; None when it may."""
    budget = policy.budgets.burnins
    if budget is None:
        return None
    count = fleet.count(FLEET)
    if count.tested >= budget.allowed(count.hosts):
        return f"{count.tested} hosts that served users are being burnt in, which is as many as the budget allows"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How a quarantine budget of one area stands."""

    key: AreaKey
    budget: Budget
    hosts: int
    held: int
    recent: int
    tripped: bool

    @property
    def fullness(self) -> tuple[bool, float]:
        """Sorts the fullest last: tripped, then by the share that is spent."""
        held, recent = self.budget.allowed(self.hosts), self.budget.max_in_window
        return self.tripped, max(self.held / held if held else 1.0, self.recent / recent if recent else 1.0)


def uses(fleet: Fleet, *, policy: Policy, now_s: float, limit: int) -> tuple[Use, ...]:
    """The fleet's budget, then those of areas of which something is spent: the `limit` fullest, fullest first."""
    budgets = {Area.FLEET: policy.budgets.quarantines, **policy.budgets.quarantines_by}
    recent: Counter[AreaKey] = Counter()
    for at_s, keys in fleet.quarantines():
        recent.update(key for key in keys if key.area in budgets and at_s > now_s - budgets[key.area].window_seconds)
    tripped = {t.key for t in fleet.record.tripped}
    counts = {FLEET: fleet.count(FLEET), **fleet.areas()}
    found = [
        Use(
            key=key,
            budget=budgets[key.area],
            hosts=count.hosts,
            held=count.held,
            recent=recent[key],
            tripped=key in tripped,
        )
        for key, count in counts.items()
        if key.area in budgets and (key == FLEET or count.held or recent[key] or key in tripped)
    ]
    areas = sorted((use for use in found if use.key != FLEET), key=lambda use: (use.fullness, use.key), reverse=True)
    return (*(use for use in found if use.key == FLEET), *areas[:limit])


def trip(record: FleetRecord, found: Objection, *, now_s: float, tell_again_s: float) -> tuple[FleetRecord, bool]:
    """The record with the budget tripped, and whether a human is to be paged about it now."""
    old = next((t for t in record.tripped if t.key == found.key), None)
    if old is None:
        new = Tripped(key=found.key, at_s=now_s, why=found.why, told_at_s=now_s)
        return replace(record, tripped=(*record.tripped, new)), True
    if now_s - old.told_at_s < tell_again_s:
        return record, False
    again = replace(old, told_at_s=now_s)
    return replace(record, tripped=tuple(again if t is old else t for t in record.tripped)), True


def _used_up(budget: Budget, *, hosts: int, have: int, recent: int) -> str | None:
    allowed = budget.allowed(hosts)
    if have >= allowed:
        return f"{have} of {hosts} hosts are out of service and {allowed} may be"
    if recent >= budget.max_in_window:
        return (
            f"{recent} quarantines in the last {budget.window_seconds:g} seconds and {budget.max_in_window} may be "
            "ordered"
        )
    return None
