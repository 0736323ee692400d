"""Waits for what a real service does, by looking."""

import asyncio
from collections.abc import Callable

from fleetd.system import RealClock


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 240.0) -> None:
    """Return when something holds; an AssertionError when it does not in time."""

    async def poll() -> None:
        clock = RealClock()
        deadline_s = clock.elapsed_s() + seconds
        while not await asyncio.to_thread(holds):
            assert clock.elapsed_s() < deadline_s, f"not within {seconds:.0f} s: {what}"
            await clock.sleep_s(0.1)

    asyncio.run(poll())
