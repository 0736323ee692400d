"""The simulated line keeps the real one's promises: an unbroken prefix, what is unacknowledged again, one session."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from fleetd.model.finding import DeviceFault, FaultClass, Finding, Scope, Severity
from fleetd.model.host import Hello
from fleetd.model.ids import BootId, FindingId, HostName, OrderId, SpoolId
from fleetd.model.order import AgentOrder, RecallBurnin, RunBurnin
from fleetd.model.power_lease import Answer, Ask, NoGrant
from fleetd.model.telemetry import Telemetry
from fleetd.ports import Peer, PowerLine, Refused
from fleetd.sim.clock import SimClock
from fleetd.sim.disk import File, SimSpool
from fleetd.sim.life import Life
from fleetd.sim.link import Network, SimUplink
from fleetd.sim.loop import run
from fleetd.sim.wire import Weather

H1, SPOOL = HostName("h1"), SpoolId("s1")


def finding(number: int) -> Finding:
    return DeviceFault(
        id=FindingId(f"f{number}"),
        host=H1,
        boot_id=BootId("b1"),
        at_s=float(number),
        why="w",
        code="c",
        gpu=None,
        index=None,
        scope=Scope.HOST,
        severity=Severity.ERROR,
        fault_class=FaultClass.NONE,
    )


class Door:
    """A controller that only keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.stored = 0
        self.hellos = 0
        self.confirmed: list[tuple[str, str]] = []
        self.open_orders: list[RunBurnin] = []
        self.recalls: list[RecallBurnin] = []
        self.at_work = 0
        self.refuses = False

    async def hello(self, peer: Peer, hello: Hello, spool: SpoolId) -> int:
        assert peer.name == hello.host
        assert spool == SPOOL
        if self.refuses:
            raise Refused("not you")
        self.hellos += 1
        return self.stored

    async def finding(self, host: HostName, spool: SpoolId, seq: int, finding: Finding) -> int:
        assert (host, spool, finding.id) == (H1, SPOOL, f"f{seq}")
        self.at_work += 1
        assert self.at_work == 1, "two sessions of one host at work"
        await asyncio.sleep(0.01)
        self.at_work -= 1
        self.heard.append(seq)
        self.stored = max(self.stored, seq)
        return self.stored

    async def telemetry_received(self, host: HostName, telemetry: Telemetry) -> None:
        raise AssertionError(f"{host} sampled nothing, and sends {telemetry}")

    async def power_asked(self, host: HostName, ask: Ask) -> Answer | None:
        assert host == H1
        return NoGrant(why=f"question {ask.seq}", budgets=True)

    async def orders(self, host: HostName) -> AsyncIterator[AgentOrder]:
        for order in self.open_orders:
            assert order.host == host
            yield order
        for recall in self.recalls:
            yield recall
        await asyncio.Event().wait()

    async def order_confirmed(self, host: HostName, order_id: OrderId, refused: str) -> None:
        assert host == H1
        self.confirmed.append((order_id, refused))
        self.open_orders = [order for order in self.open_orders if order.id != order_id]


class Scene:
    """One agent's line to one door."""

    def __init__(self, weather: Weather, seed: int = 1) -> None:
        self.door = Door()
        self.bugs: list[BaseException] = []
        rng = random.Random(seed)  # noqa: S311 - a simulation
        self.network = Network(rng=rng, weather=weather, on_bug=self.bugs.append)
        self.network.listen(self.door)
        self.clock = SimClock()
        life = Life("h1", fuse=None, on_end=lambda: None)
        self.spool = SimSpool(SPOOL, File(self.clock.elapsed_s), life)
        self.uplink = SimUplink(
            host=H1,
            network=self.network,
            clock=self.clock,
            life=life,
            rng=rng,
            telemetry_interval_s=10.0,
        )
        self.accepted: list[str] = []
        self.recalled: list[str] = []

    async def _accept(self, order: RunBurnin) -> str:
        self.accepted.append(order.id)
        return "" if order.level == "smoke" else "no such level"

    async def run(self, power: PowerLine | None = None) -> None:
        hello = Hello(host=H1, boot_id=BootId("b1"), agent_version="1", capabilities=(), inventory=())
        await self.uplink.run(
            hello=lambda: hello,
            spool=self.spool,
            telemetry=tuple,
            accept=self._accept,
            recall=lambda order: self.recalled.append(order.order_id),
            power=power,
        )


