"""The people of a world: operators at the desk, and the crew that repairs what was quarantined."""

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from fleetd.controller.desk import Desk
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName
from fleetd.model.order import FleetOrder, Notify, Quarantine
from fleetd.ports import Peer, Refused, StoreError, UplinkError
from fleetd.sim.gpu import Cure

if TYPE_CHECKING:
    from fleetd.world.world import World

T = TypeVar("T")

_ATTEMPTS = 40
_RETRY_S = 30.0


class Operator:
    """Somebody with the role of an operator. Tries again while the controller does not answer, then gives up."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self._peer = Peer(name=name, role="operator")

    async def quarantine(self, host: str, reason: str) -> str:
        """Put a hold on a host. Returns "" or why it was refused."""
        return await self._do(lambda desk: desk.quarantine(self._peer, HostName(host), reason))

    async def release(self, host: str, reason: str, *, override: bool = False) -> str:
        """Ask for a host back. Returns "" or why it was refused."""
        return await self._do(lambda desk: desk.release(self._peer, HostName(host), reason, override=override))

    async def rearm(self, reason: str) -> str:
        """Re-arm the quarantine budget. Returns "" or why it was refused."""
        return await self._do(lambda desk: desk.rearm_budget(self._peer, reason))

    async def look(self, host: str) -> Host | None:
        """Look at a host; None when nobody knows it or nobody answers."""
        found: list[Host] = []

        async def read(desk: Desk) -> None:
            found.append((await desk.host(HostName(host)))[0])

        await self._do(read)
        return found[0] if found else None

    async def _do(self, what: Callable[[Desk], Awaitable[object]]) -> str:
        for _ in range(_ATTEMPTS):
            try:
                await self._world.room.ask(what)
            except Refused as refused:
                return str(refused)
            except (UplinkError, StoreError):
                await self._world.clock.sleep_s(_RETRY_S)
            else:
                return ""
        return "no controller answers"


class Crew:
    """Repairs what was quarantined: swaps the part or reboots, waits for the proof, asks for the host back.

    It also re-arms a budget that has tripped, some time after it was paged.
    """

    def __init__(self, world: "World", *, repair_s: tuple[float, float] = (600.0, 3600.0)) -> None:
        """`repair_s`: how long somebody takes to come."""
        self._world = world
        self._repair_s = repair_s
        self._rng = random.Random(f"{world.settings.seed}/crew")  # noqa: S311 - a simulation
        self._operator = Operator(world, "crew")
        self._busy: set[HostName] = set()
        self._rearming = False

    def hear(self, order: FleetOrder) -> None:
        """Hear of a fleet order that was carried out."""
        if isinstance(order, Quarantine) and order.host not in self._busy:
            self._busy.add(order.host)
            self._world.spawn(self._repair(order.host))
        elif isinstance(order, Notify) and "budget" in order.why and not self._rearming:
            self._rearming = True
            self._world.spawn(self._rearm())

    async def _repair(self, host: HostName) -> None:
        await self._world.clock.sleep_s(self._rng.uniform(*self._repair_s))
        machine = self._world.machine(host)
        machine.switch_off()
        for part in machine.parts:
            part.cure(Cure)
        await self._world.clock.sleep_s(self._world.settings.boot_seconds)
        machine.switch_on()
        for _ in range(_ATTEMPTS):
            await self._world.clock.sleep_s(_RETRY_S + 10 * self._rng.random())
            seen = await self._operator.look(host)
            if seen is None or seen.state not in (Lifecycle.QUARANTINED, Lifecycle.REPAIRING):
                break
            if seen.proof is None and any(hold.proof_level is not None for hold in seen.holds):
                continue
            if not await self._operator.release(host, "repaired and proven", override=seen.proof is None):
                break
        self._busy.discard(host)

    async def _rearm(self) -> None:
        await self._world.clock.sleep_s(self._rng.uniform(*self._repair_s))
        self._rearming = False
        await self._operator.rearm("looked at it")
