"""The judge's place on a ledger in PostgreSQL: an advisory lock of a session of its own.

The lock says who may try; the term (`postgres`) makes sure that nobody else writes. A session that says nothing for
`SILENT_SECONDS` is ended by the database, so a judge that hangs, or whose machine is gone, loses its place.
"""

import threading
from contextlib import suppress
from typing import Any

import psycopg

from fleetd.ports import NotJudge, StoreError
from fleetd.stores.file import one_line
from fleetd.stores.place import PgPlace
from fleetd.stores.postgres import KEY, PgStore, connect, see_version

SILENT_SECONDS = 4.0
"""After which the database takes the place from a judge that it does not hear of."""
OPENING_SECONDS = 3600.0
"""The same while the ledger is opened: an upgrade of a long journal takes its time, and nothing else is said then."""

_TRY = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))"
_RIVAL = "SELECT holder FROM term WHERE id = 1"
_TERM = "SELECT number FROM term WHERE id = 1"


class PgSeat:
    """A `Seat`: one session that has the lock, or keeps trying for it. One call at a time; others wait."""

    def __init__(self, place: PgPlace, *, holder: str) -> None:
        """Connects nowhere yet; `holder` is what others are told of who we are."""
        self._place = place
        self._holder = holder
        self._session: psycopg.Connection[tuple[Any, ...]] | None = None
        self._term = 0
        self._calls = threading.RLock()  # whoever gave up waiting for a call may come with the next one
        self.rival = ""
        """Who has the place, as far as is known."""

    def take(self) -> PgStore | None:
        """Try to take it, once. Raises StoreError, OtherSchema."""
        with self._calls:
            return self._take()

    def _take(self) -> PgStore | None:
        try:
            if self._session is None:
                self._session = connect(self._place, autocommit=True)
                see_version(self._place.where, self._session.info.server_version)
                self._allow_silence(self._session, SILENT_SECONDS)
            if not self._got(self._session):
                self.rival = self._known(self._session)
                return None
            self._allow_silence(self._session, OPENING_SECONDS)
            store = PgStore(self._place, holder=self._holder)
            try:
                self._allow_silence(self._session, SILENT_SECONDS)
            except psycopg.Error:
                store.close()
                raise
        except psycopg.Error as error:
            self.leave()
            raise StoreError(one_line(self._place.where, error)) from error
        except StoreError:
            self.leave()
            raise
        self._term, self.rival = store.term, ""
        return store

    def held(self) -> None:
        """See that it is still ours. Raises NotJudge, StoreError."""
        with self._calls:
            if self._session is None:
                raise NotJudge(f"{self._place.where}: the judge's place was left")
            try:
                now = self._session.execute(_TERM).fetchone()
            except psycopg.Error as error:
                self.leave()
                raise StoreError(one_line(self._place.where, error)) from error
        if now is None or now[0] != self._term:
            raise NotJudge(f"{self._place.where}: another controller is the judge by now")

    def leave(self) -> None:
        """Give it up; idempotent."""
        with self._calls:
            session, self._session = self._session, None
            if session is not None:
                with suppress(psycopg.Error):
                    session.close()

    @staticmethod
    def _allow_silence(session: "psycopg.Connection[tuple[Any, ...]]", seconds: float) -> None:
        session.execute("SELECT set_config('idle_session_timeout', %s, false)", (f"{seconds * 1000:.0f}",))

    def _got(self, session: "psycopg.Connection[tuple[Any, ...]]") -> bool:
        got = session.execute(_TRY, (KEY,)).fetchone()
        if got is None or got[0] is None:
            raise StoreError(f"{self._place.where}: its search_path names no schema that is there")
        return bool(got[0])

    @staticmethod
    def _known(session: "psycopg.Connection[tuple[Any, ...]]") -> str:
        try:
            row = session.execute(_RIVAL).fetchone()
        except psycopg.errors.UndefinedTable:
            return ""  # the first controller of all is making the tables
        return str(row[0]) if row is not None else ""
