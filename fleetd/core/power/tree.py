"""Power budgets of node, rack and domain as a tree of leases: live grants never add up to more than a budget.

What a host is *reserved* is the most that it may still be using: its safe cap, or the largest answer that it may have
taken and that has neither lapsed nor been replaced by one that it confirmed. A grant fits when every area above the
host has room for it beside what all others are reserved; hence a raise waits until the decrease that pays for it has
been confirmed or has lapsed. The clock's part of the proof stands in `fleetd.core.power.lease`.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fleetd.core.power.lease import Ask, Grant

DRIFT = 0.01
"""Clocks run apart by at most this; crystals keep to 0.0002, steered clocks to 0.0005 (adjtimex's limit)."""
LEASES_KEPT = 32
"""Answers to a host that are not yet settled; beyond it the two oldest are counted as their worse one."""
REFILLS_PER_LEASE = 20
"""Wishes change with every question; how the budgets are shared is worked out so often in a lease's time."""
_HALVINGS = 60
_MILLI = 1000
"""Reservations are added up in whole milliwatts: a sum that is kept up for months must not drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A rack, a domain: whatever has a budget of its own."""

    name: str
    budget_watts: float
    parent: str | None = None
    """None: nothing above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPower:
    """A host in the tree: its area and how far its power can go."""

    name: str
    area: str
    safe_watts: float
    """Without a lease; falls to it on its own."""
    max_watts: float


class TreeError(ValueError):
    """The tree cannot be kept safe: an unknown or circular parent, no numbers, or safe caps above a budget."""


@dataclass(slots=True, kw_only=True)
class _Lease:
    seq: int
    watts: float
    until_s: float


@dataclass(slots=True, kw_only=True)
class _Host:
    power: HostPower
    above: tuple[str, ...]
    epoch: int = -1
    seq: int = 0
    demand_watts: float = 0.0
    leases: list[_Lease] = field(default_factory=list)
    target_watts: float = 0.0
    reserved_milliwatts: int = 0

    def count(self, now_s: float) -> int:
        """Forget what has lapsed; how much more is reserved than was counted last, in milliwatts."""
        self.leases = [lease for lease in self.leases if now_s < lease.until_s]
        most = max((lease.watts for lease in self.leases), default=0.0)
        before = self.reserved_milliwatts
        self.reserved_milliwatts = math.ceil(max(self.power.safe_watts, most) * _MILLI)
        return self.reserved_milliwatts - before


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaUse:
    """An area as it stands, in watts."""

    name: str
    parent: str | None
    budget_watts: float
    reserved_watts: float
    demand_watts: float
    stranded_watts: float
    """Reserved by leases of hosts that do not want it any more and have not yet confirmed to hold less."""


class BudgetTree:
    """All leases of a controller. It persists nothing: after a start it raises nobody for one lease's time."""

    def __init__(
        self, areas: Iterable[Area], hosts: Iterable[HostPower], *, now_s: float, ttl_s: float, grace_s: float
    ) -> None:
        """Begin without knowing what earlier leases are still out.

        Args:
            areas: The tree, in any order.
            hosts: Its leaves.
            now_s: Monotonic time of the start.
            ttl_s: Life of a lease from the question on.
            grace_s: Within which a host whose lease lapsed has its safe cap in force.

        Raises:
            TreeError: See there.
        """
        self._areas = {area.name: area for area in areas}
        if not (0 < ttl_s < math.inf and 0 <= grace_s < math.inf):
            raise TreeError(f"a lease needs a positive life and no negative grace, not {ttl_s} s and {grace_s} s")
        self._ttl_s, self._life_s = ttl_s, (ttl_s + grace_s) * (1 + DRIFT)
        self._settled_s = now_s + self._life_s
        self._hosts: dict[str, _Host] = {}
        for power in hosts:
            if power.name in self._hosts:
                raise TreeError(f"host {power.name} stands in the tree twice")
            self._hosts[power.name] = _Host(power=power, above=tuple(self._up(power.name, power.area)))
        self._children = _children(self._areas)
        self._below = {name: [h for h in self._hosts.values() if h.power.area == name] for name in self._areas}
        self._check()
        self._reserved = dict.fromkeys(self._areas, 0)
        self._lapses: list[tuple[float, str]] = []
        for host in self._hosts.values():
            self._count(host, now_s)
        self._fill(now_s)

    def ask(self, now_s: float, ask: Ask) -> Grant | None:
        """Answer a question; None: it is older than one heard before, or of a host that is not in the tree.

        A wish that is no number is none; wishes and claims are cut at the host's maximum.
        """
        host = self._hosts.get(ask.host)
        if host is None or (ask.epoch, ask.seq) <= (host.epoch, host.seq):
            return None
        if ask.epoch != host.epoch:
            # It fell to its safe cap when it started, and takes no answer to an earlier start.
            host.leases.clear()
        host.epoch, host.seq = ask.epoch, ask.seq
        host.leases = [lease for lease in host.leases if lease.seq >= ask.applied_seq]
        host.demand_watts = _wish(ask.demand_watts, host.power)
        self._lapse(now_s)
        self._count(host, now_s)
        if now_s >= self._refill_s:
            self._fill(now_s)
        watts = _renewal(host, ask) if now_s < self._settled_s else self._fitting(host)
        _add(host.leases, _Lease(seq=ask.seq, watts=watts, until_s=now_s + self._life_s))
        heapq.heappush(self._lapses, (now_s + self._life_s, ask.host))
        self._count(host, now_s)
        return Grant(host=ask.host, epoch=ask.epoch, seq=ask.seq, watts=watts, ttl_s=self._ttl_s)

    def use(self, now_s: float) -> tuple[AreaUse, ...]:
        """Every area as it stands, in the order in which they were given."""
        self._lapse(now_s)
        found = []
        for area in self._areas.values():
            hosts = [h for h in self._hosts.values() if area.name in h.above]
            reserved = {h.power.name: h.reserved_milliwatts / _MILLI for h in hosts}
            found.append(
                AreaUse(
                    name=area.name,
                    parent=area.parent,
                    budget_watts=area.budget_watts,
                    reserved_watts=self._reserved[area.name] / _MILLI,
                    demand_watts=math.fsum(max(h.demand_watts, h.power.safe_watts) for h in hosts),
                    stranded_watts=math.fsum(max(0.0, reserved[h.power.name] - h.target_watts) for h in hosts),
                )
            )
        return tuple(found)

    @property
    def settled_s(self) -> float:
        """Monotonic time from which on raises are given: by then every lease of an earlier controller has lapsed."""
        return self._settled_s

    def _lapse(self, now_s: float) -> None:
        while self._lapses and self._lapses[0][0] <= now_s:
            self._count(self._hosts[heapq.heappop(self._lapses)[1]], now_s)

    def _count(self, host: _Host, now_s: float) -> None:
        more = host.count(now_s)
        for name in host.above:
            self._reserved[name] += more

    def _fitting(self, host: _Host) -> float:
        rooms = [
            math.floor(self._areas[name].budget_watts * _MILLI) - self._reserved[name] + host.reserved_milliwatts
            for name in host.above
        ]
        # Cut to whole milliwatts: what is granted is what is counted.
        granted = min(math.floor(host.target_watts * _MILLI), *rooms) / _MILLI
        return max(host.power.safe_watts, granted)

    def _fill(self, now_s: float) -> None:
        """Share every budget: as even as the wishes allow, nobody below its safe cap (max-min fairness per host)."""
        self._refill_s = now_s + self._ttl_s / REFILLS_PER_LEASE
        for area in self._areas.values():
            if area.parent is None:
                self._fill_area(area.name, area.budget_watts)

    def _fill_area(self, name: str, given_watts: float) -> None:
        hosts, areas = self._below[name], self._children[name]
        shares = [
            *(_Share(1, h.power.safe_watts, max(h.demand_watts, h.power.safe_watts)) for h in hosts),
            *(self._share(child) for child in areas),
        ]
        got = level(shares, min(given_watts, self._areas[name].budget_watts))
        for host, watts in zip(hosts, got, strict=False):
            host.target_watts = watts
        for child, watts in zip(areas, got[len(hosts) :], strict=True):
            self._fill_area(child, watts)

    def _share(self, name: str) -> "_Share":
        parts = [
            *(_Share(1, h.power.safe_watts, max(h.demand_watts, h.power.safe_watts)) for h in self._below[name]),
            *(self._share(child) for child in self._children[name]),
        ]
        want = min(math.fsum(p.want for p in parts), self._areas[name].budget_watts)
        return _Share(sum(p.weight for p in parts), math.fsum(p.floor for p in parts), want)

    def _up(self, host: str, area: str | None) -> Iterator[str]:
        seen: set[str] = set()
        while area is not None:
            if area not in self._areas:
                raise TreeError(f"{host} stands below area {area}, which does not exist")
            if area in seen:
                raise TreeError(f"area {area} stands below itself")
            seen.add(area)
            yield area
            area = self._areas[area].parent

    def _check(self) -> None:
        for area in self._areas.values():
            tuple(self._up(f"area {area.name}", area.parent))
            _positive(f"the budget of {area.name}", area.budget_watts)
            safe = math.fsum(h.power.safe_watts for h in self._hosts.values() if area.name in h.above)
            if safe > area.budget_watts:
                raise TreeError(
                    f"the safe caps of the hosts in {area.name} add up to {safe:g} W, above its budget of "
                    f"{area.budget_watts:g} W: without any lease it would already be overdrawn"
                )
        for host in self._hosts.values():
            _positive(f"the safe cap of {host.power.name}", host.power.safe_watts)
            _positive(f"the maximum of {host.power.name}", host.power.max_watts)
            if host.power.max_watts < host.power.safe_watts:
                raise TreeError(f"the maximum of {host.power.name} is below its safe cap")


@dataclass(frozen=True, slots=True)
class _Share:
    """Who shares a budget: how many hosts it is, the least that it has, and what it wants (at least the least)."""

    weight: int
    floor: float
    want: float


def level(shares: Sequence[_Share], watts: float) -> list[float]:
    """Give each its wish cut at one level per host, found by halving so that all together get at most `watts`.

    Floors are always given, also when they alone are more.
    """
    high = max((s.want / s.weight for s in shares if s.weight), default=0.0)
    if math.fsum(_cut(s, high) for s in shares) <= watts:
        return [_cut(s, high) for s in shares]
    low = 0.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.fsum(_cut(s, middle) for s in shares) <= watts else (low, middle)
    return [_cut(s, low) for s in shares]


def _cut(share: _Share, per_host: float) -> float:
    return max(share.floor, min(share.want, per_host * share.weight))


def _wish(watts: float, power: HostPower) -> float:
    return min(max(watts, 0.0), power.max_watts) if math.isfinite(watts) else 0.0


def _renewal(host: _Host, ask: Ask) -> float:
    """What it says to hold and no more: that was paid for by whoever granted it."""
    holds = ask.holds_watts if math.isfinite(ask.holds_watts) else host.power.safe_watts
    return min(max(holds, host.power.safe_watts), host.power.max_watts)


def _add(leases: list[_Lease], new: _Lease) -> None:
    """Count one more answer; what it outlasts and outweighs need not be counted beside it."""
    while leases and leases[-1].watts <= new.watts:
        leases.pop()
    leases.append(new)
    if len(leases) > LEASES_KEPT:
        old, second = leases[0], leases[1]
        leases[:2] = [_Lease(seq=second.seq, watts=max(old.watts, second.watts), until_s=second.until_s)]


def _children(areas: Mapping[str, Area]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in areas}
    for area in areas.values():
        if area.parent in found:
            found[area.parent].append(area.name)
    return found


def _positive(what: str, watts: float) -> None:
    if not (math.isfinite(watts) and watts > 0):
        raise TreeError(f"{what} must be a positive number of watts, not {watts}")
