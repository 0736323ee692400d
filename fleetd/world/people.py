"""The people of a world: operators at the desk, and the crew that repairs what was quarantined."""

import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from fleetd.controller.desk import Desk
from fleetd.core.invariants import FLEETD
from fleetd.model.fleet import FleetRecord, IncidentKind
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName
from fleetd.ports import Peer, Refused, StoreError, UplinkError
from fleetd.sim.clock import SimClock
from fleetd.world.machine import Machine
from fleetd.world.room import ControlRoom
from fleetd.world.settings import Settings

_ATTEMPTS = 40
_RETRY_S = 30.0
_SHIFTS = 20
"""Of `_ATTEMPTS` each."""
_NOBODY = "no controller answers"
_AT_REST = frozenset({Lifecycle.HEALTHY, Lifecycle.PROBATION, Lifecycle.RETIRED, Lifecycle.NEW})


class Site(Protocol):
    """What people need of a world."""

    settings: Settings
    clock: SimClock
    room: ControlRoom

    def machine(self, name: str) -> Machine:
        """One host. Raises KeyError."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on beside everything else."""
        ...


class Operator:
    """Somebody with the role of an operator. Tries again while the controller does not answer, then gives up.

    Every request returns "", or why it was refused.
    """

    def __init__(self, world: Site, name: str) -> None:
        self._world = world
        self._peer = Peer(name=name, role="operator")

    async def quarantine(self, host: str, reason: str, *, for_s: float | None = None) -> str:
        """Put a hold on a host, for good or for some seconds."""
        until_s = None if for_s is None else self._world.room.clock.wall_s() + for_s
        return await self._do(lambda desk: desk.quarantine(self._peer, HostName(host), reason, expires_at_s=until_s))

    async def release(self, host: str, reason: str, *, override: bool = False) -> str:
        """Ask for a host back."""
        return await self._do(lambda desk: desk.release(self._peer, HostName(host), reason, override=override))

    async def burnin(self, host: str, reason: str) -> str:
        """Have a host prove itself."""
        return await self._do(lambda desk: desk.burnin(self._peer, HostName(host), reason, level=None))

    async def repair(self, host: str, reason: str) -> str:
        """Begin to work on a host."""
        return await self._do(lambda desk: desk.repair(self._peer, HostName(host), reason))

    async def retire(self, host: str, reason: str) -> str:
        """Take a host out of the fleet."""
        return await self._do(lambda desk: desk.retire(self._peer, HostName(host), reason))

    async def rearm(self, reason: str) -> str:
        """Re-arm the quarantine budgets."""
        return await self._do(lambda desk: desk.rearm_budget(self._peer, reason))

    async def stop_automation(self, reason: str) -> str:
        """Use the kill switch."""
        return await self._do(lambda desk: desk.stop_automation(self._peer, reason))

    async def stop_automation_for(self, seconds: float, reason: str) -> str:
        """Use the kill switch and take it back: one person, so that the second never overtakes the first.

        Nobody goes home with the fleet standing still: taking it back is tried for hours.
        """
        said = await self.stop_automation(reason)
        await self._world.clock.sleep_s(seconds)
        for _ in range(_SHIFTS):
            said = said or await self.resume_automation(f"{reason}: over")
            if said != _NOBODY:
                break
            said = ""
        return said

    async def resume_automation(self, reason: str) -> str:
        """Take the kill switch back."""
        return await self._do(lambda desk: desk.resume_automation(self._peer, reason))

    async def close_incident(self, incident: str, reason: str, *, acquit: bool) -> str:
        """Close an incident."""
        return await self._do(lambda desk: desk.close_incident(self._peer, incident, reason, acquit=acquit))

    async def close_incidents(self, reason: str, *, acquit: bool) -> str:
        """Close every storm that is open."""
        record, _ = await self.look()
        storms = [incident.id for incident in record.incidents if incident.kind is IncidentKind.STORM]
        return "; ".join([await self.close_incident(storm, reason, acquit=acquit) for storm in storms])

    async def look(self) -> tuple[FleetRecord, tuple[Host, ...]]:
        """Look at the fleet; nothing is there to see when nobody answers."""
        found: list[tuple[FleetRecord, tuple[Host, ...]]] = [(FleetRecord(), ())]

        async def read(desk: Desk) -> None:
            found.append((await desk.fleet(), await desk.hosts()))

        await self._do(read)
        return found[-1]

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
        return _NOBODY


class Crew:
    """Makes its rounds: repairs what was quarantined, waits for the proof and asks for the host back.

    It also looks at hosts that wait for a human, re-arms budgets that have tripped, and closes storms.
    """

    def __init__(self, world: Site, *, round_s: tuple[float, float] = (600.0, 2400.0)) -> None:
        """`round_s`: how long from one round to the next, and how long a repair takes."""
        self._world = world
        self._round_s = round_s
        self._rng = random.Random(f"{world.settings.seed}/crew")  # noqa: S311 - a simulation
        self._operator = Operator(world, "crew")
        self._busy: set[HostName] = set()

    async def work(self) -> None:
        """Make rounds for ever."""
        while True:
            await self._world.clock.sleep_s(self._rng.uniform(*self._round_s))
            record, hosts = await self._operator.look()
            if record.tripped:
                await self._operator.rearm("looked at it")
            await self._operator.close_incidents("looked at it", acquit=self._rng.choice([False, True]))
            for host in hosts:
                if host.name in self._busy:
                    continue
                if host.charges or any(hold.owner == FLEETD for hold in host.holds):
                    self._busy.add(host.name)
                    self._world.spawn(self._repair(host.name))
                elif not host.held and host.state not in _AT_REST and host.pending is None and host.due is None:
                    await self._operator.burnin(host.name, "nobody else looks at it")

    async def _repair(self, name: HostName) -> None:
        machine = self._world.machine(name)
        machine.switch_off()
        machine.heal()
        await self._world.clock.sleep_s(self._rng.uniform(*self._round_s))
        machine.switch_on()
        for attempt in range(_ATTEMPTS):
            await self._world.clock.sleep_s(10 * _RETRY_S)
            _, hosts = await self._operator.look()
            host = next((host for host in hosts if host.name == name), None)
            if host is None or not (host.held or host.charges):
                break
            ours = [*(h for h in host.holds if h.owner == FLEETD), *(charge.hold for charge in host.charges)]
            by_hand = any(hold.proof_level is None for hold in ours)
            why = await self._operator.release(name, "repaired", override=by_hand)
            if why and host.pending is None and host.due is None and attempt:
                await self._operator.burnin(name, f"repaired, to be proven: {why}")
        self._busy.discard(name)
