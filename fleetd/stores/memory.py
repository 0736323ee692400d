"""The ledger in memory: the reference that the contract tests hold the databases against."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from fleetd.model.event import FindingReceived, IncidentClosed, JobEnded
from fleetd.model.fact import Beginning, Fact, FactQuery, fact_of, fleet_summary, is_notable, summary
from fleetd.model.finding import Finding
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.ids import FindingId, HostName, OrderId, SpoolId
from fleetd.model.journal import JournalEntry, OrderRecord, SpoolProgress, StoreImage
from fleetd.model.order import Quarantine

RECENT = (FindingReceived, IncidentClosed)
"""Events that count for what happens shortly after them."""
RECENT_KEPT = 1024
JOB_ENDS_KEPT = 512
QUARANTINES_KEPT = 4096
"""How many of the newest a starting controller is given."""
JOBS_HEARD_SECONDS = 7200.0
"""How far before the newest entry the ends of jobs are given: Slurm tells them for minutes, Kubernetes for an hour."""
JOBS_HEARD_KEPT = 100_000
"""And how many of them at most."""


class Unshared:
    """A `Claim` on an order of a ledger that one controller has to itself."""

    def __init__(self, finish: Callable[[str], None]) -> None:
        self._finish = finish

    def finish(self, result: str) -> None:
        """Mark the order as carried out. Raises StoreError."""
        self._finish(result)

    def let_go(self) -> None:
        """Nobody else could have it."""


class MemoryStore:
    """A `Store` that forgets everything with the process."""

    def __init__(self) -> None:
        self._journal: list[JournalEntry] = []
        self._hosts: dict[HostName, Host] = {}
        self._findings: dict[FindingId, Finding] = {}
        self._spools: dict[tuple[HostName, SpoolId], int] = {}
        self._orders: dict[OrderId, OrderRecord] = {}
        self._fleet = FleetRecord()

    def load(self) -> StoreImage:
        """Return what a controller starts from."""
        orders = [record.order for record in self._orders.values()]
        return StoreImage(
            hosts=tuple(self._hosts[name] for name in sorted(self._hosts)),
            spools=tuple((h, SpoolProgress(spool=s, seq=seq)) for (h, s), seq in sorted(self._spools.items())),
            open_orders=tuple(record.order for record in self._orders.values() if not record.done),
            fleet=self._fleet,
            quarantines=tuple((o.issued_at_s, o.host) for o in orders if isinstance(o, Quarantine))[-QUARANTINES_KEPT:],
            recent=tuple(e for e in self._journal if isinstance(e.event, RECENT))[-RECENT_KEPT:],
            job_ends=tuple(e for e in self._journal if isinstance(e.event, JobEnded))[-JOB_ENDS_KEPT:],
            jobs_heard=self._jobs_heard(),
        )

    def _jobs_heard(self) -> tuple[JobEnded, ...]:
        since_s = max((entry.at_s for entry in self._journal), default=0.0) - JOBS_HEARD_SECONDS
        first = min(((entry.at_s, n) for n, entry in enumerate(self._journal) if entry.at_s >= since_s), default=(0, 0))
        heard = [entry.event for entry in self._journal[first[1] :] if isinstance(entry.event, JobEnded)]
        return tuple(heard[-JOBS_HEARD_KEPT:])

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        """Append the entries and everything they change."""
        for entry in entries:
            self._journal.append(entry)
            if entry.host is not None:
                self._hosts[entry.host.name] = entry.host
            if isinstance(entry.event, FindingReceived):
                self._findings.setdefault(entry.event.finding.id, entry.event.finding)
                if entry.progress is not None:
                    key = (entry.event.host, entry.progress.spool)
                    self._spools[key] = max(entry.progress.seq, self._spools.get(key, 0))
            self._fleet = entry.fleet if entry.fleet is not None else self._fleet
            for order in entry.orders:
                self._orders.setdefault(order.id, OrderRecord(order=order, done=False, result=""))

    def findings_known(self, ids: Collection[FindingId]) -> frozenset[FindingId]:
        """Return those of the findings that were ever committed."""
        return frozenset(finding for finding in ids if finding in self._findings)

    def finish_order(self, order: OrderId, result: str) -> None:
        """Mark an order as carried out; the first result stays."""
        record = self._orders.get(order)
        if record is not None and not record.done:
            self._orders[order] = OrderRecord(order=record.order, done=True, result=result)

    def claim(self, order: OrderId) -> Unshared:
        """Have an order to oneself: nobody else could."""
        return Unshared(partial(self.finish_order, order))

    def journal(self, *, after: int, limit: int) -> tuple[tuple[int, JournalEntry], ...]:
        """Return entries of the whole fleet after a position, in order."""
        return tuple(enumerate(self._journal, start=1))[after : after + limit]

    def beginning(self) -> Beginning:
        """Where the journal begins: nothing is ever pruned here."""
        return Beginning()

    def facts(self, query: FactQuery) -> tuple[Fact, ...]:
        """Return what the entries asked for say in short, in the order asked for."""
        found = [
            fact
            for fact, notable in self._all_facts()
            if fact.position > query.after
            and (query.before is None or fact.position < query.before)
            and (notable or not query.notable)
            and (fact.who is not None or not query.people)
            and query.host in {None, fact.host}
            and query.who in {None, fact.who}
            and query.event in {None, fact.event}
            and (query.since_s is None or fact.at_s >= query.since_s)
            and (query.until_s is None or fact.at_s < query.until_s)
        ]
        return tuple((found[::-1] if query.newest else found)[: query.limit])

    def _all_facts(self) -> Iterator[tuple[Fact, bool]]:
        """Each entry's fact, and whether it is notable."""
        hosts: dict[HostName, Host] = {}
        fleet = FleetRecord()
        for position, entry in enumerate(self._journal, start=1):
            before = None if entry.host is None else hosts.get(entry.host.name)
            was = fleet_summary(fleet) if entry.host is None else summary(before)
            yield fact_of(position, entry, was), is_notable(entry.event, before, entry.host)
            if entry.host is not None:
                hosts[entry.host.name] = entry.host
            fleet = entry.fleet if entry.fleet is not None else fleet

    def history(self, host: HostName, *, limit: int) -> tuple[JournalEntry, ...]:
        """Return the newest entries of one host, oldest first."""
        return tuple(e for e in self._journal if e.host is not None and e.host.name == host)[-limit:]

    def reasons(self, host: HostName, *, limit: int) -> tuple[tuple[float, str], ...]:
        """Return when and why the newest entries of one host were decided, oldest first."""
        return tuple((entry.at_s, entry.why) for entry in self.history(host, limit=limit))

    def findings(self, host: HostName, *, limit: int) -> tuple[Finding, ...]:
        """Return the newest findings of one host, newest first."""
        return tuple(reversed([f for f in self._findings.values() if f.host == host]))[:limit]

    def orders(self, host: HostName, *, limit: int) -> tuple[OrderRecord, ...]:
        """Return the newest orders of one host, oldest first."""
        return tuple(record for record in self._orders.values() if record.order.host == host)[-limit:]

    def close(self) -> None:
        """Nothing to close."""
