"""The ledger in a PostgreSQL database that several controllers share: one of them writes at a time.

Whoever opens it to write begins a term: a number in a row that every transaction which writes locks and compares
first. So a controller whose time is over can change nothing any more, whatever it still believes; and what it has
written, its successor has read.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any

import psycopg
import sqlalchemy as sa
import structlog
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from sqlalchemy.dialects import postgresql

from fleetd.model.ids import OrderId
from fleetd.ports import NotJudge, StoreError
from fleetd.stores import upgrade
from fleetd.stores.file import one_line
from fleetd.stores.keep import Pruned, prune_by
from fleetd.stores.place import PgPlace
from fleetd.stores.queries import Queries, mark_done
from fleetd.stores.rows import plain
from fleetd.stores.schema import orders, term

_log = structlog.get_logger(__name__)

SERVER_MIN = 140_000
"""PostgreSQL 14: the first that ends idle sessions, which is how a judge that hangs loses its seat."""
CLAIM_SECONDS = 120.0
"""How long an attempt at an order may take before the database lets go of it, and it is tried again.

A few calls of a scheduler; not more, because a controller that hangs in one keeps the order from the next judge.
"""

_CONNECTION = {
    "application_name": "fleetd",
    "connect_timeout": 3,
    # A database that is gone without a word (its machine, a firewall) is noticed by us within about 5 s, …
    "keepalives": 1,
    "keepalives_idle": 3,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "tcp_user_timeout": 5000,
}
_SESSION = {
    # … and by the database when it is we who are gone.
    "tcp_keepalives_idle": "3",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "2",
    "tcp_user_timeout": "5000",
    # No query, no wait for a lock and no open transaction lasts for ever: a stuck one would keep its successor out.
    "statement_timeout": "30000",
    "lock_timeout": "8000",  # longer than the next: a successor outwaits whoever hangs in a transaction
    "idle_in_transaction_session_timeout": "5000",
    # What is acknowledged is on the disk, whatever the database's own setting.
    "synchronous_commit": "on",
}
_POOL, _POOL_MORE, _POOL_SECONDS = 8, 64, 10
"""Connections that are kept, that may come on top (an attempt at an order has one), and the wait for one."""
_TERM = 1
"""The id of the only row."""
KEY = 0x666C7464
"""`fltd`: ours of all who lock something in this database; the judge's place with the schema's name, pruning with 1."""
_END_WRITERS = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'relation' AND relation = 'term'::regclass AND mode IN ('RowShareLock', 'RowExclusiveLock')
AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
"""
_PRUNES = f"SELECT pg_advisory_xact_lock({KEY}, 1)"


class Lock(Enum):
    """On the term, until the end of a transaction. Who begins a term waits for the end of both."""

    ALONE = "FOR NO KEY UPDATE"
    """Nobody else appends to the journal meanwhile."""
    BESIDE = "FOR KEY SHARE"
    """The term stays as it is, and others write: orders are finished while entries are on their way to the disk."""


def connect(place: PgPlace, *, autocommit: bool = False, **session: str) -> "psycopg.Connection[tuple[Any, ...]]":
    """Open a connection; `session` sets more of the server's settings.

    What the URL says of the connection itself wins over our settings.

    Raises:
        psycopg.Error: it cannot be had.
        StoreError: the environment leads to another machine, of which the URL says nothing.
    """
    defaults = {one.keyword.decode(): one.val.decode() for one in Conninfo.get_defaults() if one.val}
    if far := place.elsewhere(defaults):
        led = f"the environment (PGHOST, PGHOSTADDR, PGSERVICE) leads to {far}"
        raise StoreError(f"{place.where}: {led}; write that into the URL, or unset it")
    given = conninfo_to_dict(place.url)
    settings = " ".join(f"-c {name}={value}" for name, value in {**_SESSION, **session}.items())
    ours = {**_CONNECTION, **({} if place.sslmode is None else {"sslmode": place.sslmode})}
    options = f"{settings} {given.get('options') or ''}".strip()
    return psycopg.connect(autocommit=autocommit, **{**ours, **given, "options": options})  # type: ignore[arg-type]


