"""Two agents, a controller and real gRPC between them: a raise waits for the decrease that pays for it.

The controller's clock is wound on after its start, which spares the test the time in which it raises nobody: its clock
and those of the hosts are never compared.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fleetd.controller.controller import Controller
from fleetd.loopback import free_ports
from fleetd.model.host import POWER_LEASES, Hello
from fleetd.model.ids import BootId, HostName
from fleetd.model.order import RunBurnin
from fleetd.system import RealClock
from fleetd.uplink.client import GrpcUplink
from fleetd.uplink.config import DeskConfig, ServerConfig, UplinkConfig
from fleetd.uplink.desk import DeskClient
from fleetd.uplink.server import Server, serve
from fleetd.uplink.spool import SqliteSpool
from tests.agent.power_hosts import MOST, SAFE, SAFE_CAP, PowerHost, declared
from tests.e2e.power_controller import made

BUDGET = SAFE + MOST
"""Room for one of the two at its most."""
TTL_S = 6.0


class Hall:
    """The controller, which may be killed, and two hosts whose limits are watched all the time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, RealClock()
        rng = random.Random(1)  # noqa: S311 - how long a write takes
        self.hosts = [PowerHost(HostName(f"h{n}"), self.clock, rng, write_s=0.02, turn_s=0.05) for n in range(2)]
        self.hosts[0].wish = self.hosts[1].wish = SAFE_CAP
        self.worst = 0.0
        self.server: Server | None = None
        (self.port,) = free_ports(1)

    @asynccontextmanager
    async def controller(self, *, settled: bool = True) -> AsyncIterator[Controller]:
        controller = made(self.folder, declared(2, budget=BUDGET, ttl_s=TTL_S, grace_s=5.0), settled=settled)
        task = asyncio.create_task(controller.run())
        config = ServerConfig(listen=f"127.0.0.1:{self.port}", insecure=True, drain_retry_after_seconds=0.05)
        server = await serve(config, agents=controller.intake, desk=controller.desk)
        try:
            yield controller
        finally:
            await server.stop(grace_s=0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def desk(self) -> DeskClient:
        return DeskClient(DeskConfig(address=f"127.0.0.1:{self.port}", insecure=True))

    @asynccontextmanager
    async def agents(self) -> AsyncIterator[None]:
        spools = [SqliteSpool(self.folder / f"{host.name}.db", rng=random.Random(1)) for host in self.hosts]  # noqa: S311
        tasks = [asyncio.create_task(host.govern()) for host in self.hosts]
        tasks += [asyncio.create_task(self._uplink(h, s)) for h, s in zip(self.hosts, spools, strict=True)]
        tasks.append(asyncio.create_task(self._audit()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            for spool in spools:
                spool.close()
            assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends

    async def _uplink(self, host: PowerHost, spool: SqliteSpool) -> None:
        hello = Hello(
            host=host.name,
            boot_id=BootId(f"boot-{host.name}"),
            agent_version="0",
            capabilities=(POWER_LEASES,),
            inventory=(),
        )

        async def accept(_order: RunBurnin) -> str:
            return "not here"

        uplink = GrpcUplink(
            UplinkConfig(
                address=f"127.0.0.1:{self.port}", insecure=True, retry_first_seconds=0.05, retry_max_seconds=0.1
            ),
            clock=self.clock,
            rng=random.Random(2),  # noqa: S311 - jitter
        )
        await uplink.run(
            hello=lambda: hello,
            spool=spool,
            telemetry=tuple,
            accept=accept,
            recall=lambda _: None,
            power=host.lease,
        )

    async def _audit(self) -> None:
        while True:
            drawn = sum(host.watts for host in self.hosts)
            self.worst = max(self.worst, drawn)
            assert drawn <= BUDGET
            await asyncio.sleep(0.005)

    async def until(self, condition: Callable[[], bool], patience_s: float = 120.0) -> None:
        async with asyncio.timeout(patience_s):
            while not condition():  # noqa: ASYNC110 - what is looked at has no event
                await asyncio.sleep(0.01)


def test_a_raise_waits_for_the_confirmed_decrease(tmp_path: Path) -> None:
    async def story() -> None:
        hall = Hall(tmp_path)
        first, second = hall.hosts
        async with hall.controller(), hall.agents(), hall.desk() as desk:
            first.wish = 700.0
            await hall.until(lambda: first.in_force == 699.0)
            second.wish = 700.0
            await hall.until(lambda: first.in_force < 699.0 and second.in_force > SAFE_CAP)
            await hall.until(lambda: first.in_force == second.in_force)
            use = await desk.power()
            assert [h.uncapped for h in use.hosts] == ["", ""]
            assert all(a.reserved_watts <= BUDGET for a in use.areas)
            first.wish = SAFE_CAP
            await hall.until(lambda: second.in_force == 699.0)
        assert hall.worst > 0.95 * BUDGET, "the budget is used"

    asyncio.run(story())


def test_a_new_controller_renews_and_raises_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        hall = Hall(tmp_path)
        first, second = hall.hosts
        async with hall.controller():
            agents = hall.agents()
            await agents.__aenter__()
            first.wish = 700.0
            await hall.until(lambda: first.in_force == 699.0)
        async with hall.controller(settled=False) as controller:
            answered, lapses = first.lease.answered_total, first.lease.lapses_total
            second.wish, first.wish = 700.0, SAFE_CAP
            # Longer than a lease: what is renewed holds, what is free is given to nobody.
            await hall.until(lambda: first.lease.answered_total >= answered + 4)
            assert first.lease.lapses_total == lapses
            assert second.in_force == SAFE_CAP
            assert "just started" in second.lease.status().why
            assert controller.power.short_total > 0
            await agents.__aexit__(None, None, None)

    asyncio.run(story())


def test_without_a_controller_the_lease_lapses_and_the_gpus_fall(tmp_path: Path) -> None:
    async def story() -> None:
        hall = Hall(tmp_path)
        host = hall.hosts[0]
        host.wish = 700.0
        async with hall.controller():
            agents = hall.agents()
            await agents.__aenter__()
            await hall.until(lambda: host.lease.status().left_s > 0)
            await hall.until(lambda: host.in_force > SAFE_CAP)
        await hall.until(lambda: host.in_force == SAFE_CAP)
        assert "no lease of the power budget" in host.why
        assert host.lease.lapses_total == 1
        await agents.__aexit__(None, None, None)

    asyncio.run(story())
