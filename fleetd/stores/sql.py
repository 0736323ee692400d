"""The ledger on SQLAlchemy Core: SQLite by default (one controller), any other engine by its URL."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from fleetd.model.event import FindingReceived, JobEnded
from fleetd.model.finding import Finding
from fleetd.model.fleet import FleetRecord
from fleetd.model.ids import FindingId, HostName, OrderId, SpoolId
from fleetd.model.journal import JournalEntry, OrderRecord, SpoolProgress, StoreImage
from fleetd.model.order import Quarantine
from fleetd.ports import StoreError
from fleetd.stores import codec
from fleetd.stores.memory import JOB_ENDS_KEPT, QUARANTINES_KEPT, RECENT, RECENT_KEPT

SCHEMA_VERSION = 1

_metadata = sa.MetaData()
_meta = sa.Table("meta", _metadata, sa.Column("schema_version", sa.Integer, nullable=False))
_hosts = sa.Table("hosts", _metadata, sa.Column("name", sa.Text, primary_key=True), sa.Column("body", sa.Text))
_journal = sa.Table(
    "journal",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("host", sa.Text),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("journal_by_host", "host", "id"),
    sa.Index("journal_by_kind", "kind", "id"),
)
_findings = sa.Table(
    "findings",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("findings_by_host", "host", "position"),
)
_spools = sa.Table(
    "spools",
    _metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("spool", sa.Text, primary_key=True),
    sa.Column("seq", sa.Integer, nullable=False),
)
_fleet = sa.Table("fleet", _metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("body", sa.Text))
_orders = sa.Table(
    "orders",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("issued_at_s", sa.Float, nullable=False),
    sa.Column("done", sa.Boolean, nullable=False),
    sa.Column("result", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("orders_open", "done", "position"),
    sa.Index("orders_by_kind", "kind", "position"),
    sa.Index("orders_by_host", "host", "position"),
)


class SqlStore:
    """A `Store` on an SQLite file: WAL, every commit synced to disk before it returns."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open the file; create it unless `read_only`.

        Raises StoreError when it cannot, or when another version wrote it.
        """
        self._path = path
        url = f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true" if read_only else f"sqlite:///{path}"
        self._engine = sa.create_engine(url, connect_args={"check_same_thread": False, "timeout": 10})
        if not read_only:
            sa.event.listen(self._engine, "connect", _on_connect)
        try:
            self._prepare(create=not read_only)
        except StoreError:
            self._engine.dispose()
            raise

    def _prepare(self, *, create: bool) -> None:
        with self._guarded() as connection:
            if create:
                _metadata.create_all(connection)
            said = connection.execute(sa.text("PRAGMA quick_check(1)")).scalar()
            if said != "ok":
                raise StoreError(f"{self._path}: damaged, {' '.join(str(said).split())}; restore a backup of it")
            version = connection.execute(sa.select(_meta.c.schema_version)).scalar()
            if version is None and not create:
                raise StoreError(f"{self._path}: an empty ledger")
            if version is None:
                connection.execute(sa.insert(_meta).values(schema_version=SCHEMA_VERSION))
            elif version != SCHEMA_VERSION:
                raise StoreError(f"{self._path}: schema {version}, this version of fleetd reads {SCHEMA_VERSION}")

    @contextmanager
    def _guarded(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(_one_line(self._path, error)) from error

    def load(self) -> StoreImage:
        """Return what a controller starts from. Raises StoreError."""
        with self._guarded() as connection:
            hosts = connection.execute(sa.select(_hosts.c.body).order_by(_hosts.c.name)).scalars()
            spools = connection.execute(sa.select(_spools).order_by(_spools.c.host, _spools.c.spool))
            open_orders = sa.select(_orders.c.body).where(_orders.c.done.is_(other=False)).order_by(_orders.c.position)
            quarantines = (
                sa.select(_orders.c.issued_at_s, _orders.c.host)
                .where(_orders.c.kind == Quarantine.__name__)
                .order_by(_orders.c.position.desc(), _orders.c.id.desc())
                .limit(QUARANTINES_KEPT)
            )
            fleet = connection.execute(sa.select(_fleet.c.body)).scalar()
            return StoreImage(
                hosts=tuple(codec.load_host(body) for body in hosts),
                spools=tuple(
                    (HostName(row.host), SpoolProgress(spool=SpoolId(row.spool), seq=row.seq)) for row in spools
                ),
                open_orders=tuple(codec.load_order(body) for body in connection.execute(open_orders).scalars()),
                fleet=FleetRecord() if fleet is None else codec.load_fleet(fleet),
                quarantines=tuple(
                    (row.issued_at_s, HostName(row.host)) for row in reversed(list(connection.execute(quarantines)))
                ),
                recent=_newest(connection, RECENT, RECENT_KEPT),
                job_ends=_newest(connection, (JobEnded,), JOB_ENDS_KEPT),
            )

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        """Write the entries in one transaction. Raises StoreError; then nothing of them is written."""
        newest = sa.select(_journal.c.body).order_by(_journal.c.id.desc()).limit(1)
        with self._guarded() as connection:
            last: str | None = connection.execute(newest).scalar()
            for entry in entries:
                last = codec.chained(codec.dump_entry(entry), last)
                self._write(connection, entry, last)

    def _write(self, connection: sa.Connection, entry: JournalEntry, text: str) -> None:
        host = None if entry.host is None else entry.host.name
        body = {"host": host, "kind": type(entry.event).__name__, "body": text}
        written = connection.execute(sa.insert(_journal).values(**body))
        position = written.inserted_primary_key[0] if written.inserted_primary_key else 0
        if entry.host is not None:
            _upsert(connection, _hosts, {"name": host}, {"body": codec.dump_host(entry.host)})
        if isinstance(entry.event, FindingReceived):
            finding = entry.event.finding
            row = {"position": position, "host": host, "body": codec.dump_finding(finding)}
            connection.execute(sqlite_insert(_findings).values(id=finding.id, **row).on_conflict_do_nothing())
            if entry.progress is not None:
                key = {"host": host, "spool": entry.progress.spool}
                _upsert(connection, _spools, key, {"seq": entry.progress.seq})
        if entry.fleet is not None:
            _upsert(connection, _fleet, {"id": 1}, {"body": codec.dump_fleet(entry.fleet)})
        for order in entry.orders:
            row = {
                "id": order.id,
                "position": position,
                "host": host,
                "kind": type(order).__name__,
                "issued_at_s": order.issued_at_s,
                "done": False,
                "result": "",
                "body": codec.dump_order(order),
            }
            connection.execute(sqlite_insert(_orders).values(**row).on_conflict_do_nothing())

    def finding_known(self, finding: FindingId) -> bool:
        """Whether the finding was ever committed. Raises StoreError."""
        with self._guarded() as connection:
            query = sa.select(sa.literal(1)).where(_findings.c.id == finding)
            return connection.execute(query).scalar() is not None

    def finish_order(self, order: OrderId, result: str) -> None:
        """Mark an order as carried out; the first result stays. Raises StoreError."""
        with self._guarded() as connection:
            is_open = sa.and_(_orders.c.id == order, _orders.c.done.is_(other=False))
            connection.execute(sa.update(_orders).where(is_open).values(done=True, result=result))

    def journal(self, *, after: int, limit: int) -> tuple[tuple[int, JournalEntry], ...]:
        """Return entries of the whole fleet after a position, in order.

        Raises StoreError, also for an entry that does not follow from the one before it.
        """
        query = sa.select(_journal.c.id, _journal.c.body).where(_journal.c.id > after).order_by(_journal.c.id)
        with self._guarded() as connection:
            before = connection.execute(sa.select(_journal.c.body).where(_journal.c.id == after)).scalar()
            rows = [(row.id, row.body) for row in connection.execute(query.limit(limit))]
        entries = []
        for position, body in rows:
            if not codec.follows(body, before):
                raise StoreError(
                    f"{self._path}: entry {position} of the journal does not follow from the one before it"
                )
            entries.append((position, codec.load_entry(body)))
            before = body
        return tuple(entries)

    def history(self, host: HostName, *, limit: int) -> tuple[JournalEntry, ...]:
        """Return the newest entries of one host, oldest first. Raises StoreError."""
        query = sa.select(_journal.c.body).where(_journal.c.host == host).order_by(_journal.c.id.desc()).limit(limit)
        with self._guarded() as connection:
            rows = list(connection.execute(query).scalars())
        return tuple(codec.load_entry(body) for body in reversed(rows))

    def findings(self, host: HostName, *, limit: int) -> tuple[Finding, ...]:
        """Return the newest findings of one host, newest first. Raises StoreError."""
        newest = _findings.c.position.desc()
        query = sa.select(_findings.c.body).where(_findings.c.host == host).order_by(newest).limit(limit)
        with self._guarded() as connection:
            return tuple(codec.load_finding(body) for body in connection.execute(query).scalars())

    def orders(self, host: HostName, *, limit: int) -> tuple[OrderRecord, ...]:
        """Return the newest orders of one host, oldest first. Raises StoreError."""
        newest = _orders.c.position.desc()
        query = sa.select(_orders).where(_orders.c.host == host).order_by(newest).limit(limit)
        with self._guarded() as connection:
            rows = list(connection.execute(query))
        return tuple(
            OrderRecord(order=codec.load_order(row.body), done=row.done, result=row.result) for row in reversed(rows)
        )

    def close(self) -> None:
        """Close the file; idempotent."""
        self._engine.dispose()


def _newest(connection: sa.Connection, kinds: tuple[type, ...], limit: int) -> tuple[JournalEntry, ...]:
    """The newest journal entries on events of these kinds, oldest first."""
    named = _journal.c.kind.in_([kind.__name__ for kind in kinds])
    query = sa.select(_journal.c.body).where(named).order_by(_journal.c.id.desc()).limit(limit)
    return tuple(codec.load_entry(body) for body in reversed(list(connection.execute(query).scalars())))


def _one_line(path: Path, error: sa.exc.SQLAlchemyError) -> str:
    cause = getattr(error, "orig", None) or error
    return f"{path}: {' '.join(str(cause).split())}"


def _on_connect(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an acknowledged finding survives a power cut
    cursor.close()


def _upsert(connection: sa.Connection, table: sa.Table, key: dict[str, Any], values: dict[str, Any]) -> None:
    statement = sqlite_insert(table).values(**key, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=values))
