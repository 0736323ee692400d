"""The ledger on SQLAlchemy Core: SQLite by default (one controller), any other engine by its URL."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from fleetd.model.event import FindingReceived
from fleetd.model.finding import Finding
from fleetd.model.ids import FindingId, HostName, OrderId, SpoolId
from fleetd.model.journal import JournalEntry, OrderRecord, SpoolProgress, StoreImage
from fleetd.ports import StoreError
from fleetd.stores import codec

SCHEMA_VERSION = 1

_metadata = sa.MetaData()
_meta = sa.Table("meta", _metadata, sa.Column("schema_version", sa.Integer, nullable=False))
_hosts = sa.Table("hosts", _metadata, sa.Column("name", sa.Text, primary_key=True), sa.Column("body", sa.Text))
_journal = sa.Table(
    "journal",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("journal_by_host", "host", "id"),
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
_budget = sa.Table(
    "budget",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at_s", sa.Float, nullable=False),
    sa.Column("tripped", sa.Boolean, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
)
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
    sa.Index("orders_by_host", "host", "position"),
)


class SqlStore:
    """A `Store` on an SQLite file: WAL, every commit synced to disk before it returns."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises StoreError when it cannot, or when another version wrote it."""
        self._path = path
        self._engine = sa.create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False, "timeout": 10})
        sa.event.listen(self._engine, "connect", _on_connect)
        try:
            self._prepare()
        except StoreError:
            self._engine.dispose()
            raise

    def _prepare(self) -> None:
        with self._guarded() as connection:
            _metadata.create_all(connection)
            version = connection.execute(sa.select(_meta.c.schema_version)).scalar()
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
            quarantines = sa.select(_orders.c.issued_at_s).where(_orders.c.kind == "Quarantine")
            tripped = sa.select(_budget.c.tripped).order_by(_budget.c.id.desc()).limit(1)
            return StoreImage(
                hosts=tuple(codec.load_host(body) for body in hosts),
                spools=tuple(
                    (HostName(row.host), SpoolProgress(spool=SpoolId(row.spool), seq=row.seq)) for row in spools
                ),
                open_orders=tuple(codec.load_order(body) for body in connection.execute(open_orders).scalars()),
                budget_tripped=bool(connection.execute(tripped).scalar()),
                quarantined_at_s=tuple(sorted(connection.execute(quarantines).scalars())),
            )

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        """Write the entries in one transaction. Raises StoreError; then nothing of them is written."""
        with self._guarded() as connection:
            for entry in entries:
                self._write(connection, entry)

    def _write(self, connection: sa.Connection, entry: JournalEntry) -> None:
        host = entry.host.name
        written = connection.execute(sa.insert(_journal).values(host=host, body=codec.dump_entry(entry)))
        position = written.inserted_primary_key[0] if written.inserted_primary_key else 0
        _upsert(connection, _hosts, {"name": host}, {"body": codec.dump_host(entry.host)})
        if isinstance(entry.event, FindingReceived):
            finding = entry.event.finding
            row = {"position": position, "host": host, "body": codec.dump_finding(finding)}
            connection.execute(sqlite_insert(_findings).values(id=finding.id, **row).on_conflict_do_nothing())
            if entry.progress is not None:
                key = {"host": host, "spool": entry.progress.spool}
                _upsert(connection, _spools, key, {"seq": entry.progress.seq})
        if entry.trips_budget:
            tripped = {"at_s": entry.at_s, "tripped": True, "who": "fleetd", "why": entry.why}
            connection.execute(sa.insert(_budget).values(**tripped))
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

    def rearm_budget(self, *, at_s: float, who: str, reason: str) -> None:
        """Record that a human re-armed the quarantine budget. Raises StoreError."""
        with self._guarded() as connection:
            connection.execute(sa.insert(_budget).values(at_s=at_s, tripped=False, who=who, why=reason))

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
