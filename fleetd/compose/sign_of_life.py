"""The controller's sign of life: that its event loop turns, and that the judge gets on.

A controller that hangs takes no finding, and is better started anew. One that stands by lives: it has nothing to judge.
Who gives up on it is the service manager (`WATCHDOG=1` stays away) or Kubernetes (`/healthz` of the metrics' port).
"""

from collections.abc import Callable

import structlog

from fleetd.controller.turn import Turn
from fleetd.ports import Clock
from fleetd.system import Systemd

SIGNS = 3
"""In the time after which the service manager gives up on the process: two may come late."""
BEAT_S = 5.0
"""Between two signs at most."""
SILENT_S = 60.0
"""An event loop that has not turned for so long hangs, as in the service's `WatchdogSec=`."""
STUCK_S = 300.0
"""No batch takes so long: a database ends a statement after 30 s, and a ledger of its own refuses sooner."""

_log = structlog.get_logger(__name__)


class SignOfLife:
    """Gives signs until cancelled. `trouble` may be asked on any thread."""

    def __init__(self, systemd: Systemd, clock: Clock, *, stuck: Callable[[], str]) -> None:
        """`stuck`: why nothing gets on although the event loop turns; "": it does."""
        self._systemd = systemd
        self._clock = clock
        self._stuck = stuck
        self._beat_s = clock.elapsed_s()
        self._why = ""

    async def run(self) -> None:
        """Look, and tell the service manager if it wants to know; nothing is told while something is stuck."""
        watchdog_s = self._systemd.watchdog_s
        every_s = BEAT_S if watchdog_s is None else min(BEAT_S, watchdog_s / SIGNS)
        while True:
            before, self._why = self._why, self._stuck()
            if self._why and not before:
                _log.error("no sign of life from now on", why=self._why)
            self._beat_s = self._clock.elapsed_s()
            if watchdog_s is not None and not self._why:
                self._systemd.notify("WATCHDOG=1")
            await self._clock.sleep_s(every_s)

    def trouble(self) -> str:
        """Why this process had better be started anew; "": it lives."""
        silent_s = self._clock.elapsed_s() - self._beat_s
        return f"the event loop has not turned for {silent_s:.0f} s" if silent_s > SILENT_S else self._why


def judge_stuck(turn: Turn, clock: Clock) -> str:
    """Why the judge does not get on; "": it does, or this controller stands by."""
    controller = turn.controller
    since_s = None if controller is None else controller.judge.deciding_since_s
    if since_s is None or (took_s := clock.elapsed_s() - since_s) < STUCK_S:
        return ""
    return f"the judge has been at one batch for {took_s:.0f} s: its ledger does not answer"
