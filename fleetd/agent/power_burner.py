"""Burn-ins that may draw all that a host can, possibly in phase with others: they begin with a grant, or not at all."""

from pathlib import Path

from burnin.tests import TESTS
from fleetd.agent.power_lease import PowerLease
from fleetd.model.order import RunBurnin
from fleetd.ports import Burner, BurnerError, Clock

GRANT_LEVELS = frozenset({"qualify", "burnin", "soak", "idle"})
"""Levels that draw a rack's power whatever their tests are called."""
GRANT_TESTS = frozenset({"pulse"})
GRANT_WAIT_S = 300.0
"""Longer than a controller raises nobody after its start, and than any lease that has to lapse first."""


def needs_grant(level: str) -> bool:
    """Whether a level may draw all that the host can."""
    return level in GRANT_LEVELS or any(test.id in GRANT_TESTS and level in test.levels for test in TESTS.values())


class GrantedBurner:
    """A `Burner` that has the whole power of the host granted before it starts anything.

    A lease that lapses while the burn-in runs does not end it: the governor holds the host at its safe cap then.
    """

    def __init__(self, burner: Burner, lease: PowerLease, *, clock: Clock) -> None:
        self._burner, self._lease, self._clock = burner, lease, clock

    async def burn(self, order: RunBurnin, report: Path) -> None:
        """See `Burner`. Raises BurnerError, too, when there is no grant in time: nothing was started."""
        if not needs_grant(order.level):
            await self._burner.burn(order, report)
            return
        with self._lease.all_wanted():
            if why := await self._lease.wait_for_all(GRANT_WAIT_S):
                raise BurnerError(f"level {order.level} was not begun: {why}")
            late_s = self._clock.wall_s() - order.not_after_s
            if late_s > 0:
                raise BurnerError(f"level {order.level} was not begun: the order ran out while it waited for power")
            await self._burner.burn(order, report)