def see_version(where: str, version: int) -> None:
    """Raise StoreError for a server that is too old; its version as 150003 for 15.3."""
    if version < SERVER_MIN:
        needs, has = SERVER_MIN // 10_000, version // 10_000
        raise StoreError(f"{where}: PostgreSQL {needs} or newer is needed, this one is {has}")


class PgStore(Queries):
    """A `Store` in a PostgreSQL database; `PgSeat` opens it to write."""

    def __init__(self, place: PgPlace, *, read_only: bool = False, holder: str = "") -> None:
        """Open the ledger. Unless `read_only`, bring it to this version's schema and begin a term.

        Args:
            place: the database.
            read_only: look, and change nothing.
            holder: who begins the term, for messages.

        Raises:
            StoreError: it cannot be reached or used; OtherSchema when a newer version wrote it.
        """
        engine = sa.create_engine(
            "postgresql+psycopg://",
            creator=lambda: connect(place),
            pool_size=_POOL,
            max_overflow=_POOL_MORE,
            pool_timeout=_POOL_SECONDS,
            pool_pre_ping=True,  # a connection that was cut while nobody used it is replaced, not tripped over
        )
        super().__init__(engine, where=place.where)
        self._reading = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._claims: set[_Claim] = set()  # bounded by the workers of the dispatcher
        self._read_only = read_only
        self._closed = False
        self.term = 0
        """The term that this store writes in; 0: it only reads."""
        try:
            with self._transaction(engine) as connection:
                self._begin(connection, holder)
        except StoreError:
            engine.dispose()
            raise

    def _begin(self, connection: sa.Connection, holder: str) -> None:
        see_version(self._where, int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()))
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding != "UTF8":
            raise StoreError(f"{self._where}: its encoding is {encoding}: make it with ENCODING 'UTF8'")
        try:
            if self._read_only:
                upgrade.check(connection)
                return
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # an upgrade of a long journal takes its time
            self._end_writers(connection)
            upgrade.upgrade(connection, self._where)
        except StoreError as error:
            raise type(error)(f"{self._where}: {error}") from error
        connection.execute(
            sa.select(term.c.id).with_for_update()
        )  # not even beside it is anything written from here on
        row = postgresql.insert(term).values(id=_TERM, number=1, holder=plain(holder))
        bumped = {"number": term.c.number + 1, "holder": row.excluded.holder}
        taken = row.on_conflict_do_update(index_elements=["id"], set_=bumped).returning(term.c.number)
        # Whatever the last holder still writes is done or taken back now, and it writes nothing more.
        self.term = connection.execute(taken).scalar_one()

    def _end_writers(self, connection: sa.Connection) -> None:
        """End sessions of earlier terms that are writing at this moment.

        One may hang there with all its connections open, and no time-out of the server ends a session that waits in
        the middle of a batch. Claims are left alone: whoever carries an order out may be at it still.
        """
        if connection.exec_driver_sql("SELECT to_regclass('term')").scalar() is None:
            return
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(_END_WRITERS)
        except sa.exc.ProgrammingError as error:  # they are of another user of the database: they are waited for
            _log.warning("writers_not_ended", why=one_line(self._where, error))

    @contextmanager
    def _transaction(self, engine: sa.Engine) -> Iterator[sa.Connection]:
        try:
            with engine.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(one_line(self._where, error)) from error

    @contextmanager
    def _guarded(self, *, write: bool = False) -> Iterator[sa.Connection]:
        if not write:
            with self._transaction(self._reading) as connection:
                yield connection
            return
        try:
            with self._engine.begin() as connection:
                self._see_term(connection, lock=Lock.ALONE)
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: sa.exc.SQLAlchemyError) -> StoreError:
        """What a transaction that writes failed by.

        NotJudge when the connection broke: it may have broken on the way back, with everything written. Whoever goes on
        from what he believes would then give order numbers twice; he has to begin anew from what is there.
        """
        orig = getattr(error, "orig", None)
        state = getattr(orig, "sqlstate", None)
        cut = isinstance(orig, psycopg.OperationalError | psycopg.InterfaceError) and (
            state is None or state.startswith(("08", "57P"))  # connection exceptions; the server shuts down
        )
        if cut or getattr(error, "connection_invalidated", False):
            return NotJudge(f"{one_line(self._where, error)}; whether it was written is not known")
        return StoreError(one_line(self._where, error))

    def _see_term(self, connection: sa.Connection, *, lock: Lock | None) -> None:
        """Raise NotJudge unless the term is ours; with a lock it stays so up to the end of the transaction.

        `ALONE` is also the lock on the end of the journal: what is read there after this is what stands there.
        """
        asked = sa.select(term.c.number, term.c.holder).where(term.c.id == _TERM)
        if lock is not None:
            asked = asked.with_for_update(key_share=True, read=lock is Lock.BESIDE)
        now = connection.execute(asked).first()
        if now is None or now.number != self.term:
            who = f": {now.holder}" if now is not None and now.holder else ""
            raise NotJudge(f"{self._where}: another controller is the judge by now{who}")

    def claim(self, order: OrderId) -> "_Claim | None":
        """Have an order to oneself; None: another controller is carrying it out. Raises NotJudge, StoreError."""
        try:
            connection = self._engine.connect()
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(one_line(self._where, error)) from error
        claim = _Claim(self, connection, order)
        self._claims.add(claim)
        if self._closed:  # whoever waited for it is gone: nobody would let it go
            claim.let_go()
            raise NotJudge(f"{self._where}: this ledger was closed meanwhile")
        try:
            if claim.begin():
                return claim
        except BaseException:
            claim.let_go()
            raise
        claim.let_go()
        return None

    def close(self) -> None:
        """Let go of the orders that are still claimed, and close the connections; idempotent."""
        self._closed = True
        for claim in tuple(self._claims):
            claim.let_go()
        super().close()


