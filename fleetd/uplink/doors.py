"""How a transport calls the controller: never cut off half-way, and a bug in it is not taken for an answer."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fleetd.ports import PortError, Refused

T = TypeVar("T")


class DoorCalls:
    """Runs calls of the doors. A client that goes away does not cancel what it has set going."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()  # bounded by the streams that the server admits
        self.bug: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with the first exception of a door that its protocol does not name: the process has to end."""

    async def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for a call; when the waiting is cancelled the call runs on. Raises what the call raises."""
        task = asyncio.get_running_loop().create_task(call)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for the calls that are still running."""
        while self._running:
            await asyncio.wait(self._running)

    def report(self, error: BaseException) -> None:
        """Keep an exception of a door as the bug, unless the door's protocol names it."""
        if not isinstance(error, (PortError, Refused)) and not self.bug.done():
            self.bug.set_exception(error)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.report(error)
