"""The `TokenBook` port on one SQLite file beside the ledger.

Beside it, because `fleetd pki token` on the controller's machine has to write it while a controller has the ledger for
itself; and because an attempt to enrol is a stranger's doing, of which there may be many, and the journal is of hosts.
Always true: it never holds a token, only its digest; tables are bounded.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fleetd.model.ids import HostName
from fleetd.ports import Attempt, Refused, StoreError, TokenRecord

TOKENS_MAX = 20_000
"""Tokens that wait to be spent: a whole fleet's. Those that expired give way by themselves."""
ATTEMPTS_MAX = 100_000
REFUSED_MAX = 10_000
"""Refused attempts are kept apart, so that a flood of them cannot push out who was let in."""
_KEEP_S = 30 * 86400.0
"""How long a token that expired or was spent is remembered, so that who shows it again is told what became of it."""
_WAIT_S = 5.0
_APPLICATION_ID = 0x666C746B  # "fltk": tells this file from others
_VERSION = 1
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS token (
    digest TEXT PRIMARY KEY, host TEXT NOT NULL, expires_at_s REAL NOT NULL, spent_on TEXT
);
CREATE TABLE IF NOT EXISTS attempt (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, what TEXT NOT NULL, host TEXT NOT NULL,
    who TEXT NOT NULL, refused INTEGER NOT NULL, why TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS attempt_kind ON attempt (refused, id);
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
"""


class SqliteTokenBook:
    """Opens the file for each call: several processes use it, each rarely. May be used from any thread."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it, readable for its owner only: the owner of the folder. Raises StoreError."""
        self._path = path
        try:
            made = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            os.close(made)
            if os.geteuid() == 0:  # by hand, as root: the controller's own user has to write it later
                folder = path.parent.stat()
                os.chown(path, folder.st_uid, folder.st_gid)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        with self._open() as database:
            (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (owner,) = database.execute("PRAGMA application_id").fetchone()
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if tables == 0:
                database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            elif owner != _APPLICATION_ID:
                raise StoreError(f"{path} is a database of another program: move it away")
            elif version != _VERSION:
                raise StoreError(f"{path} has schema {version}, and this version of fleetd knows schema {_VERSION}")

    def issue(self, digest: str, record: TokenRecord, *, now_s: float) -> None:
        """Keep a new token. Raises Refused when too many wait to be spent; StoreError."""
        with self._write() as database:
            database.execute("DELETE FROM token WHERE expires_at_s < ?", (now_s - _KEEP_S,))
            query = "SELECT count(*) FROM token WHERE spent_on IS NULL AND expires_at_s > ?"
            (waiting,) = database.execute(query, (now_s,)).fetchone()
            if waiting >= TOKENS_MAX:
                raise Refused(f"{waiting} tokens wait to be spent, and no more are kept: let them be used, or expire")
            database.execute("INSERT INTO token VALUES (?, ?, ?, NULL)", (digest, record.host, record.expires_at_s))

    def token(self, digest: str) -> TokenRecord | None:
        """What is known of a token. Raises StoreError."""
        with self._open() as database:
            query = "SELECT host, expires_at_s, spent_on FROM token WHERE digest = ?"
            row = database.execute(query, (digest,)).fetchone()
        if row is None:
            return None
        return TokenRecord(host=HostName(row[0]), expires_at_s=row[1], spent_on=row[2])

    def spend(self, digest: str, key: str) -> bool:
        """Spend a token on a key, once; whether it is spent on this key now. Raises StoreError."""
        with self._write() as database:
            database.execute("UPDATE token SET spent_on = ? WHERE digest = ? AND spent_on IS NULL", (key, digest))
            row = database.execute("SELECT spent_on FROM token WHERE digest = ?", (digest,)).fetchone()
        return row is not None and row[0] == key

    def note(self, attempt: Attempt) -> None:
        """Add to the audit, in which the oldest give way. Raises StoreError."""
        a, most = attempt, REFUSED_MAX if attempt.refused else ATTEMPTS_MAX
        with self._write() as database:
            database.execute(
                "INSERT INTO attempt (at_s, what, host, who, refused, why) VALUES (?, ?, ?, ?, ?, ?)",
                (a.at_s, a.what, a.host, a.who, a.refused, a.why),
            )
            database.execute(
                "DELETE FROM attempt WHERE refused = ?1 AND id <= "
                "(SELECT id FROM attempt WHERE refused = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
                (a.refused, most),
            )

    def attempts(self, *, limit: int) -> tuple[Attempt, ...]:
        """The newest, newest first. Raises StoreError."""
        query = "SELECT at_s, what, host, who, refused, why FROM attempt ORDER BY id DESC LIMIT ?"
        with self._open() as database:
            rows = database.execute(query, (limit,)).fetchall()
        return tuple(
            Attempt(at_s=at_s, what=what, host=host, who=who, refused=bool(refused), why=why)
            for at_s, what, host, who, refused, why in rows
        )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous = FULL")
                yield database
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on the disk afterwards, or none."""
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")  # without it, closing the connection rolls back
