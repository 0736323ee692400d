"""What a controller is told about power budgets; apart, since the configuration's readers need nothing else of it."""

from dataclasses import dataclass
from pathlib import Path

from fleetd.core.power.books import HostPower
from fleetd.core.power.lease import LEASE_MAX_S
from fleetd.core.power.tree import Area

TTL_MAX_S, GRACE_MAX_S = LEASE_MAX_S, 30.0
"""Of any lease. A controller that starts waits this long before it raises anybody: it cannot know what the lease's life
was in the file that an earlier one had read."""
TTL_MIN_S = 6.0
"""A question comes every third of a lease's life, over a line that may need seconds to be made anew."""
GRACE_MIN_S = 5.0
"""The slowest fall of a host that is well: its agent's loop hangs right after it looked at the lease, renews the power
guard's for five turns more (2.5 s), and is then starved of its processor, for which the guard waits 2.05 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetConfig:
    """The controller's part in power."""

    tree: Path | None = None
    """File of `kind: PowerTree`; null: no budgets are shared out. Read at the start only: a smaller budget is safe once
    every lease under the larger one has lapsed, which is what a start waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTree:
    """A declared tree, as it was read and found safe."""

    areas: tuple[Area, ...]
    hosts: tuple[HostPower, ...]
    ttl_s: float
    grace_s: float
