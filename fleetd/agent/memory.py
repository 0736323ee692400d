"""The agent's own memory, watched by itself: better a clean restart, which loses nothing, than the kernel's choice.

What is watched is the resident memory of the agent and of its vendor helpers, burn-ins not: pages that several of them
share count for each, so the number is above what the host would get back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from fleetd.ports import Clock

_log = structlog.get_logger(__name__)

INTERVAL_S = 30.0
TIMES = 3
"""Looks in a row above the limit that it takes: a page of metrics or a burst of findings is no leak."""
STUCK = "stuck_helper"
"""Helpers that are abandoned inside a driver: shown and not held against the agent. Its restart would not end them; the
next agent would not know which GPUs to leave alone, and get as many stuck again."""
YOUNG_S = 600.0
"""An agent that is so young has not leaked: a restart would not help, and come again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """How much memory the agent allows itself."""

    limit_bytes: int = 256 << 20
    """Resident bytes, agent and helpers together, above which it restarts itself; about three times the usual. Keep it
    below the service's `MemoryMax`, so that this comes first."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.limit_bytes < 64 << 20:
            raise ValueError(f"limit_bytes: {self.limit_bytes} is below 64 MiB, less than an agent needs")


class MemoryWatch:
    """Looks until cancelled. Its attributes may be read from another thread."""

    def __init__(
        self,
        *,
        config: MemoryConfig,
        clock: Clock,
        read: Callable[[], Mapping[str, float]],
        restart: Callable[[], None],
    ) -> None:
        """Look at nothing yet.

        Args:
            config: the limit.
            clock: for the intervals.
            read: resident bytes by process (`agent`, `helper`, and `STUCK` when there are any).
            restart: ends the agent in good order; the service manager starts it again.
        """
        self._config = config
        self._clock = clock
        self._read = read
        self._restart = restart
        self._began_s = clock.elapsed_s()
        self._above = 0
        self.resident_bytes: Mapping[str, float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await self._clock.sleep_s(INTERVAL_S)

    def look(self) -> None:
        """One look."""
        self.resident_bytes = self._read()
        held = sum(value for process, value in self.resident_bytes.items() if process != STUCK)
        self._above = self._above + 1 if held > self._config.limit_bytes else 0
        if self._above < TIMES:
            return
        age_s = self._clock.elapsed_s() - self._began_s
        if age_s < YOUNG_S:
            if self._above == TIMES:
                _log.error("memory_above_limit", resident_bytes=held, why="so soon after the start: raise limit_bytes")
            return
        why = f"above {self._config.limit_bytes} bytes for {TIMES} looks"
        _log.error("restarting_for_memory", resident_bytes=held, age_s=round(age_s), why=why)
        self._above = 0
        self._restart()
