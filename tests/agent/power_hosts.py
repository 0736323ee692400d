"""Hosts with a lease and a governor as simple as can be: it reads its limits, writes them late, and reads them back."""

import random
from dataclasses import dataclass, field

from fleetd.agent.power_lease import PowerCap, PowerLease
from fleetd.controller.power_config import PowerTree
from fleetd.core.power.books import HostPower
from fleetd.core.power.tree import Area
from fleetd.model.ids import GpuId, HostName
from fleetd.model.power import GpuPower
from fleetd.ports import Clock

BASE, GPUS, SAFE_CAP, FULL = 1000.0, 8, 400.0, 700.0
SAFE, MOST = BASE + GPUS * SAFE_CAP, BASE + GPUS * FULL


def declared(hosts: int, *, budget: float, ttl_s: float = 60.0, grace_s: float = 5.0, racks: int = 1) -> PowerTree:
    """Racks of alike hosts below one domain."""
    rack_watts = budget if racks == 1 else 0.55 * budget
    return PowerTree(
        areas=(
            Area(name="domain", budget_watts=budget),
            *(Area(name=f"r{n}", budget_watts=rack_watts, parent="domain") for n in range(racks)),
        ),
        hosts=tuple(
            HostPower(name=f"h{n}", area=f"r{n % racks}", safe_watts=SAFE, max_watts=MOST) for n in range(hosts)
        ),
        ttl_s=ttl_s,
        grace_s=grace_s,
    )


@dataclass
class PowerHost:
    """One host; `in_force` is what its GPUs are really held to, whatever anybody's books say."""

    name: HostName
    clock: Clock
    rng: random.Random
    write_s: float = 0.2
    """A write takes at most so long."""
    turn_s: float = 0.4
    allowed: str = "boost"
    wish: float = FULL
    epoch: int = 0
    in_force: float = SAFE_CAP
    dark: bool = False
    """Its driver tells no limit."""
    stuck: bool = False
    """Its GPUs take no limit."""
    mode: str = "safe"
    why: str = ""
    lease: PowerLease = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """An agent starts; the power guard has let the limits fall when the one before died."""
        self.epoch += 1
        self.in_force = SAFE_CAP
        self.lease = PowerLease(
            host=self.name,
            epoch=self.epoch,
            base_watts=BASE,
            safe_cap_watts=SAFE_CAP,
            allowed=self.allowed,
            clock=self.clock,
        )

    @property
    def watts(self) -> float:
        return BASE + GPUS * self.in_force

    def begin_turn(self) -> tuple[PowerCap, tuple[GpuPower, ...], float]:
        cap = self.lease.cap([self.wish] * GPUS)
        self.mode = "observe" if self.allowed == "observe" else "safe" if cap.gpu_watts is None else "boost"
        self.why = cap.why
        shown = tuple(self._gpu(n) for n in range(GPUS))
        want = SAFE_CAP if cap.gpu_watts is None else min(self.wish, max(cap.gpu_watts, SAFE_CAP))
        return cap, shown, want

    def end_turn(self, cap: PowerCap, shown: tuple[GpuPower, ...], want: float) -> None:
        if self.allowed != "observe" and not self.stuck:
            self.in_force = want
        self.lease.turned(cap, shown)

    def turn(self) -> None:
        """A turn that takes no time."""
        self.end_turn(*self.begin_turn())

    async def govern(self) -> None:
        """Turn until cancelled. A cancelled turn leaves a write undone."""
        while True:
            cap, shown, want = self.begin_turn()
            await self.clock.sleep_s(self.rng.uniform(0.0, self.write_s))
            self.end_turn(cap, shown, want)
            await self.clock.sleep_s(self.turn_s)

    def _gpu(self, n: int) -> GpuPower:
        return GpuPower(
            gpu=GpuId(f"G{n}"),
            mode=self.mode,
            why="",
            targets_watts={},
            set_watts={} if self.dark else {"limit": self.in_force},
            enforced_watts=None if self.dark else self.in_force,
            power_watts=None,
        )
