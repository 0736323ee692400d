"""Orders that cannot be carried out: no worker waits for them, people are told, nothing is dropped."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

import pytest

from fleetd.controller.dispatcher import Dispatcher, DispatcherConfig
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import FleetOrder, Notify, Order, Quarantine
from fleetd.ports import ActuatorError, ActuatorObjection, NoNode, Receipt, Standing, StoreError
from fleetd.stores.memory import MemoryStore
from tests.controller.test_controller import settled

Answer = Callable[[FleetOrder], bool]


class Scheduler:
    """Answers each order as it is told to: an error to raise, or whether it is done."""

    name = "fake"

    def __init__(self) -> None:
        self.answers: dict[HostName, ActuatorError | bool] = {}
        self.tried: list[OrderId] = []

    async def carry_out(self, order: FleetOrder) -> Receipt:
        self.tried.append(order.id)
        answer = self.answers.get(order.host, True)
        if isinstance(answer, ActuatorError):
            raise answer
        return Receipt(order_id=order.id, done=answer, why="as told")

    async def standing(self, hosts: Collection[HostName]) -> dict[HostName, Standing]:
        del hosts
        return {}


class HandClock:
    """Time goes on when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []
        self._moved = asyncio.Event()

    def wall_s(self) -> float:
        return self.now_s

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        self.slept.append(seconds)
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            await self._moved.wait()

    async def go(self, seconds: float) -> None:
        for _ in range(50):  # who is about to sleep goes to sleep first
            await asyncio.sleep(0)
        self.now_s += seconds
        self._moved.set()
        self._moved = asyncio.Event()
        for _ in range(50):
            await asyncio.sleep(0)


class Scene:
    def __init__(self) -> None:
        self.store, self.scheduler, self.clock = MemoryStore(), Scheduler(), HandClock()
        self.told: list[tuple[OrderId, str]] = []
        self.void: set[OrderId] = set()

        async def here(function: Callable[[], object]) -> object:
            return function()

        self.dispatcher = Dispatcher(
            store=self.store,
            actuator=self.scheduler,
            clock=self.clock,
            run_blocking=here,
            config=DispatcherConfig(workers=2, tell_after_attempts=3, page_attempts=4),
        )
        self.dispatcher.on_obstacle = self._hear
        self.dispatcher.void_since = self._void

    async def _hear(self, order: FleetOrder, why: str) -> None:
        self.told.append((order.id, why))

    def _void(self, order: Order) -> str | None:
        return "cancelled" if order.id in self.void else None


