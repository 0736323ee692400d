"""What a decision on one host needs to know of all the others: counts by area, histories by serial, recent faults.

A `Fleet` is a fold over the journal: `apply` each entry's step, and it is what it was. Every change costs the same in a
fleet of ten and of ten thousand; `view_of` builds it anew from the ledger's image. Decisions only read it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleetd.core.policy import Policy
from fleetd.core.step import Step
from fleetd.core.storm import INCIDENT_HOSTS, storm_key
from fleetd.core.table import Tables
from fleetd.model.event import AnyEvent, FindingReceived
from fleetd.model.finding import Ballot
from fleetd.model.fleet import Area, AreaKey, FleetRecord
from fleetd.model.host import Hold, Host, Lifecycle, Mark, Strike
from fleetd.model.ids import GpuId, HostName
from fleetd.model.journal import JournalEntry, StoreImage
from fleetd.model.order import Quarantine

FLEET = AreaKey(area=Area.FLEET, name="")

QUARANTINES_KEPT = 4096
"""Newest quarantine orders remembered; no window may sensibly allow more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Hosts of one area."""

    hosts: int = 0
    """In the fleet: retired ones are not."""
    held: int = 0
    tested: int = 0
    """With a burn-in pending that was ordered while they served users."""


_NOBODY = Count()


def areas_of(host: Host) -> tuple[AreaKey, ...]:
    """The areas that a host belongs to: the fleet, and what is known of its place and its GPUs."""
    place = host.place
    named = (
        (Area.POOL, place.pool),
        (Area.RACK, place.rack),
        (Area.NVLINK_DOMAIN, place.nvlink_domain),
        (Area.POWER_DOMAIN, place.power_domain),
        (Area.JOB, place.job),
        *((Area.SKU, sku) for sku in sorted({gpu.sku for gpu in host.inventory})),
    )
    return (FLEET, *(AreaKey(area=area, name=name) for area, name in named if name))


class Fleet:
    """The fleet beside its hosts. Owned by whoever applies the journal to it; everybody else reads."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._tables = Tables()
        self._record = self._tables.table()
        self._counts = self._tables.table()
        self._areas = self._tables.table()
        self._quarantines = self._tables.table()
        self._sick = self._tables.table()
        self._files = self._tables.table()
        self._homes = self._tables.table()
        self._slots = self._tables.table()
        self._votes = self._tables.table()
        self._voters = self._tables.table()

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def record(self) -> FleetRecord:
        """What the ledger keeps of it."""
        return self._record.get("") or FleetRecord()

    def count(self, key: AreaKey) -> Count:
        """The hosts of an area."""
        return self._counts.get(key) or _NOBODY

    def quarantined_since(self, key: AreaKey, since_s: float) -> int:
        """How many quarantines were ordered in an area after a time; times in the future count: the clock jumped."""
        orders: tuple[tuple[float, HostName], ...] = self._quarantines.get("") or ()
        return sum(at_s > since_s and key in (self._areas.get(host) or ()) for at_s, host in orders)

    def sick(self, key: str, since_s: float) -> frozenset[HostName]:
        """Hosts that had a fault (`storm.storm_key`) after a time."""
        seen: tuple[tuple[float, HostName], ...] = self._sick.get(key) or ()
        return frozenset(host for at_s, host in seen if at_s > since_s)

    def strikes(self, gpu: GpuId) -> tuple[Strike, ...]:
        """Strikes of a serial on all hosts it was in."""
        return tuple(sorted(_all(self._files.get(gpu), Strike), key=lambda s: (s.at_s, s.finding)))

    def marks(self, gpu: GpuId) -> tuple[Mark, ...]:
        """Condemnations of a serial on all hosts it was in."""
        return tuple(sorted(_all(self._files.get(gpu), Mark), key=lambda m: (m.at_s, m.finding)))

    def open_holds(self, gpu: GpuId, *, elsewhere_than: HostName) -> tuple[Hold, ...]:
        """Holds of ours and charges that name a serial, on other hosts."""
        files = self._files.get(gpu) or ()
        return tuple(fact for host, facts in files if host != elsewhere_than for fact in facts if isinstance(fact, Hold))

    def home(self, gpu: GpuId) -> HostName | None:
        """The host that named this serial last in its inventory."""
        return self._homes.get(gpu)

    def voters(self, key: str) -> dict[str, tuple[int, tuple[HostName, ...]]]:
        """Fingerprint → (how many hosts, the first of them by name) of one ballot key."""
        fingerprints: tuple[str, ...] = self._voters.get(key) or ()
        votes = {f: self._votes.get((key, f)) or () for f in fingerprints}
        return {f: (len(hosts), tuple(sorted(hosts))[:INCIDENT_HOSTS]) for f, hosts in votes.items()}

    # ── the fold ────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, *, now_s: float, before: Host | None, event: AnyEvent, step: Step[Host] | Step[None]) -> None:
        """Take a step over; `before` is its host before it, None when that was unknown or there is none."""
        if step.refused:
            return
        if step.fleet is not None:
            self._record.put("", step.fleet)
        if step.state is None:
            return
        self._host(before, step.state)
        for order in step.orders:
            if isinstance(order, Quarantine):
                self._quarantines.put("", (*(self._quarantines.get("") or ()), (now_s, order.host))[-QUARANTINES_KEPT:])
        self._sicken(now_s, event)

    def commit(self) -> None:
        """The steps applied so far are on disk."""
        self._tables.commit()

    def roll_back(self) -> None:
        """The disk refused: take back what was applied since the last commit."""
        self._tables.roll_back()

    def _host(self, before: Host | None, after: Host) -> None:
        if before is None or _standing(before) != _standing(after):
            for host, sign in ((before, -1), (after, 1)):
                for key in areas_of(host) if host is not None and host.state is not Lifecycle.RETIRED else ():
                    self._count(key, host, sign)
            self._areas.put(after.name, areas_of(after))
        if before is None or before.inventory is not after.inventory:
            for gpu in after.inventory:
                self._homes.put(gpu.gpu, after.name)
        facts_before, facts_after = _facts(before), _facts(after)
        for gpu in facts_before.keys() | facts_after.keys():
            if facts_before.get(gpu) != facts_after.get(gpu):
                others = tuple(f for f in self._files.get(gpu) or () if f[0] != after.name)
                mine = facts_after.get(gpu)
                self._files.put(gpu, (*others, *(((after.name, mine),) if mine else ())) or None)
        old: tuple[Ballot, ...] = before.ballots if before is not None else ()
        if old != after.ballots:
            self._vote(after.name, old, after.ballots)

    def _count(self, key: AreaKey, host: Host | None, sign: int) -> None:
        if host is None:
            return
        count = self.count(key)
        tested = host.pending is not None and host.pending.disruptive
        changed = Count(
            hosts=count.hosts + sign, held=count.held + sign * host.held, tested=count.tested + sign * tested
        )
        self._counts.put(key, None if changed == _NOBODY else changed)

    def _vote(self, host: HostName, old: tuple[Ballot, ...], new: tuple[Ballot, ...]) -> None:
        for ballot, casts in (*((b, False) for b in old), *((b, True) for b in new)):
            at = (ballot.key, ballot.fingerprint)
            hosts = (self._votes.get(at) or frozenset()) - {host} | (frozenset({host}) if casts else frozenset())
            self._votes.put(at, hosts or None)
            known = [f for f in self._voters.get(ballot.key) or () if f != ballot.fingerprint]
            self._voters.put(ballot.key, tuple(sorted([*known, ballot.fingerprint] if hosts else known)) or None)

    def _sicken(self, now_s: float, event: AnyEvent) -> None:
        key = storm_key(event.finding) if isinstance(event, FindingReceived) else None
        if key is None or not isinstance(event, FindingReceived):
            return
        seen: tuple[tuple[float, HostName], ...] = self._sick.get(key) or ()
        since_s = now_s - self.policy.storm.within_seconds
        kept = [(at_s, host) for at_s, host in seen if host != event.host and at_s > since_s]
        self._sick.put(key, (*kept, (now_s, event.host))[-INCIDENT_HOSTS:])

    def snapshot(self) -> dict[str, object]:
        """Everything in it as plain values: two fleets with equal snapshots decide alike."""
        return {
            name.removeprefix("_"): dict(getattr(self, name))
            for name in ("_record", "_counts", "_areas", "_quarantines", "_sick", "_files", "_homes", "_votes", "_voters")
        }


def view_of(image: StoreImage, policy: Policy) -> Fleet:
    """The fleet that the ledger's image describes, for a controller that starts from it."""
    fleet = Fleet(policy)
    for host in image.hosts:
        fleet._host(None, host)  # noqa: SLF001 - the one other way to build it
    fleet._record.put("", image.fleet)  # noqa: SLF001
    if image.quarantines:
        fleet._quarantines.put("", image.quarantines[-QUARANTINES_KEPT:])  # noqa: SLF001
    for entry in image.recent:
        fleet._sicken(entry.at_s, entry.event)  # noqa: SLF001
    fleet.commit()
    return fleet