class _Claim:
    """A transaction that holds the row of an order for as long as somebody carries it out."""

    def __init__(self, store: PgStore, connection: sa.Connection, order: OrderId) -> None:
        self._store = store
        self._connection = connection
        self._order = order
        self._calls = threading.RLock()  # whoever was cancelled while it was finished lets it go at the same time

    def begin(self) -> bool:
        """Take the row; False: another one has it. Nobody else knows of this claim yet. Raises NotJudge, StoreError."""
        limit = sa.func.set_config("idle_in_transaction_session_timeout", f"{CLAIM_SECONDS * 1000:.0f}", sa.true())
        row = sa.select(orders.c.id, limit).where(orders.c.id == self._order).with_for_update(skip_locked=True)
        with self._said():
            # The term is only looked at: a lock on it would keep a successor waiting for the scheduler.
            self._store._see_term(self._connection, lock=None)  # noqa: SLF001 - one unit
            return self._connection.execute(row).first() is not None

    def finish(self, result: str) -> None:
        """Mark the order as carried out and let it go. Raises NotJudge, StoreError: it is let go, and may be open."""
        with self._calls:
            try:
                with self._said():
                    self._store._see_term(self._connection, lock=Lock.BESIDE)  # noqa: SLF001 - one unit
                    mark_done(self._connection, self._order, result)
                    self._connection.commit()
            finally:
                self.let_go()

    def let_go(self) -> None:
        """Let the order go; idempotent."""
        with self._calls:
            self._store._claims.discard(self)  # noqa: SLF001 - one unit
            try:
                self._connection.close()
            except sa.exc.SQLAlchemyError:  # it is broken: the database has let go already
                with suppress(sa.exc.SQLAlchemyError):
                    self._connection.invalidate()

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(one_line(self._store._where, error)) from error  # noqa: SLF001 - one unit


def prune(place: PgPlace, *, before_s: float, go_on: Callable[[], bool] = lambda: True) -> Pruned:
    """Prune a ledger, see `keep.prune_by`; beside the judge, and never two at once. Raises StoreError."""
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: connect(place), poolclass=sa.NullPool)

    @contextmanager
    def transaction() -> Iterator[sa.Connection]:
        try:
            with engine.begin() as connection:
                connection.exec_driver_sql(_PRUNES)
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(one_line(place.where, error)) from error

    try:
        return prune_by(transaction, place.where, before_s=before_s, go_on=go_on)
    finally:
        engine.dispose()
