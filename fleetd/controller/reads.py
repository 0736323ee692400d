"""Questions, a few at once: threads are few, and whoever asks is not to take them from what has to be done."""

import asyncio
from collections.abc import Callable
from typing import Any

from fleetd.ports import RunBlocking

READS_AT_ONCE = 2
"""Of the ledger, whoever asks: more would wait for one disk."""


class FewAtOnce:
    """A `RunBlocking` that begins only so many at once; others wait for their turn."""

    def __init__(self, run_blocking: RunBlocking, *, most: int) -> None:
        """Run by `run_blocking`, `most` at once."""
        self._run_blocking = run_blocking
        self._free = asyncio.Semaphore(most)
        self._running: set[asyncio.Future[object]] = set()  # at most `most`

    async def __call__(self, function: Callable[[], object]) -> object:
        """Run it. A cancelled caller stops waiting; what has begun counts until it has ended."""
        await self._free.acquire()
        running: asyncio.Future[object] = asyncio.ensure_future(self._run(function))
        self._running.add(running)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    async def _run(self, function: Callable[[], object]) -> object:
        return await self._run_blocking(function)

    def _ended(self, running: "asyncio.Future[Any]") -> None:
        self._running.discard(running)
        self._free.release()
        if not running.cancelled():
            running.exception()  # of a caller that went away: nobody is left to be told
