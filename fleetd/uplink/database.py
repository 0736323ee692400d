"""One small SQLite file that survives `kill -9`, a full disk and its own corruption: base of spool and orders."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from fleetd.ports import StoreError

_log = structlog.get_logger(__name__)

_APPLICATION_ID = 0x666C7464  # "fltd": tells our files from those of others
_LOCK_WAIT_S = 1.0
"""How long to wait for a predecessor that is just ending."""


class Database:
    """A file that one process has to itself; every commit is on the disk when it returns.

    Not thread-safe: it belongs to the thread that opened it. A commit waits for the disk (a few milliseconds); what is
    kept here is rare.
    """

    def __init__(self, path: Path, *, schema: Sequence[str], version: int) -> None:
        """Open the file, or make it.

        A corrupted file is moved to `PATH.corrupt` (replacing an older one there) and a new one is begun: losing what
        was queued is better than a host that can report nothing.

        Args:
            path: the file; missing folders are made.
            schema: statements that make the tables.
            version: of the schema; grows with every change of it.

        Raises:
            StoreError: another process has the file, it is of another program or version, or the disk refuses.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = self._open(schema, version)
            except sqlite3.DatabaseError as error:
                if not _is_corrupt(error):
                    raise
                self._set_aside(str(error))
                self._connection = self._open(schema, version)
        except sqlite3.Error as error:
            raise self._store_error(error) from error
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error

    @contextmanager
    def write(self) -> Iterator[sqlite3.Cursor]:
        """One transaction: all of it is on the disk afterwards, or none. Raises StoreError."""
        try:
            cursor = self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.rollback()
                raise
        except sqlite3.Error as error:
            raise self._store_error(error) from error

    def read(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises StoreError."""
        try:
            return self._connection.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._store_error(error) from error

    def close(self) -> None:
        """Release the file; idempotent."""
        self._connection.close()

    def _open(self, schema: Sequence[str], version: int) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_LOCK_WAIT_S, isolation_level=None)
        try:
            # EXCLUSIVE: two agents on one spool would each send half of it.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            self._prepare(connection, schema, version)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection, schema: Sequence[str], version: int) -> None:
        """Make the tables of a new file, or check that an old one is ours and whole."""
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (health,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if health != "ok":
            error = sqlite3.DatabaseError(health.splitlines()[0])
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        if tables == 0:
            for statement in schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        elif owner != _APPLICATION_ID:
            raise StoreError(f"{self.path} is a database of another program: name another file")
        elif found != version:
            raise StoreError(
                f"{self.path} has schema {found} and this version of fleetd knows schema {version}: "
                "run the version that wrote it, or move the file away"
            )

    def _set_aside(self, why: str) -> None:
        aside = Path(f"{self.path}.corrupt")
        for suffix in ("", "-wal", "-shm"):
            source = Path(f"{self.path}{suffix}")
            if source.exists():
                source.replace(f"{aside}{suffix}")
        _log.error("database_set_aside", path=str(self.path), moved_to=str(aside), why=why)

    def _store_error(self, error: sqlite3.Error) -> StoreError:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            return StoreError(f"{self.path} is in use by another process: stop that one, or name another file")
        return StoreError(f"{self.path}: {error}")


def _is_corrupt(error: sqlite3.DatabaseError) -> bool:
    # The low byte is the primary code; the rest says more about it.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
