"""The kernel's log, followed, with a cursor that survives restarts.

A follower that has silently gone blind is worse than none. So it counts what the kernel dropped before it was read
(EPIPE and holes in the sequence), and keeps the time of its last sign of life: `LogHealth.alive_s` moves whenever the
source was asked and answered, also when there was nothing to read.
"""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, fields
from pathlib import Path

import structlog

from fleetd.devices.kernel_sources import Source
from fleetd.model.logline import Cursor, LogHealth, LogLine
from fleetd.ports import Clock, StoreError

_log = structlog.get_logger(__name__)

SCHEMA = "fleetd.kernel_log.cursor/1"
_CURSOR_MAX = 4096
_FIELDS = frozenset(field.name for field in fields(Cursor))


class CursorFile:
    """The cursor on disk. A file that is absent or unreadable counts as none: then everything is read again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Cursor | None:
        """The cursor, or None."""
        try:
            with self._path.open("rb") as file:
                body = json.loads(file.read(_CURSOR_MAX))
        except (OSError, ValueError):
            return None
        if not isinstance(body, dict) or body.pop("schema", None) != SCHEMA or not body.keys() <= _FIELDS:
            return None
        numbers = [body.get(name) for name in ("seq", "inode", "offset")]
        sound = all(n is None or (type(n) is int and n >= 0) for n in numbers)
        named = isinstance(body.get("boot_id"), str) and isinstance(body.get("journal"), str | None)
        return Cursor(**body) if sound and named else None

    def save(self, cursor: Cursor) -> None:
        """Write it: the old or the new one is there whatever happens. Raises StoreError."""
        temporary = self._path.with_name(self._path.name + ".new")
        try:
            # Not synced: after a power cut there is another boot, whose log is read from its beginning anyway.
            temporary.write_text(json.dumps({"schema": SCHEMA, **asdict(cursor)}), encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            raise StoreError(f"cannot write the cursor {self._path}: {error.strerror}") from error


class FollowedLog:
    """The `KernelLog` port: opens a source, reads it, opens it again after an error, and says how it is doing.

    Nothing is queued here: a line is read when the one before has been taken, the kernel's ring is the queue, and what
    it drops is counted.
    """

    POLL_S = 0.1
    """How long to wait when there is nothing: half of the time in which a line should become a finding."""
    RETRY_MAX_S = 30.0

    def __init__(self, opener: Callable[[Cursor | None], Source], *, cursor: CursorFile | None, clock: Clock) -> None:
        """Take what opens the source after a cursor, where the cursor is kept (None: nowhere), and the clock."""
        self._opener = opener
        self._cursor_file = cursor
        self._clock = clock
        self._last: Cursor | None = None
        self._source: Source | None = None
        self._lost_before = 0
        self._errors_total = 0
        self._trouble: str | None = None
        self._alive_s: float | None = None

    @property
    def health(self) -> LogHealth:
        """Whether the log is being read, and what of it was not."""
        return LogHealth(
            alive_s=self._alive_s,
            trouble=self._trouble,
            errors_total=self._errors_total,
            lost_total=self._lost_before + (self._source.lost_total if self._source is not None else 0),
        )

    async def lines(self) -> AsyncIterator[LogLine]:
        """Yield lines for ever, oldest first; cancel to stop."""
        if self._cursor_file is not None:
            self._last = self._cursor_file.load()
        failures = 0
        try:
            while True:
                try:
                    if self._source is None:
                        self._source = self._opener(self._last)
                    lines = self._source.read()
                except OSError as error:
                    failures += 1
                    self._failed(error)
                    await self._clock.sleep_s(min(self.POLL_S * 2.0 ** min(failures, 16), self.RETRY_MAX_S))
                    continue
                if failures:
                    _log.warning("kernel_log_read_again", after_failures=failures)
                failures, self._trouble = 0, None
                self._alive_s = self._clock.elapsed_s()
                for line in lines:
                    self._last = line.cursor
                    yield line
                if not lines:
                    await self._clock.sleep_s(self.POLL_S)
        finally:
            self._drop()

    def commit(self, cursor: Cursor) -> None:
        """Remember that everything up to here has been dealt with. Raises StoreError."""
        if self._cursor_file is not None:
            self._cursor_file.save(cursor)

    def _failed(self, error: OSError) -> None:
        self._errors_total += 1
        trouble = f"the kernel log cannot be read: {error.strerror or error}"
        if trouble != self._trouble:  # a line for each try would bury everything else
            _log.error("kernel_log_trouble", why=trouble, see="kernel_log.source, and in a container its /dev/kmsg")
        self._trouble = trouble
        self._drop()

    def _drop(self) -> None:
        if self._source is not None:
            self._lost_before += self._source.lost_total
            self._source.close()
            self._source = None