def play(weather: Weather, story: Callable[[Scene], Coroutine[Any, Any, None]], seed: int = 1) -> Scene:
    async def main() -> Scene:
        scene = Scene(weather, seed)
        task = asyncio.create_task(scene.run())
        await story(scene)
        assert not scene.bugs
        assert not task.done(), "the line ended by itself"
        task.cancel()
        await asyncio.wait({task})
        return scene

    return run(main())


@pytest.mark.parametrize("seed", range(10))
def test_whatever_the_weather_everything_arrives_in_order_and_is_forgotten_after_that(seed: int) -> None:
    async def story(scene: Scene) -> None:
        for number in range(1, 201):
            scene.spool.append(finding(number))
            await scene.clock.sleep_s(1.0)
        await scene.clock.sleep_s(3600.0)

    scene = play(Weather(delay_s=(0.0, 3.0), life_s=20.0, repeat_ratio=0.2), story, seed)
    first_heard = list(dict.fromkeys(scene.door.heard))
    assert first_heard == list(range(1, 201))
    assert len(scene.door.heard) > 200  # something did come twice
    assert scene.door.hellos > 1
    assert scene.spool.depth == 0


def test_an_isolated_host_delivers_after_it_is_back() -> None:
    async def story(scene: Scene) -> None:
        await scene.clock.sleep_s(10.0)
        assert scene.uplink.connected
        scene.network.isolate(H1)
        scene.spool.append(finding(1))
        await scene.clock.sleep_s(600.0)
        assert scene.door.heard == []
        assert not scene.uplink.connected
        scene.network.rejoin(H1)
        await scene.clock.sleep_s(120.0)
        assert scene.door.heard == [1]

    play(Weather(), story)


def test_a_controller_that_dies_is_found_again() -> None:
    async def story(scene: Scene) -> None:
        await scene.clock.sleep_s(10.0)
        scene.network.hang_up()
        scene.spool.append(finding(1))
        await scene.clock.sleep_s(300.0)
        assert scene.door.heard == []
        scene.network.listen(scene.door)
        await scene.clock.sleep_s(120.0)
        assert scene.door.heard == [1]

    play(Weather(), story)


def test_orders_are_confirmed_or_refused() -> None:
    async def story(scene: Scene) -> None:
        for number, level in enumerate(("smoke", "nonsense")):
            order = RunBurnin(
                id=OrderId(f"o{number}"),
                host=H1,
                issued_at_s=0.0,
                why="w",
                level=level,
                boot_id=BootId("b1"),
                not_after_s=1e12,
            )
            scene.door.open_orders.append(order)
        await scene.clock.sleep_s(60.0)
        assert scene.door.confirmed == [("o0", ""), ("o1", "no such level")]

    play(Weather(), story)


def test_a_recall_reaches_the_agent() -> None:
    async def story(scene: Scene) -> None:
        scene.door.recalls.append(RecallBurnin(order_id=OrderId("o7"), why="the kill switch"))
        await scene.clock.sleep_s(60.0)
        assert scene.recalled == ["o7"]

    play(Weather(), story)


def test_a_refused_agent_comes_again_more_and_more_rarely() -> None:
    async def story(scene: Scene) -> None:
        scene.door.refuses = True
        await scene.clock.sleep_s(3600.0)
        assert not scene.uplink.connected
        scene.door.refuses = False
        await scene.clock.sleep_s(61.0)
        assert scene.uplink.connected

    play(Weather(), story)


def test_questions_for_power_are_answered() -> None:
    class Line:
        def __init__(self) -> None:
            self.seq = 0
            self.answers: list[Answer] = []

        async def next_ask(self) -> Ask:
            await asyncio.sleep(20.0 if self.seq else 0.0)
            self.seq += 1
            return Ask(host=H1, epoch=1, seq=self.seq, demand_watts=1.0, applied_seq=0, holds_watts=1.0, safe_watts=1.0)

        def answered(self, answer: Answer) -> None:
            self.answers.append(answer)

    async def main() -> list[Answer]:
        scene, line = Scene(Weather()), Line()
        task = asyncio.create_task(scene.run(line))
        await scene.clock.sleep_s(30.0)
        task.cancel()
        await asyncio.wait({task})
        return line.answers

    assert run(main()) == [NoGrant(why=f"question {n}", budgets=True) for n in (1, 2)]
