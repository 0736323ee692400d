"""What the ledger is asked and told, in SQL that SQLite and PostgreSQL both understand."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

import sqlalchemy as sa

from fleetd.model.event import JobEnded
from fleetd.model.fact import (
    Beginning,
    Fact,
    FactQuery,
    beginning_facts,
    fact_of,
)
from fleetd.model.finding import Finding
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.ids import FindingId, HostName, OrderId, SpoolId
from fleetd.model.journal import JournalEntry, OrderRecord, SpoolProgress, StoreImage
from fleetd.model.order import Quarantine
from fleetd.ports import Claim, StoreError
from fleetd.stores import codec
from fleetd.stores.memory import (
    JOB_ENDS_KEPT,
    JOBS_HEARD_KEPT,
    JOBS_HEARD_SECONDS,
    QUARANTINES_KEPT,
    RECENT,
    RECENT_KEPT,
    Unshared,
)
from fleetd.stores.rows import Rows, plain
from fleetd.stores.schema import anchor, baseline, findings, fleet, hosts, journal, orders, spools

_NAMES_AT_ONCE = 500
"""In one query; SQLite takes up to 32,766 parameters, PostgreSQL twice as many."""


class Queries(ABC):
    """A `Store` but for its beginning: how it is opened, and what a transaction is, each database adds.

    What is sorted by name is sorted here: databases have their own ideas of an alphabet.
    """

    def __init__(self, engine: sa.Engine, *, where: str) -> None:
        """Ask `engine`; `where` names the ledger in messages."""
        self._engine = engine
        self._where = where

    @abstractmethod
    def _guarded(self, *, write: bool = False) -> AbstractContextManager[sa.Connection]:
        """One transaction: a reader sees one moment, a writer is alone. Raises StoreError for what it fails by."""

    def load(self) -> StoreImage:
        """Return what a controller starts from. Raises StoreError."""
        with self._guarded() as connection:
            known = [codec.load_host(body) for body in connection.execute(sa.select(hosts.c.body)).scalars()]
            heard = sorted((row.host, row.spool, row.seq) for row in connection.execute(sa.select(spools)))
            open_orders = sa.select(orders.c.body).where(orders.c.done.is_(other=False))
            open_orders = open_orders.order_by(orders.c.position, orders.c.nth)
            quarantines = (
                sa.select(orders.c.issued_at_s, orders.c.host)
                .where(orders.c.kind == Quarantine.__name__)
                .order_by(orders.c.position.desc(), orders.c.nth.desc())
                .limit(QUARANTINES_KEPT)
            )
            return StoreImage(
                hosts=tuple(sorted(known, key=lambda host: host.name)),
                spools=tuple(
                    (HostName(host), SpoolProgress(spool=SpoolId(spool), seq=seq)) for host, spool, seq in heard
                ),
                open_orders=tuple(codec.load_order(body) for body in connection.execute(open_orders).scalars()),
                fleet=_fleet(connection),
                quarantines=tuple(
                    (row.issued_at_s, HostName(row.host)) for row in reversed(list(connection.execute(quarantines)))
                ),
                recent=_newest(connection, RECENT, RECENT_KEPT),
                job_ends=_newest(connection, (JobEnded,), JOB_ENDS_KEPT),
                jobs_heard=_jobs_heard(connection),
            )

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        """Write the entries in one transaction. Raises StoreError; then nothing of them is written."""
        newest = sa.select(journal.c.id, journal.c.body).order_by(journal.c.id.desc()).limit(1)
        with self._guarded(write=True) as connection:
            last = connection.execute(newest).first()
            rows = Rows(
                position=0 if last is None else last.id,
                last=None if last is None else last.body,
                record=_fleet(connection),
                stood=_hosts(connection, sorted({entry.host.name for entry in entries if entry.host is not None})),
            )
            for entry in entries:
                rows.add(entry)
            rows.write(connection)

    def findings_known(self, ids: Collection[FindingId]) -> frozenset[FindingId]:
        """Return those of the findings that were committed and are not pruned yet. Raises StoreError."""
        asked, known = sorted(set(ids)), set[FindingId]()
        with self._guarded() as connection:
            for start in range(0, len(asked), _NAMES_AT_ONCE):
                some = findings.c.id.in_(asked[start : start + _NAMES_AT_ONCE])
                known.update(map(FindingId, connection.execute(sa.select(findings.c.id).where(some)).scalars()))
        return frozenset(known)

    def finish_order(self, order: OrderId, result: str) -> None:
        """Mark an order as carried out; the first result stays. Raises StoreError."""
        with self._guarded(write=True) as connection:
            mark_done(connection, order, result)

    def claim(self, order: OrderId) -> Claim | None:
        """Have an order to oneself while it is carried out: here nobody else could. Raises StoreError."""
        return Unshared(partial(self.finish_order, order))

    def journal(self, *, after: int, limit: int) -> tuple[tuple[int, JournalEntry], ...]:
        """Return entries of the whole fleet after a position, in order, from where the journal begins.

        Raises StoreError, also for an entry that does not follow from the one before it.
        """
        with self._guarded() as connection:
            begins = connection.execute(sa.select(anchor.c.position, anchor.c.digest)).first()
            first = begins.position if begins is not None else 0
            after = max(after, first)
            query = sa.select(journal.c.id, journal.c.body).where(journal.c.id > after).order_by(journal.c.id)
            before = connection.execute(sa.select(journal.c.body).where(journal.c.id == after)).scalar()
            rows = [(row.id, row.body) for row in connection.execute(query.limit(limit))]
        entries = []
        for position, body in rows:
            if begins is not None and position == first + 1:
                follows = codec.follows_anchor(body, begins.digest)
            else:
                follows = codec.follows(body, before)
            if not follows:
                raise StoreError(
                    f"{self._where}: entry {position} of the journal does not follow from the one before it"
                )
            entries.append((position, codec.load_entry(body)))
            before = body
        return tuple(entries)

    def beginning(self) -> Beginning:
        """Where the journal begins, and how things stood then. Raises StoreError."""
        with self._guarded() as connection:
            row = connection.execute(sa.select(anchor)).first()
            if row is None:
                return Beginning()
            stood = [codec.load_host(body) for body in connection.execute(sa.select(baseline.c.body)).scalars()]
            return Beginning(
                position=row.position,
                at_s=row.at_s,
                hosts=tuple(sorted(stood, key=lambda host: host.name)),
                fleet=codec.load_fleet(row.fleet),
            )

    def facts(self, query: FactQuery) -> tuple[Fact, ...]:
        """Return what the entries asked for say in short, in the order asked for. Raises StoreError.

        Notable facts from before the first position begin with those of the hosts where the journal begins.
        """
        told = query.notable and query.after == 0 and not query.newest
        beginning = self.beginning() if told else Beginning()
        order = journal.c.id.desc() if query.newest else journal.c.id
        chosen = sa.select(journal.c.id, journal.c.body, journal.c.was).order_by(order).limit(query.limit)
        chosen = chosen.where(*_conditions(query, after=max(query.after, beginning.position)))
        with self._guarded() as connection:
            rows = list(connection.execute(chosen))
        found = (fact_of(row.id, codec.load_entry(row.body), row.was or "") for row in rows)
        return (*beginning_facts(beginning), *found)

    def history(self, host: HostName, *, limit: int) -> tuple[JournalEntry, ...]:
        """Return the newest entries of one host, oldest first. Raises StoreError."""
        query = sa.select(journal.c.body).where(journal.c.host == host).order_by(journal.c.id.desc()).limit(limit)
        with self._guarded() as connection:
            return tuple(codec.load_entry(body) for body in list(connection.execute(query).scalars())[::-1])

    def reasons(self, host: HostName, *, limit: int) -> tuple[tuple[float, str], ...]:
        """Return when and why the newest entries of one host were decided, oldest first. Raises StoreError."""
        decided = sa.select(journal.c.at_s, journal.c.why).where(journal.c.host == host)
        with self._guarded() as connection:
            rows = list(connection.execute(decided.order_by(journal.c.id.desc()).limit(limit)))
        if any(row.why is None for row in rows):  # an upgrade could not read it
            raise StoreError(f"{self._where}: the journal of {host} holds an entry that cannot be read")
        return tuple((row.at_s, row.why) for row in reversed(rows))

    def findings(self, host: HostName, *, limit: int) -> tuple[Finding, ...]:
        """Return the newest findings of one host, newest first. Raises StoreError."""
        newest = findings.c.position.desc()
        query = sa.select(findings.c.body).where(findings.c.host == host).order_by(newest).limit(limit)
        with self._guarded() as connection:
            return tuple(codec.load_finding(body) for body in connection.execute(query).scalars())

    def orders(self, host: HostName, *, limit: int) -> tuple[OrderRecord, ...]:
        """Return the newest orders of one host, oldest first. Raises StoreError."""
        newest = (orders.c.position.desc(), orders.c.nth.desc())
        query = sa.select(orders).where(orders.c.host == host).order_by(*newest).limit(limit)
        with self._guarded() as connection:
            rows = list(connection.execute(query))
        return tuple(
            OrderRecord(order=codec.load_order(row.body), done=row.done, result=row.result) for row in reversed(rows)
        )

    def close(self) -> None:
        """Close the connections; idempotent."""
        self._engine.dispose()


def mark_done(connection: sa.Connection, order: OrderId, result: str) -> None:
    """Mark an order as carried out; the first result stays."""
    is_open = sa.and_(orders.c.id == order, orders.c.done.is_(other=False))
    connection.execute(sa.update(orders).where(is_open).values(done=True, result=plain(result)))


def _conditions(query: FactQuery, *, after: int) -> Iterator[sa.ColumnElement[bool]]:
    yield journal.c.id > after
    if query.before is not None:
        yield journal.c.id < query.before
    if query.notable:
        yield sa.text("notable")  # type: ignore[misc]  # as the index has it
    if query.people:
        yield journal.c.who.is_not(None)
    if query.since_s is not None:
        yield journal.c.at_s >= query.since_s
    if query.until_s is not None:
        yield journal.c.at_s < query.until_s
    for column, wanted in ((journal.c.host, query.host), (journal.c.who, query.who), (journal.c.kind, query.event)):
        if wanted is not None:
            yield column == wanted


def _hosts(connection: sa.Connection, names: Sequence[HostName]) -> dict[HostName, Host]:
    """Those of the hosts that are known."""
    found: dict[HostName, Host] = {}
    for start in range(0, len(names), _NAMES_AT_ONCE):
        some = hosts.c.name.in_(names[start : start + _NAMES_AT_ONCE])
        for body in connection.execute(sa.select(hosts.c.body).where(some)).scalars():
            host = codec.load_host(body)
            found[host.name] = host
    return found


def _fleet(connection: sa.Connection) -> FleetRecord:
    body = connection.execute(sa.select(fleet.c.body)).scalar()
    return FleetRecord() if body is None else codec.load_fleet(body)


def _newest(connection: sa.Connection, kinds: tuple[type, ...], limit: int) -> tuple[JournalEntry, ...]:
    """The newest journal entries on events of these kinds, oldest first."""
    named = journal.c.kind.in_([kind.__name__ for kind in kinds])
    query = sa.select(journal.c.body).where(named).order_by(journal.c.id.desc()).limit(limit)
    return tuple(codec.load_entry(body) for body in reversed(list(connection.execute(query).scalars())))


def _jobs_heard(connection: sa.Connection) -> tuple[JobEnded, ...]:
    """The ends of jobs of the journal's last hours, oldest first."""
    newest_s = connection.execute(sa.select(sa.func.max(journal.c.at_s))).scalar()
    if newest_s is None:
        return ()
    late = journal.c.at_s >= newest_s - JOBS_HEARD_SECONDS
    # Not the smallest id: for that SQLite would read the whole journal from its beginning.
    earliest = sa.select(journal.c.id).where(late).order_by(journal.c.at_s, journal.c.id).limit(1)
    first = connection.execute(earliest).scalar()
    ended = sa.and_(journal.c.kind == JobEnded.__name__, journal.c.id >= first)
    query = sa.select(journal.c.body).where(ended).order_by(journal.c.id.desc()).limit(JOBS_HEARD_KEPT)
    return tuple(codec.load_job_end(body) for body in reversed(list(connection.execute(query).scalars())))
