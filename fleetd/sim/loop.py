"""An event loop on virtual time: while somebody can run, time stands still; else it jumps to the next timer.

Everything of asyncio works on it that waits for tasks, futures and timers. It has no file descriptors, hence no
sockets, pipes, processes and threads: what needs those stands behind a port and is simulated.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
_TASKS_SHOWN = 10


class DeadlockError(RuntimeError):
    """Nobody can run and no timer is set: in the real world this program would hang for ever."""


class _NextTimer:
    """In the selector's place: asked to wait, it moves the loop's clock instead."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[tuple[Any, int]]:
        """Wait in virtual time; None means that nothing is scheduled."""
        if timeout is None:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self._loop))
            shown = ", ".join(waiting[:_TASKS_SHOWN])
            raise DeadlockError(
                f"nothing is scheduled at {self._loop.time():.3f} s; {len(waiting)} tasks wait for ever: {shown}"
            )
        if timeout > 0.0:
            self._loop.advance(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop whose `time()` starts at 0 and is nobody's but its own."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = _NextTimer(self)
        # Of the base class: timers this near fire in one turn. It must be more than the rounding of `time()`, or a
        # timer that is due would never fire; a microsecond is enough for thirty years.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass; only the selector's stand-in calls this."""
        self._now_s += seconds

    def _process_events(self, event_list: list[Any]) -> None:
        """No file descriptor, no event."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a system call who would have to be woken."""


def run(main: Coroutine[Any, Any, _T], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] = VirtualLoop) -> _T:
    """Run a coroutine on a virtual loop of its own. Raises DeadlockError when it can never end."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main)
