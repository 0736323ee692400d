"""Power budgets of node, rack and domain as a tree of leases: live grants never add up to more than a budget.

What a host is *reserved* is the most that it may still be using: its safe cap, or the largest answer that it may have
taken and that has neither lapsed nor been replaced by one that it confirmed; its maximum while it says that it holds
no cap. A grant fits when every area above the host has room for it beside what all others are reserved; hence a raise
waits until the decrease that pays for it has been confirmed or has lapsed. The clock's part of the proof stands in
`fleetd.core.power.lease`.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fleetd.core.power.books import MILLI, Book, Given, HostPower
from fleetd.core.power.share import Share, level
from fleetd.model.ids import HostName
from fleetd.model.power_lease import AreaUse, Ask, Grant, HostUse, PowerUse

DRIFT = 0.01
"""Clocks run apart by at most this; crystals keep to 0.0002, steered clocks to 0.0005 (adjtimex's limit)."""
REFILLS_PER_LEASE = 20
"""Wishes change with every question; how the budgets are shared is worked out so often in a lease's time."""
UNCONTROLLED = "the tree says that nothing controls its power"


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A rack, a domain: whatever has a budget of its own."""

    name: str
    budget_watts: float
    parent: str | None = None
    """None: nothing above it."""


class TreeError(ValueError):
    """The tree cannot be kept safe: an unknown or circular parent, no numbers, or safe caps above a budget."""

    def __init__(self, message: str, *, about: str) -> None:
        """`about`: the area or host that is wrong."""
        super().__init__(message)
        self.about = about


class BudgetTree:
    """All leases of a controller. It persists nothing: after a start it raises nobody for one lease's time."""

    def __init__(
        self,
        areas: Iterable[Area],
        hosts: Iterable[HostPower],
        *,
        now_s: float,
        ttl_s: float,
        grace_s: float,
        earlier_s: float = 0.0,
    ) -> None:
        """Begin without knowing what earlier leases are still out.

        Args:
            areas: The tree, in any order.
            hosts: Its leaves.
            now_s: Monotonic time of the start.
            ttl_s: Life of a lease from the question on.
            grace_s: Within which a host whose lease lapsed has its safe cap in force.
            earlier_s: Life and grace of an earlier controller's leases, if they may have been longer than these.

        Raises:
            TreeError: See there.
        """
        self._areas = {area.name: area for area in areas}
        if not (0 < ttl_s < math.inf and 0 <= grace_s < math.inf):
            raise TreeError(
                f"a lease needs a positive life and no negative grace, not {ttl_s} s and {grace_s} s", about=""
            )
        self._ttl_s, self._life_s = ttl_s, (ttl_s + grace_s) * (1 + DRIFT)
        self._settled_s = now_s + max(self._life_s, earlier_s * (1 + DRIFT))
        self._hosts: dict[str, Book] = {}
        for power in hosts:
            if power.name in self._hosts:
                raise TreeError(f"host {power.name} stands in the tree twice", about=power.name)
            self._hosts[power.name] = Book(
                power=power,
                above=tuple(self._up(f"host {power.name}", power.area)),
                uncapped="" if power.controlled else UNCONTROLLED,
            )
        self._children = _children(self._areas)
        self._below = {name: [h for h in self._hosts.values() if h.power.area == name] for name in self._areas}
        self._check()
        self._reserved = dict.fromkeys(self._areas, 0)
        self._lapses: list[tuple[float, str]] = []
        self._lapsing: set[str] = set()
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
        host.hear(ask)
        self._lapse(now_s)
        self._count(host, now_s)
        if now_s >= self._refill_s:
            self._fill(now_s)
        if now_s < self._settled_s:
            # What hosts hold was paid for by an earlier controller, so it fits; what does not fit is no honest word.
            room_watts, _ = self._room(host)
            watts = max(host.power.safe_watts, min(host.renewal(ask), room_watts))
            short = f"nobody is raised for {self._settled_s - now_s:.0f} s: just started"
        else:
            watts, short = self._fitting(host)
        host.give(Given(seq=ask.seq, watts=watts, until_s=now_s + self._life_s))
        if ask.host not in self._lapsing:  # one entry a host, however often it asks
            self._lapsing.add(ask.host)
            heapq.heappush(self._lapses, (now_s + self._life_s, ask.host))
        self._count(host, now_s)
        return Grant(
            host=ask.host,
            epoch=ask.epoch,
            seq=ask.seq,
            watts=watts,
            ttl_s=self._ttl_s,
            max_watts=host.power.max_watts,
            why=short if watts < host.want_watts else "",
        )

    def hosts(self) -> Mapping[str, HostPower]:
        """The leaves as declared, by name."""
        return {name: book.power for name, book in self._hosts.items()}

    def heard(self, host: str) -> tuple[int, int]:
        """Epoch and sequence number of the newest question of a host of the tree; (-1, 0) before the first."""
        return self._hosts[host].epoch, self._hosts[host].seq

    def uncap(self, now_s: float, host: str, why: str) -> None:
        """Reserve the maximum for a host of the tree that will not ask, until it does."""
        book = self._hosts[host]
        book.uncapped = book.uncapped or why
        self._count(book, now_s)

    def use(self, now_s: float) -> PowerUse:
        """Everything as it stands, in the order in which it was given."""
        self._lapse(now_s)
        self._fill(now_s)  # what is stranded is measured by the shares as they are due now
        demand, stranded = dict.fromkeys(self._areas, 0.0), dict.fromkeys(self._areas, 0.0)
        for book in self._hosts.values():
            unused = max(0.0, book.reserved_milliwatts / MILLI - book.target_watts)
            for name in book.above:
                demand[name] += book.want_watts
                stranded[name] += unused
        return PowerUse(
            areas=tuple(
                AreaUse(
                    name=name,
                    parent=area.parent,
                    budget_watts=area.budget_watts,
                    reserved_watts=self._reserved[name] / MILLI,
                    demand_watts=demand[name],
                    stranded_watts=stranded[name],
                )
                for name, area in self._areas.items()
            ),
            hosts=tuple(_host_use(book, now_s) for book in self._hosts.values()),
            settles_s=max(0.0, self._settled_s - now_s),
        )

    @property
    def settled_s(self) -> float:
        """Monotonic time from which on raises are given: by then every lease of an earlier controller has lapsed."""
        return self._settled_s

    def _lapse(self, now_s: float) -> None:
        while self._lapses and self._lapses[0][0] <= now_s:
            host = self._hosts[heapq.heappop(self._lapses)[1]]
            self._count(host, now_s)
            if host.given:
                heapq.heappush(self._lapses, (min(given.until_s for given in host.given), host.power.name))
            else:
                self._lapsing.discard(host.power.name)

    def _count(self, host: Book, now_s: float) -> None:
        more = host.count(now_s)
        for name in host.above:
            self._reserved[name] += more

    def _fitting(self, host: Book) -> tuple[float, str]:
        """What may be given now, and what keeps it from being more."""
        room_watts, full = self._room(host)
        # Cut to whole milliwatts: what is granted is what is counted.
        share_watts = math.floor(min(host.target_watts, host.want_watts) * MILLI) / MILLI
        fits = share_watts <= room_watts
        why = "its share of the budgets above it" if fits else f"area {full} has no more that is free"
        return max(host.power.safe_watts, min(share_watts, room_watts)), why

    def _room(self, host: Book) -> tuple[float, str]:
        """What every area above a host has beside what all others are reserved, and which one has the least."""
        rooms = {
            name: math.floor(self._areas[name].budget_watts * MILLI) - self._reserved[name] + host.reserved_milliwatts
            for name in host.above
        }
        full, room = min(rooms.items(), key=lambda item: item[1])
        return room / MILLI, full

    def _fill(self, now_s: float) -> None:
        """Share every budget: as even as the wishes allow, nobody below its safe cap (max-min fairness per host)."""
        self._refill_s = now_s + self._ttl_s / REFILLS_PER_LEASE
        for area in self._areas.values():
            if area.parent is None:
                self._fill_area(area.name, area.budget_watts)

    def _fill_area(self, name: str, given_watts: float) -> None:
        hosts, areas = self._below[name], self._children[name]
        shares = [*(Share(1, h.floor_watts, h.want_watts) for h in hosts), *(self._share(child) for child in areas)]
        got = level(shares, min(given_watts, self._areas[name].budget_watts))
        for host, watts in zip(hosts, got, strict=False):
            host.target_watts = watts
        for child, watts in zip(areas, got[len(hosts) :], strict=True):
            self._fill_area(child, watts)

    def _share(self, name: str) -> Share:
        parts = [
            *(Share(1, h.floor_watts, h.want_watts) for h in self._below[name]),
            *(self._share(child) for child in self._children[name]),
        ]
        want = min(math.fsum(p.want for p in parts), self._areas[name].budget_watts)
        return Share(sum(p.weight for p in parts), math.fsum(p.floor for p in parts), want)

    def _up(self, who: str, area: str | None) -> Iterator[str]:
        seen: set[str] = set()
        below = who
        while area is not None:
            if area not in self._areas:
                raise TreeError(f"{below} stands below area {area}, which does not exist", about=below.split(" ", 1)[1])
            if area in seen:
                raise TreeError(f"area {area} stands below itself", about=area)
            seen.add(area)
            yield area
            below, area = f"area {area}", self._areas[area].parent

    def _check(self) -> None:
        for host in self._hosts.values():
            _positive("the safe cap of ", host.power.name, host.power.safe_watts)
            _positive("the maximum of ", host.power.name, host.power.max_watts)
            if host.power.max_watts < host.power.safe_watts:
                raise TreeError(f"the maximum of {host.power.name} is below its safe cap", about=host.power.name)
        for area in self._areas.values():
            tuple(self._up(f"area {area.name}", area.parent))
            _positive("the budget of ", area.name, area.budget_watts)
            safe = math.fsum(h.floor_watts for h in self._hosts.values() if area.name in h.above)
            if safe > area.budget_watts:
                raise TreeError(
                    f"the safe caps of the hosts in {area.name} (the maxima of those that nothing controls) add up to "
                    f"{safe:g} W, above its budget of {area.budget_watts:g} W: without any lease it would already be "
                    "overdrawn",
                    about=area.name,
                )


def _host_use(book: Book, now_s: float) -> HostUse:
    newest = book.given[-1] if book.given and now_s < book.given[-1].until_s else None
    return HostUse(
        name=HostName(book.power.name),
        area=book.power.area,
        safe_watts=book.power.safe_watts,
        max_watts=book.power.max_watts,
        reserved_watts=book.reserved_milliwatts / MILLI,
        demand_watts=book.demand_watts,
        lease_watts=None if newest is None else newest.watts,
        left_s=None if newest is None else newest.until_s - now_s,
        uncapped=book.uncapped,
    )


def _children(areas: Mapping[str, Area]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in areas}
    for area in areas.values():
        if area.parent in found:
            found[area.parent].append(area.name)
    return found


def _positive(what: str, name: str, watts: float) -> None:
    if not (math.isfinite(watts) and watts > 0):
        raise TreeError(f"{what}{name} must be a positive number of watts, not {watts}", about=name)
