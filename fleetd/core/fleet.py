"""What a decision on one host needs to know of all the others: counts by area, histories by serial, recent faults.

A `Fleet` is a fold over the journal: `apply` each entry's step, and it is what it was. Every change costs the same in a
fleet of ten and of ten thousand; `Fleet.of` builds it anew from the ledger's image. Decisions only read it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fleetd.core.policy import Policy
from fleetd.core.step import Step
from fleetd.core.storm import INCIDENT_HOSTS, key_of_incident, outdated, storm_key
from fleetd.core.table import Table, Tables
from fleetd.model.event import AnyEvent, FindingReceived, IncidentClosed, JobEnded
from fleetd.model.finding import Ballot
from fleetd.model.fleet import Area, AreaKey, FleetRecord
from fleetd.model.host import Hold, Host, Lifecycle, Mark, Strike
from fleetd.model.ids import GpuId, HostName
from fleetd.model.journal import StoreImage
from fleetd.model.order import Quarantine

FLEET = AreaKey(area=Area.FLEET, name="")

QUARANTINES_KEPT = 4096
"""Newest quarantine orders remembered; no window may sensibly allow more."""


JOB_ENDS_KEPT = 512
"""Newest ends of jobs remembered, of the whole fleet: enough to see whether jobs fail elsewhere too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """A job ended on a host."""

    at_s: float
    host: HostName
    job: str
    failed: bool
    ran_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Hosts of one area."""

    hosts: int = 0
    """In the fleet: retired ones are not."""
    held: int = 0
    tested: int = 0
    """With a burn-in pending that was ordered while they served users."""


_NOBODY = Count()
_NO_RECORD = FleetRecord()


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """Hosts whose last burn-in gave the same fingerprint for a ballot key."""

    total: int = 0
    hosts: tuple[HostName, ...] = ()
    """Some of them, by name: all, unless there are very many."""


_Fact = Strike | Mark | Hold
_Dated = tuple[float, HostName]


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
        self._record: Table[str, FleetRecord] = self._tables.table()
        self._counts: Table[AreaKey, Count] = self._tables.table()
        self._areas: Table[HostName, tuple[AreaKey, ...]] = self._tables.table()
        self._quarantines: Table[str, tuple[_Dated, ...]] = self._tables.table()
        self._sick: Table[str, tuple[_Dated, ...]] = self._tables.table()
        self._job_ends: Table[str, tuple[JobEnd, ...]] = self._tables.table()
        self._drivers: Table[HostName, str] = self._tables.table()
        self._files: Table[GpuId, tuple[tuple[HostName, tuple[_Fact, ...]], ...]] = self._tables.table()
        self._claims: Table[GpuId, tuple[HostName, ...]] = self._tables.table()
        self._votes: Table[tuple[str, str], Votes] = self._tables.table()
        self._voters: Table[str, tuple[str, ...]] = self._tables.table()

    @classmethod
    def of(cls, image: StoreImage, policy: Policy) -> "Fleet":
        """The fleet that the ledger's image describes, for a controller that starts from it."""
        fleet = cls(policy)
        for host in image.hosts:
            fleet._take_over(None, host)
        fleet._record.put("", image.fleet)
        if image.quarantines:
            fleet._quarantines.put("", image.quarantines[-QUARANTINES_KEPT:])
        for entry in (*image.recent, *image.job_ends):
            if not entry.refused:
                fleet._remember(entry.at_s, entry.event, entry.host)
        fleet.commit()
        return fleet

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def record(self) -> FleetRecord:
        """What the ledger keeps of it."""
        return self._record.get("") or _NO_RECORD

    def count(self, key: AreaKey) -> Count:
        """The hosts of an area."""
        return self._counts.get(key) or _NOBODY

    def quarantined_since(self, key: AreaKey, since_s: float) -> int:
        """How many quarantines were ordered in an area after a time; times in the future count: the clock jumped."""
        orders = self._quarantines.get("") or ()
        return sum(at_s > since_s and key in (self._areas.get(host) or ()) for at_s, host in orders)

    def areas(self) -> dict[AreaKey, Count]:
        """Every area that has hosts."""
        return dict(self._counts)

    def quarantines(self) -> Iterable[tuple[float, tuple[AreaKey, ...]]]:
        """The newest quarantine orders: when, and the areas of the host."""
        return ((at_s, self._areas.get(host) or ()) for at_s, host in self._quarantines.get("") or ())

    def sick(self, key: str, since_s: float) -> frozenset[HostName]:
        """Hosts that had a fault (`storm.storm_key`) after a time."""
        return frozenset(host for at_s, host in self._sick.get(key) or () if at_s > since_s)

    def job_ends_since(self, since_s: float) -> tuple[JobEnd, ...]:
        """The newest ends of jobs after a time, oldest first."""
        return tuple(end for end in self._job_ends.get("") or () if end.at_s > since_s)

    def driver_of(self, host: HostName) -> str | None:
        """The driver version that a host's agent said last; None when it says none."""
        return self._drivers.get(host)

    def strikes(self, gpu: GpuId) -> tuple[Strike, ...]:
        """Strikes of a serial on all hosts it was in, oldest first."""
        return tuple(sorted((f for f in self._facts(gpu) if isinstance(f, Strike)), key=lambda s: (s.at_s, s.finding)))

    def marks(self, gpu: GpuId) -> tuple[Mark, ...]:
        """Condemnations of a serial on all hosts it was in, oldest first."""
        return tuple(sorted((f for f in self._facts(gpu) if isinstance(f, Mark)), key=lambda m: (m.at_s, m.finding)))

    def open_holds(self, gpu: GpuId, *, elsewhere_than: HostName) -> tuple[Hold, ...]:
        """Holds and charges that name a serial, on other hosts."""
        files = self._files.get(gpu) or ()
        return tuple(f for host, facts in files if host != elsewhere_than for f in facts if isinstance(f, Hold))

    def claims(self, gpu: GpuId) -> tuple[HostName, ...]:
        """The hosts whose last inventory names a serial, by name: one, unless it was moved or copied."""
        return self._claims.get(gpu) or ()

    def votes(self, key: str) -> dict[str, Votes]:
        """Fingerprint → who computed it, for one ballot key."""
        return {f: self._votes.get((key, f)) or Votes() for f in self._voters.get(key) or ()}

    def _facts(self, gpu: GpuId) -> Iterable[_Fact]:
        return (fact for _, facts in self._files.get(gpu) or () for fact in facts)

    # ── the fold ────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, *, now_s: float, before: Host | None, event: AnyEvent, step: Step[Host] | Step[None]) -> None:
        """Take a step over; `before` is its host before it, None when that was unknown or there is none."""
        if step.refused:
            return
        if step.fleet is not None:
            self._record.put("", step.fleet)
        self._remember(now_s, event, step.state)
        if step.state is None:
            return
        self._take_over(before, step.state)
        for order in step.orders:
            if isinstance(order, Quarantine):
                known = self._quarantines.get("") or ()
                self._quarantines.put("", (*known, (now_s, order.host))[-QUARANTINES_KEPT:])

    def commit(self) -> None:
        """The steps applied so far are on disk."""
        self._tables.commit()

    def roll_back(self) -> None:
        """The disk refused: take back what was applied since the last commit."""
        self._tables.roll_back()

    def _take_over(self, before: Host | None, after: Host) -> None:
        if before is None or _standing(before) != _standing(after):
            if before is not None:
                self._count(before, -1)
            self._count(after, 1)
            self._areas.put(after.name, areas_of(after))
        if (before.driver_version if before is not None else None) != after.driver_version:
            self._drivers.put(after.name, after.driver_version)
        if before is None or before.inventory != after.inventory:
            listed = {g.gpu for g in before.inventory} if before is not None else set()
            lists = {g.gpu for g in after.inventory}
            for gpu in listed ^ lists:
                others = [host for host in self.claims(gpu) if host != after.name]
                self._claims.put(gpu, tuple(sorted([*others, after.name] if gpu in lists else others)) or None)
        if before is None or _told_of_gpus(before) != _told_of_gpus(after):
            self._file(after.name, _by_gpu(before) if before is not None else {}, _by_gpu(after))
        self._vote(after.name, before.ballots if before is not None else (), after.ballots)

    def _count(self, host: Host, sign: int) -> None:
        if host.state is Lifecycle.RETIRED:
            return
        tested = host.pending is not None and host.pending.disruptive
        for key in areas_of(host):
            old = self.count(key)
            new = Count(hosts=old.hosts + sign, held=old.held + sign * host.held, tested=old.tested + sign * tested)
            self._counts.put(key, None if new == _NOBODY else new)

    def _file(
        self, host: HostName, before: dict[GpuId, tuple[_Fact, ...]], after: dict[GpuId, tuple[_Fact, ...]]
    ) -> None:
        for gpu in before.keys() | after.keys():
            if before.get(gpu) != after.get(gpu):
                files = {name: facts for name, facts in self._files.get(gpu) or () if name != host}
                if gpu in after:
                    files[host] = after[gpu]
                self._files.put(gpu, tuple(sorted(files.items())) or None)

    def _vote(self, host: HostName, before: tuple[Ballot, ...], after: tuple[Ballot, ...]) -> None:
        if before == after:
            return
        for ballot, sign in (*((b, -1) for b in before), *((b, 1) for b in after)):
            at = (ballot.key, ballot.fingerprint)
            old = self._votes.get(at) or Votes()
            others = [name for name in old.hosts if name != host]
            hosts = tuple(sorted([*others, host] if sign > 0 else others)[:INCIDENT_HOSTS])
            new = Votes(total=old.total + sign, hosts=hosts)
            self._votes.put(at, new if new.total else None)
            known = [f for f in self._voters.get(ballot.key) or () if f != ballot.fingerprint]
            self._voters.put(ballot.key, tuple(sorted([*known, ballot.fingerprint] if new.total else known)) or None)

    def _remember(self, now_s: float, event: AnyEvent, host: Host | None) -> None:
        """What happened just before counts for what happens now."""
        if isinstance(event, JobEnded):
            end = JobEnd(at_s=now_s, host=event.host, job=event.job, failed=not event.ok, ran_seconds=event.ran_seconds)
            self._job_ends.put("", (*(self._job_ends.get("") or ()), end)[-JOB_ENDS_KEPT:])
            return
        if host is None or not isinstance(event, FindingReceived) or not outdated(event.finding, host):
            self._sicken(now_s, event)

    def _sicken(self, now_s: float, event: AnyEvent) -> None:
        if isinstance(event, IncidentClosed):
            self._sick.put(key_of_incident(event.incident), None)
            return
        key = storm_key(event.finding) if isinstance(event, FindingReceived) else None
        if key is None or not isinstance(event, FindingReceived):
            return
        since_s = now_s - self.policy.storm.within_seconds
        kept = [(at_s, host) for at_s, host in self._sick.get(key) or () if host != event.host and at_s > since_s]
        self._sick.put(key, (*kept, (now_s, event.host))[-INCIDENT_HOSTS:])

    def snapshot(self) -> dict[str, object]:
        """Everything in it as plain values: two fleets with equal snapshots decide alike."""
        first = ("record", "counts", "areas", "quarantines", "sick", "job_ends", "drivers")
        return {name: dict(getattr(self, f"_{name}")) for name in (*first, "files", "claims", "votes", "voters")}


def _standing(host: Host) -> tuple[object, ...]:
    """All that the counts depend on."""
    tested = host.pending is not None and host.pending.disruptive
    return host.place, host.inventory, host.state is Lifecycle.RETIRED, host.held, tested


def _told_of_gpus(host: Host) -> tuple[object, ...]:
    return host.strikes, host.marks, host.holds, host.charges


def _by_gpu(host: Host) -> dict[GpuId, tuple[_Fact, ...]]:
    facts: list[_Fact] = [*host.strikes, *host.marks, *host.holds, *(charge.hold for charge in host.charges)]
    gpus = {fact.gpu for fact in facts if fact.gpu is not None}
    return {gpu: tuple(fact for fact in facts if fact.gpu == gpu) for gpu in gpus}
