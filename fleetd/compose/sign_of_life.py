"""Tells the service manager that the event loop turns: one that hangs takes no finding, and is better started anew."""

import asyncio

from fleetd.ports import Clock
from fleetd.system import Systemd

SIGNS = 3
"""In the time after which the service manager gives up on the process: two may come late."""


async def sign_of_life(systemd: Systemd, clock: Clock) -> None:
    """Give signs until cancelled; none where nobody waits for any."""
    while systemd.watchdog_s is not None:
        systemd.notify("WATCHDOG=1")
        await clock.sleep_s(systemd.watchdog_s / SIGNS)
    await asyncio.Event().wait()  # like the other loops of a daemon it never ends by itself
