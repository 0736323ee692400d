"""A simulated kernel's messages: the ring of one boot, and the agent's place in it."""

import asyncio
from collections.abc import AsyncIterator

from fleetd.model.ids import BootId
from fleetd.model.logline import Cursor, LogHealth, LogLine
from fleetd.sim.life import Life


class KernelRing:
    """What the kernel has said in this boot, and how far the host's agent has dealt with it; outlives the agent."""

    def __init__(self, boot_id: BootId) -> None:
        """Begin a boot with an empty ring."""
        self.boot_id = boot_id
        self.records: list[str] = []  # bounded by the timetable
        self.dealt_with = 0
        self.grown = asyncio.Event()

    def say(self, text: str) -> None:
        """Log one line as the kernel does: with its level, its number and the time since the boot."""
        seq = len(self.records) + 1
        self.records.append(f"4,{seq},{seq * 1_000_000},-;{text}")
        self.grown.set()


class SimKernelLog:
    """The `KernelLog` port of one agent process on a ring."""

    def __init__(self, ring: KernelRing, life: Life) -> None:
        """Follow `ring` for the process `life`."""
        self._ring = ring
        self._life = life

    async def lines(self) -> AsyncIterator[LogLine]:
        """Yield what was not dealt with, then what comes."""
        read = self._ring.dealt_with
        while True:
            while read < len(self._ring.records):
                self._life.check()
                read += 1
                cursor = Cursor(boot_id=self._ring.boot_id, seq=read)
                yield LogLine(text=self._ring.records[read - 1], cursor=cursor)
            self._ring.grown.clear()
            await self._ring.grown.wait()

    def commit(self, cursor: Cursor) -> None:
        """Keep that everything up to here has been dealt with."""
        self._life.check()
        self._ring.dealt_with = max(self._ring.dealt_with, cursor.seq or 0)

    @property
    def health(self) -> LogHealth:
        """A simulated ring is always readable."""
        return LogHealth(alive_s=None, trouble=None, errors_total=0, lost_total=0)
