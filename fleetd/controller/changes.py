"""Which hosts changed lately: a bounded memory that any number of readers follow, each at its own pace.

No reader has a queue of its own. One that was too slow finds that its position is not remembered any more and looks at
everything anew: however many read, and however slowly, this costs the same.
"""

import asyncio
from collections import deque

from fleetd.model.ids import HostName
from fleetd.ports.view import Changes

KEPT = 8192
"""Changes remembered, the newest. An agent that comes or goes is one, too: so many hosts may return at once."""


class ChangeLog:
    """Positions are `EPOCH.NUMBER`; the epoch tells the controllers apart that a reader may have been at."""

    def __init__(self, *, epoch: str) -> None:
        self._epoch = epoch
        self._number = 0
        self._kept: deque[HostName | None] = deque(maxlen=KEPT)  # None: the fleet's record
        self._next = asyncio.Event()

    @property
    def position(self) -> str:
        """The present position."""
        return f"{self._epoch}.{self._number}"

    def note(self, host: HostName | None) -> None:
        """A host has changed; None: the fleet's record has."""
        self._number += 1
        self._kept.append(host)
        self._next.set()
        self._next = asyncio.Event()

    def since(self, position: str) -> Changes:
        """What changed since a position."""
        epoch, _, number = position.rpartition(".")
        behind = self._number - int(number) if number.isdecimal() and len(number) < 20 else -1  # noqa: PLR2004
        if epoch != self._epoch or not 0 <= behind <= len(self._kept):
            return Changes(position=self.position, fleet=True, everything=True)
        newest = [self._kept[-1 - back] for back in range(behind)]
        return Changes(
            position=self.position,
            hosts=tuple(sorted({host for host in newest if host is not None})),
            fleet=None in newest,
        )

    async def changed(self, position: str) -> None:
        """Return as soon as the present position is another one."""
        while position == self.position:
            await self._next.wait()
