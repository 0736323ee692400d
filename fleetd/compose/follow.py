"""`fleetd faults follow`: a kernel log, judged while it grows, with a heartbeat that shows that it is still read."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from fleetd.core.faults.live import LiveScan
from fleetd.core.faults.observation import Finding
from fleetd.model.logline import Cursor
from fleetd.ports import Clock, KernelLog, PortError

COMMIT_LINES = 1000
"""Lines without a finding after which the cursor is written: so many may be read twice, none is missed."""

FIRST_BEAT_S = 1.0
"""The first heartbeat comes early: somebody who may not read the log should not wait to be told."""


class Blind(PortError):  # noqa: N818 - it says what is the matter
    """The log could not be read from the start; why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """How the follower is doing."""

    alive_age_s: float | None
    """Seconds since the source last answered, also with nothing new; None when it never has."""
    lines_total: int
    lost_total: int
    """Records that the kernel dropped before they were read."""
    trouble: str | None
    """Why the log cannot be read just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A finding, and where in the log it was seen."""

    finding: Finding
    boot_id: str
    seq: int | None


class Follower:
    """Follows one log until it is stopped."""

    def __init__(self, log: KernelLog, live: LiveScan, clock: Clock, tell: Callable[[Told | Heartbeat], None]) -> None:
        """Take the log, what judges it, the clock, and whom to tell."""
        self._log = log
        self._live = live
        self._clock = clock
        self._tell = tell
        self._lines_total = 0
        self._uncommitted: Cursor | None = None

    async def run(self, stop: asyncio.Event, *, heartbeat_s: float) -> None:
        """Follow until `stop` is set. Raises Blind, and StoreError when the cursor cannot be kept."""
        tasks = [
            asyncio.create_task(self._follow()),
            asyncio.create_task(self._beat(heartbeat_s)),
            asyncio.create_task(stop.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._uncommitted is not None:
                self._log.commit(self._uncommitted)

    async def _follow(self) -> None:
        since_commit = 0
        async for line in self._log.lines():
            self._lines_total += 1
            since_commit += 1
            findings = self._live.read(line.text, now_s=self._clock.elapsed_s())
            for finding in findings:
                self._tell(Told(finding=finding, boot_id=line.cursor.boot_id, seq=line.cursor.seq))
            # Told first, committed after: a crash in between tells a finding twice, never not at all.
            self._uncommitted = line.cursor
            if findings or since_commit >= COMMIT_LINES:
                self._log.commit(line.cursor)
                self._uncommitted, since_commit = None, 0

    async def _beat(self, heartbeat_s: float) -> None:
        await self._clock.sleep_s(min(heartbeat_s, FIRST_BEAT_S))
        while True:
            health = self._log.health
            if health.alive_s is None and health.trouble is not None:
                raise Blind(health.trouble)
            self._tell(
                Heartbeat(
                    alive_age_s=None if health.alive_s is None else self._clock.elapsed_s() - health.alive_s,
                    lines_total=self._lines_total,
                    lost_total=health.lost_total,
                    trouble=health.trouble,
                )
            )
            await self._clock.sleep_s(heartbeat_s)
