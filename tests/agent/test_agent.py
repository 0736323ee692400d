"""The agent as a whole: READY first, the uplink after discovery, and an end that waits for nobody."""

import asyncio
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetd.agent.agent import Agent, SpoolGauges
from fleetd.agent.chores import Chores, ChoresConfig
from fleetd.agent.sampler import Sampler, SamplerConfig
from fleetd.model.host import POWER_LEASES, Place
from fleetd.ports import DeviceError, PowerLine
from tests.agent.fakes_agent import (
    BOOT,
    HOST,
    FakeBurner,
    FakeClock,
    FakeDevices,
    FakeOrders,
    FakeSpool,
    FakeUplink,
    order,
    report,
)
from tests.agent.power_hosts import PowerHost

ALL = {0, 1, 2, 3}


class Bench:
    def __init__(
        self,
        folder: Path,
        script: Callable[[float], set[int] | DeviceError] = lambda _: ALL,
        power: PowerLine | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.devices = FakeDevices(self.clock, lambda now_s: script(now_s - 1000.0))
        self.spool, self.orders, self.uplink = FakeSpool(), FakeOrders(), FakeUplink()
        self.burner = FakeBurner(lambda _: report())
        self.said: list[str] = []
        self.stop = asyncio.Event()
        sampler = Sampler(
            host=HOST, boot_id=BOOT, devices=self.devices, spool=self.spool, clock=self.clock, config=SamplerConfig()
        )
        chores = Chores(
            host=HOST,
            boot_id=BOOT,
            orders=self.orders,
            burner=self.burner,
            spool=self.spool,
            clock=self.clock,
            reports=folder,
            config=ChoresConfig(),
        )
        self.agent = Agent(
            host=HOST,
            boot_id=BOOT,
            version="0.1.0",
            sampler=sampler,
            chores=chores,
            uplink=self.uplink,
            devices=self.devices,
            spool=self.spool,
            spool_gauges=SpoolGauges(pending=lambda: len(self.spool.findings), dropped_total=lambda: 0),
            clock=self.clock,
            notify=self.said.append,
            watchdog_s=10.0,
            power=power,
        )


def test_it_runs_an_order_from_the_uplink_and_stops_when_told(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        life = asyncio.create_task(bench.agent.run(bench.stop))
        await bench.uplink.said_hello.wait()
        (hello,) = bench.uplink.hellos
        assert (hello.host, hello.boot_id, len(hello.inventory)) == (HOST, BOOT, 4)
        assert bench.uplink.accept is not None
        assert await bench.uplink.accept(order()) == ""
        await bench.orders.closed.wait()
        status = bench.agent.status()
        assert (status.uplink_connected, status.spool_pending, status.findings_total) == (True, 1, 1)
        assert (len(status.samples), status.burnin_runs_total["pass"]) == (4, 1)
        bench.stop.set()
        await asyncio.wait_for(life, 60.0)
        assert bench.devices.closed
        assert not bench.uplink.connected
        assert (bench.said[0], bench.said[-1]) == ("READY=1", "STOPPING=1")
        assert "WATCHDOG=1" in bench.said

    asyncio.run(case())


def test_who_asks_for_power_says_so_when_it_connects(tmp_path: Path) -> None:
    async def case(line: PowerLine | None) -> bool:
        bench = Bench(tmp_path, power=line)
        life = asyncio.create_task(bench.agent.run(bench.stop))
        await bench.uplink.said_hello.wait()
        bench.stop.set()
        await life
        assert bench.uplink.power is line
        return POWER_LEASES in bench.uplink.hellos[0].capabilities

    line = PowerHost(HOST, FakeClock(), random.Random(1)).lease  # noqa: S311 - it takes no turn
    assert asyncio.run(case(line))
    assert not asyncio.run(case(None))


def test_the_gpus_are_let_go_while_other_loops_still_end(tmp_path: Path) -> None:
    """A burn-in may take most of the time that the whole end has."""

    async def case() -> None:
        bench = Bench(tmp_path)
        closed, closed_meanwhile = asyncio.Event(), False

        async def close() -> str:
            closed.set()
            return ""

        async def slow_to_end() -> None:
            nonlocal closed_meanwhile
            try:
                await asyncio.Event().wait()
            finally:
                await closed.wait()
                closed_meanwhile = True

        bench.devices.close = close  # type: ignore[method-assign]
        bench.agent._companions = {"burnin": slow_to_end}
        life = asyncio.create_task(bench.agent.run(bench.stop))
        await bench.uplink.said_hello.wait()
        bench.stop.set()
        await life
        assert closed_meanwhile

    asyncio.run(case())


def test_a_reload_is_told_to_the_service_manager_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        hup, done = asyncio.Event(), asyncio.Event()
        said_at_reload: list[str] = []

        def reload() -> None:
            said_at_reload.append(bench.said[-1])
            bench.agent.stand(Place(rack="r7"))
            done.set()

        life = asyncio.create_task(bench.agent.run(bench.stop, hup=hup, reload=reload))
        await bench.uplink.said_hello.wait()
        bench.uplink.said_hello.clear()
        hup.set()
        await done.wait()
        await bench.uplink.said_hello.wait()
        assert bench.uplink.hellos[-1].place.rack == "r7", "the controller is told where the host stands now"
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=1\d{9,}", said_at_reload[0])
        assert [state for state in bench.said if state != "WATCHDOG=1"] == ["READY=1", said_at_reload[0], "READY=1"]
        bench.stop.set()
        await life

    asyncio.run(case())


def test_a_silent_driver_keeps_neither_ready_nor_the_uplink_back(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path, lambda _: DeviceError("no answer to 'open'"))
        life = asyncio.create_task(bench.agent.run(bench.stop))
        await bench.uplink.said_hello.wait()
        assert bench.said[0] == "READY=1"
        assert bench.uplink.hellos[0].inventory == ()
        assert [finding.why for finding in bench.spool.findings] == ["no GPU answers for 60 s: no answer to 'open'"]
        bench.stop.set()
        await life

    asyncio.run(case())


def test_when_the_gpus_come_back_the_controller_is_told_anew(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path, lambda s: DeviceError("cold") if s < 100 else ALL)
        life = asyncio.create_task(bench.agent.run(bench.stop))
        while len(bench.uplink.hellos) < 2:
            bench.uplink.said_hello.clear()
            await bench.uplink.said_hello.wait()
        assert [len(hello.inventory) for hello in bench.uplink.hellos] == [0, 4]
        bench.stop.set()
        await life

    asyncio.run(case())


@pytest.mark.parametrize(
    ("drivers", "said"),
    [
        ({0: "580.95.05", 1: "580.95.05", 2: "580.95.05", 3: "580.95.05"}, "580.95.05"),
        ({0: "580.95.05", 1: "580.95.05", 2: "575.57.08", 3: "575.57.08"}, None),
        ({0: "580.95.05"}, None),
        ({}, None),
    ],
)
def test_the_hello_says_the_one_driver_of_all_gpus(tmp_path: Path, drivers: dict[int, str], said: str | None) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)
        bench.devices.drivers = drivers
        life = asyncio.create_task(bench.agent.run(bench.stop))
        await bench.uplink.said_hello.wait()
        assert bench.uplink.hellos[0].driver_version == said
        bench.stop.set()
        await life

    asyncio.run(case())


def test_a_bug_in_a_loop_ends_the_agent(tmp_path: Path) -> None:
    async def case() -> None:
        bench = Bench(tmp_path)

        def bug(_: float) -> set[int]:
            raise ZeroDivisionError("a bug")

        bench.devices.script = bug
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await bench.agent.run(bench.stop)
        assert bench.devices.closed

    asyncio.run(case())


def test_an_uplink_that_returns_ends_the_agent(tmp_path: Path) -> None:
    class Ended(FakeUplink):
        async def run(self, **_: object) -> None:
            return

    async def case() -> None:
        bench = Bench(tmp_path)
        bench.agent._uplink = Ended()
        with pytest.raises(RuntimeError, match="uplink ended by itself"):
            await bench.agent.run(bench.stop)

    asyncio.run(case())


def test_a_loop_that_will_not_end_does_not_hold_the_agent(tmp_path: Path) -> None:
    class Stubborn(FakeDevices):
        async def close(self) -> str:
            await asyncio.Event().wait()
            return ""

    async def case() -> None:
        bench = Bench(tmp_path)
        bench.agent._devices = Stubborn(bench.clock, lambda _: ALL)
        life = asyncio.create_task(bench.agent.run(bench.stop))
        await bench.uplink.said_hello.wait()
        bench.stop.set()
        began_s = asyncio.get_running_loop().time()
        await life
        assert asyncio.get_running_loop().time() - began_s < 30.0

    asyncio.run(case())