def play(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def scene() -> None:
        scene = Scene()
        run = asyncio.create_task(scene.dispatcher.run())
        async with asyncio.timeout(60):
            await story(scene)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    asyncio.run(scene())


def quarantine(host: str, number: int = 1) -> Quarantine:
    return Quarantine(id=OrderId(f"{host}/{number}/quarantine"), host=HostName(host), issued_at_s=0.0, why="w")


def page(host: str, number: int = 2) -> Notify:
    return Notify(id=OrderId(f"{host}/{number}/notify"), host=HostName(host), issued_at_s=0.0, why="w")


Story = Callable[[Scene], Coroutine[Any, Any, None]]


def test_hosts_in_trouble_keep_no_worker_from_the_others() -> None:
    async def story(scene: Scene) -> None:
        for n in range(10):
            scene.scheduler.answers[HostName(f"bad{n}")] = ActuatorError("away")
            scene.dispatcher.issue([quarantine(f"bad{n}")])
        scene.dispatcher.issue([quarantine("good")])
        await settled(lambda: scene.dispatcher.carried_out_total == 1)
        assert scene.dispatcher.orders_in_trouble == 10
        assert scene.dispatcher.busy == {HostName(f"bad{n}") for n in range(10)}
        scene.scheduler.answers.clear()
        await scene.clock.go(1)
        await settled(lambda: scene.dispatcher.carried_out_total == 11)
        assert scene.dispatcher.open_orders == 0

    play(story)


def test_a_page_overtakes_an_order_that_waits() -> None:
    async def story(scene: Scene) -> None:
        scene.scheduler.answers[HostName("h")] = ActuatorError("away")
        scene.dispatcher.issue([quarantine("h")])
        await settled(lambda: scene.dispatcher.failures_total == 1)
        scene.scheduler.answers.clear()
        scene.dispatcher.issue([page("h")])
        await settled(lambda: scene.scheduler.tried == ["h/1/quarantine", "h/2/notify"])
        await scene.clock.go(1)
        await settled(lambda: scene.dispatcher.open_orders == 0)

    play(story)


def test_waits_double_up_to_a_maximum_and_a_server_may_ask_for_more() -> None:
    async def story(scene: Scene) -> None:
        scene.scheduler.answers[HostName("h")] = ActuatorError("away")
        scene.dispatcher.issue([quarantine("h")])
        for n in range(8):
            await settled(lambda n=n: scene.dispatcher.failures_total == n + 1)
            await scene.clock.go(60)
        assert scene.clock.slept[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
        scene.scheduler.answers[HostName("h")] = ActuatorError("busy", retry_after_s=90)
        await scene.clock.go(60)
        scene.scheduler.answers[HostName("h")] = ActuatorError("busy", retry_after_s=1e9)
        await scene.clock.go(90)
        await settled(lambda: scene.clock.slept[-1] == 600)

    play(story)


def test_a_definite_no_is_told_at_once_and_again_when_it_changes_or_lasts() -> None:
    async def story(scene: Scene) -> None:
        scene.scheduler.answers[HostName("h")] = ActuatorObjection("drained by alice")
        scene.dispatcher.issue([quarantine("h")])
        await settled(lambda: scene.told == [("h/1/quarantine", "drained by alice")])
        for _ in range(5):
            await scene.clock.go(60)
        assert len(scene.told) == 1
        scene.scheduler.answers[HostName("h")] = ActuatorObjection("drained by bob")
        await scene.clock.go(60)
        await settled(lambda: [why for _, why in scene.told[1:]] == ["drained by bob"])
        await scene.clock.go(3600)
        await settled(lambda: len(scene.told) == 3)
        scene.scheduler.answers.clear()
        await scene.clock.go(60)
        await settled(lambda: scene.dispatcher.carried_out_total == 1)

    play(story)


def test_failures_are_told_after_a_few_of_them() -> None:
    async def story(scene: Scene) -> None:
        for n in range(4):
            scene.scheduler.answers[HostName("h")] = ActuatorError(f"words {n}")
            if n == 0:
                scene.dispatcher.issue([quarantine("h")])
            await scene.clock.go(60)
        assert scene.dispatcher.failures_total > 3
        ((order, why),) = scene.told
        assert (order, why[:25]) == ("h/1/quarantine", "3 attempts failed: words ")

    play(story)


def test_what_could_not_be_told_is_told_by_the_next_attempt() -> None:
    async def story(scene: Scene) -> None:
        refusals = 1

        async def hear(order: FleetOrder, why: str) -> None:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise StoreError("disk full")
            scene.told.append((order.id, why))

        scene.dispatcher.on_obstacle = hear
        scene.scheduler.answers[HostName("h")] = ActuatorObjection("no such node")
        scene.dispatcher.issue([quarantine("h")])
        await settled(lambda: refusals == 0)
        await scene.clock.go(1)
        await settled(lambda: len(scene.told) == 1)

    play(story)


def test_an_order_under_way_is_looked_at_again_and_is_no_failure() -> None:
    async def story(scene: Scene) -> None:
        scene.scheduler.answers[HostName("h")] = False
        scene.dispatcher.issue([quarantine("h")])
        await settled(lambda: len(scene.scheduler.tried) == 1)
        await scene.clock.go(60)
        await settled(lambda: len(scene.scheduler.tried) == 2)
        assert (scene.dispatcher.failures_total, scene.dispatcher.orders_in_trouble, scene.told) == (0, 0, [])
        assert scene.dispatcher.open_orders == 1
        scene.scheduler.answers.clear()
        await scene.clock.go(60)
        await settled(lambda: scene.dispatcher.open_orders == 0)

    play(story)


def test_an_order_in_trouble_that_is_not_meant_any_more_is_void() -> None:
    async def story(scene: Scene) -> None:
        scene.scheduler.answers[HostName("h")] = ActuatorObjection("no such node")
        scene.dispatcher.issue([quarantine("h")])
        await settled(lambda: scene.dispatcher.failures_total == 1)
        scene.void.add(OrderId("h/1/quarantine"))
        scene.dispatcher.reconsider(HostName("h"))
        await scene.clock.go(1)
        await settled(lambda: scene.dispatcher.void_total == 1)
        assert len(scene.scheduler.tried) == 1

    play(story)


def test_a_node_that_there_is_none_of_is_told_unless_nobody_needs_it() -> None:
    async def story(scene: Scene) -> None:
        scene.scheduler.answers |= dict.fromkeys([HostName("h"), HostName("gone")], NoNode("no such node"))
        scene.dispatcher.void_without_node = lambda order: "it is retired" if order.host == "gone" else None
        scene.dispatcher.issue([quarantine("gone"), quarantine("h")])
        await settled(lambda: scene.told == [("h/1/quarantine", "no such node")])
        assert (scene.dispatcher.open_orders, scene.dispatcher.void_total) == (1, 1)

    play(story)


def test_a_page_that_nobody_takes_is_given_up_and_does_not_pile_up() -> None:
    async def story(scene: Scene) -> None:
        scene.scheduler.answers[HostName("h")] = ActuatorObjection("401")
        scene.dispatcher.issue([page("h")])
        for _ in range(6):
            await scene.clock.go(60)
        await settled(lambda: scene.dispatcher.given_up_total == 1)
        assert (scene.dispatcher.open_orders, len(scene.scheduler.tried), scene.told) == (0, 4, [])

    play(story)


@pytest.mark.parametrize("name", ["tell_after_attempts", "page_attempts"])
def test_limits_that_cannot_work_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        DispatcherConfig(**{name: 0})
