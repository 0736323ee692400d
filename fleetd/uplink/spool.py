"""The `Spool` port on SQLite: findings wait here, on disk, until the controller has stored them.

Always true: a sequence number is given once; a finding is known by its id, so the same fact counts once, also for a
while after it was acknowledged; the file is bounded.
"""

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import assert_never

import msgspec
import structlog

from fleetd.model.finding import BurninEnded, DeviceFault, Finding, Severity
from fleetd.model.ids import SpoolId
from fleetd.ports import Spooled
from fleetd.uplink.database import Database
from fleetd.uplink.wire import clean

_log = structlog.get_logger(__name__)

_VERSION = 1
_SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # AUTOINCREMENT: a number is never given again, also after the row is gone.
    """CREATE TABLE finding (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
        info INTEGER NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL
    )""",
    "CREATE TABLE acknowledged (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE)",
)
_KINDS: dict[str, type[BurninEnded] | type[DeviceFault]] = {"burnin_ended": BurninEnded, "device_fault": DeviceFault}


class SqliteSpool:
    """Durable, bounded queue of findings in one file.

    When it is full the oldest finding of severity `info` goes first (it may be the one just appended), then the oldest
    of all: what is wrong now matters more than what was wrong during an outage. Drops are logged and counted.
    """

    def __init__(
        self, path: Path, *, rng: random.Random, max_findings: int = 10_000, max_acknowledged: int = 10_000
    ) -> None:
        """Open the spool or make it. Raises StoreError.

        Args:
            path: the database file.
            rng: names a new spool.
            max_findings: most findings that wait.
            max_acknowledged: how many acknowledged ids are remembered, to recognise a fact that is found again.
        """
        self._database = Database(path, schema=_SCHEMA, version=_VERSION)
        self._max_findings = max_findings
        self._max_acknowledged = max_acknowledged
        self._changed = asyncio.Event()
        self.dropped_total = 0
        """Findings lost since the process started: the spool was full, or an entry could not be read."""
        with self._database.write() as cursor:
            cursor.execute("INSERT OR IGNORE INTO meta VALUES ('spool_id', ?)", (f"{rng.getrandbits(128):032x}",))
        ((spool_id,),) = self._database.read("SELECT value FROM meta WHERE key = 'spool_id'")
        self._id = SpoolId(spool_id)
        ((depth,),) = self._database.read("SELECT count(*) FROM finding")
        self._depth: int = depth

    @property
    def id(self) -> SpoolId:
        """Identity of this spool; a new file has a new one."""
        return self._id

    @property
    def depth(self) -> int:
        """Findings that wait for their acknowledgement."""
        return self._depth

    def append(self, finding: Finding) -> int:
        """Write durably and return the sequence number; a known finding id gives its first one. Raises StoreError."""
        known = self._database.read(
            "SELECT seq FROM finding WHERE id = ? UNION ALL SELECT seq FROM acknowledged WHERE id = ?",
            (finding.id, finding.id),
        )
        if known:
            return int(known[0][0])
        body = msgspec.json.encode(_cleaned(finding))
        with self._database.write() as cursor:
            cursor.execute(
                "INSERT INTO finding (id, info, kind, body) VALUES (?, ?, ?, ?)",
                (finding.id, _is_info(finding), _kind(finding), body),
            )
            seq = cursor.lastrowid or 0  # never 0 after an INSERT
            dropped = [
                row
                for (row,) in cursor.execute(
                    "SELECT seq FROM finding ORDER BY info DESC, seq LIMIT max(0, ?)",
                    (self._depth + 1 - self._max_findings,),
                )
            ]
            cursor.executemany("DELETE FROM finding WHERE seq = ?", [(row,) for row in dropped])
        self._depth += 1
        self._count_dropped(dropped, why="the spool is full")
        self._changed.set()
        return seq

    def pending(self, *, after_seq: int, limit: int) -> tuple[Spooled, ...]:
        """Unacknowledged findings above `after_seq`, oldest first, at most `limit`. Raises StoreError.

        An entry that this version cannot read is dropped, logged and counted: it must not block those behind it.
        """
        rows = self._database.read(
            "SELECT seq, kind, body FROM finding WHERE seq > ? ORDER BY seq LIMIT ?", (after_seq, limit)
        )
        found: list[Spooled] = []
        unreadable: list[int] = []
        for seq, kind, body in rows:
            try:
                found.append(Spooled(seq=seq, finding=msgspec.json.decode(body, type=_KINDS[kind])))
            except (msgspec.MsgspecError, KeyError):
                unreadable.append(seq)
        if unreadable:
            with self._database.write() as cursor:
                cursor.executemany("DELETE FROM finding WHERE seq = ?", [(seq,) for seq in unreadable])
            self._count_dropped(unreadable, why="this version cannot read the entry")
        return tuple(found)

    def acknowledge(self, seq: int) -> None:
        """Forget everything up to and including `seq`. Raises StoreError."""
        ((highest,),) = self._database.read("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'finding'")
        if seq > highest:
            self._renumber(above=seq)
            return
        ((gone,),) = self._database.read("SELECT count(*) FROM finding WHERE seq <= ?", (seq,))
        if not gone:
            return
        with self._database.write() as cursor:
            cursor.execute("INSERT OR REPLACE INTO acknowledged SELECT seq, id FROM finding WHERE seq <= ?", (seq,))
            cursor.execute("DELETE FROM finding WHERE seq <= ?", (seq,))
            cursor.execute(
                "DELETE FROM acknowledged WHERE seq <="
                " (SELECT seq FROM acknowledged ORDER BY seq DESC LIMIT 1 OFFSET ?)",
                (self._max_acknowledged,),
            )
        self._depth -= gone

    async def wait(self, *, after_seq: int) -> None:
        """Return as soon as something is pending after `after_seq`. Raises StoreError."""
        while not self._database.read("SELECT 1 FROM finding WHERE seq > ? LIMIT 1", (after_seq,)):
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """Release the file; idempotent."""
        self._database.close()

    def _renumber(self, *, above: int) -> None:
        """Move everything behind `above`: the controller has seen numbers of this spool that the file has not.

        The file was put back from a copy. New findings under old numbers would be taken for repeats and lost.
        """
        _log.error("spool_went_back", path=str(self._database.path), stored_by_controller=above)
        with self._database.write() as cursor:
            cursor.execute("UPDATE finding SET seq = seq + ?", (above,))
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'finding'")
            cursor.execute(
                "INSERT INTO sqlite_sequence SELECT 'finding', max(?, coalesce(max(seq), 0)) FROM finding", (above,)
            )
        self._changed.set()

    def _count_dropped(self, dropped: list[int], *, why: str) -> None:
        if dropped:
            self._depth -= len(dropped)
            self.dropped_total += len(dropped)
            _log.error("findings_dropped", why=why, count=len(dropped), first_seq=dropped[0])


def _cleaned(finding: Finding) -> Finding:
    """Make free text safe: a log line in it may hold bytes that neither JSON nor the wire can carry."""
    why = clean(finding.why)
    if isinstance(finding, BurninEnded):
        culprits = tuple(replace(culprit, why=clean(culprit.why)) for culprit in finding.culprits)
        return replace(finding, why=why, culprits=culprits)
    return replace(finding, why=why)


def _is_info(finding: Finding) -> bool:
    return isinstance(finding, DeviceFault) and finding.severity is Severity.INFO


def _kind(finding: Finding) -> str:
    match finding:
        case BurninEnded():
            return "burnin_ended"
        case DeviceFault():
            return "device_fault"
        case _:
            assert_never(finding)
