"""What time does in a controller: due things are looked at once, absences are told, partitions end by themselves."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any

from fleetd.controller.dispatcher import Dispatcher, DispatcherConfig
from fleetd.controller.judge import Judge
from fleetd.controller.watch import TICK_SECONDS, Watch
from fleetd.core.limits import Outliers, Silence
from fleetd.core.policy import Budget, Budgets, Policy, Qualify
from fleetd.model.event import AgentConnected, AgentSilent, OperatorQuarantined, OperatorRetires, TimePassed
from fleetd.model.fleet import IncidentKind
from fleetd.model.host import Gpu, Hello, Host, Lifecycle
from fleetd.model.ids import BootId, GpuId, HostName
from fleetd.model.order import FleetOrder
from fleetd.model.telemetry import GpuSample, Telemetry
from fleetd.ports import Receipt, Standing
from fleetd.stores.memory import MemoryStore

POLICY = Policy(
    qualify=Qualify(level="smoke", timeout_seconds=90, attempts=2),
    proofs={},
    budgets=Budgets(quarantines=Budget(max_ratio=0.5, at_least=1, max_in_window=9, window_seconds=3600)),
    silence=Silence(after_seconds=100, partition_at_least=2, partition_ratio=0.5),
    rules=(),
)


class Clock:
    """Time moves when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall_s(self) -> float:
        return self.now_s

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        raise AssertionError(f"nothing waits {seconds} s here")


class Idle:
    """An actuator that nobody asks: the dispatcher does not run."""

    name = "idle"

    async def standing(self, hosts: Collection[HostName]) -> dict[HostName, Standing]:
        del hosts
        return {}

    async def carry_out(self, order: FleetOrder) -> Receipt:
        raise AssertionError(order)


async def _here(function: Callable[[], object]) -> object:
    return function()


class Scene:
    """A judge and its watch; the dispatcher only knows who is connected."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.clock, self.store = Clock(), MemoryStore()
        self.dispatcher = Dispatcher(
            store=self.store, actuator=Idle(), clock=self.clock, run_blocking=_here, config=DispatcherConfig()
        )
        self.judge = Judge(
            store=self.store,
            policy=policy,
            clock=self.clock,
            run_blocking=_here,
            dispatcher=self.dispatcher,
            on_host=lambda host: self.watch.host_changed(host),  # noqa: PLW0108 - the watch is made after it
        )
        self.telemetry: dict[HostName, Telemetry] = {}
        self.watch = Watch(judge=self.judge, dispatcher=self.dispatcher, telemetry=self.telemetry, clock=self.clock)
        self.dispatcher.on_session = self.watch.session_changed

    async def appear(self, *names: str, gpus: int = 0) -> None:
        for name in names:
            inventory = tuple(
                Gpu(gpu=GpuId(f"{name}-{n}"), index=n, vendor="sim", sku="s", pci_address=None) for n in range(gpus)
            )
            hello = Hello(
                host=HostName(name), boot_id=BootId("b"), agent_version="0", capabilities=(), inventory=inventory
            )
            await self.judge.submit(AgentConnected(host=HostName(name), hello=hello))

    def connect(self, *names: str) -> None:
        for name in names:
            self.dispatcher._sessions[HostName(name)] = asyncio.Queue()
            self.watch.session_changed(HostName(name), there=True)

    async def after(self, seconds: float) -> None:
        self.clock.now_s += seconds
        await self.watch._look_at_due()
        await self.watch._look_at_silent()
        await self.watch._look_at_outliers()

    def host(self, name: str) -> Host:
        return self.judge.hosts[HostName(name)]

    def events(self, kind: type) -> list[Any]:
        return [entry.event for _, entry in self.store.journal(after=0, limit=999) if isinstance(entry.event, kind)]


def play(scene: Callable[[Scene], Coroutine[Any, Any, None]], policy: Policy = POLICY) -> None:
    async def limited() -> None:
        made = Scene(policy)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            task = group.create_task(made.judge.run())
            await scene(made)
            task.cancel()

    asyncio.run(limited())


def test_an_overdue_burnin_is_seen_once() -> None:
    async def scene(s: Scene) -> None:
        await s.appear("h1")
        s.connect("h1")
        await s.after(179)
        assert s.events(TimePassed) == []
        await s.after(2)
        await s.after(TICK_SECONDS)
        assert len(s.events(TimePassed)) == 1
        pending = s.host("h1").pending
        assert pending is not None
        assert pending.order_id == "h1/2/burnin"

    play(scene)


def test_an_absent_agent_runs_out_of_nothing_and_costs_nothing() -> None:
    async def scene(s: Scene) -> None:
        await s.appear("h1")
        decided = s.judge.decisions_total
        for _ in range(50):
            await s.after(10)
        # One look when its burn-in would be overdue, one each time its silence is told.
        assert s.judge.decisions_total - decided <= 7
        assert (s.host("h1").attempts, s.host("h1").state) == (0, Lifecycle.QUALIFYING)
        assert len(s.events(AgentSilent)) == 1

    play(scene)


def test_a_hold_of_an_absent_host_expires() -> None:
    async def scene(s: Scene) -> None:
        await s.appear("h1")
        await s.judge.submit(
            OperatorQuarantined(host=HostName("h1"), who="ann", reason="fan", expires_at_s=s.clock.now_s + 50)
        )
        assert s.host("h1").held
        await s.after(51)
        assert s.host("h1").state is Lifecycle.PROBATION

    play(scene)


def test_a_partition_blames_nobody_and_ends_by_itself() -> None:
    async def scene(s: Scene) -> None:
        await s.appear("h1", "h2", "h3")
        s.connect("h1")
        await s.after(101)
        (incident,) = s.judge.record.incidents
        assert (incident.kind, incident.hosts) == (IncidentKind.PARTITION, ("h2", "h3"))
        assert s.host("h2").silent is None
        s.connect("h2")
        await s.after(1)
        assert s.judge.record.incidents == ()
        await s.after(101)
        silent = s.host("h3").silent
        assert silent is not None  # it stayed away when the others were back

    play(scene)


def test_silence_is_counted_anew_from_the_end_of_a_partition() -> None:
    async def scene(s: Scene) -> None:
        await s.appear("h1", "h2", "h3")
        s.connect("h1")
        await s.after(101)
        await s.after(90)
        s.connect("h2")  # the partition is over at 191 s; the silence of h3 was to be told at 201 s
        await s.after(1)
        await s.after(98)
        assert s.host("h3").silent is None
        await s.after(3)
        silent = s.host("h3").silent
        assert silent is not None
        assert silent.since_s == 1000.0  # what is told is how long it was really away

    play(scene)


def test_a_host_that_was_lost_before_a_partition_stays_lost() -> None:
    async def scene(s: Scene) -> None:
        await s.appear("h1", "h2", "h3")
        s.connect("h1", "h2")
        await s.after(101)
        lost = s.host("h3").silent
        assert lost is not None
        s.watch.session_changed(HostName("h2"), there=False)
        await s.after(10)
        s.connect("h2")
        await s.after(200)
        assert s.host("h3").silent == lost
        assert s.events(AgentSilent)[-1].since_s == lost.since_s

    play(scene)


def test_retired_hosts_do_not_end_a_partition() -> None:
    async def scene(s: Scene) -> None:
        await s.appear("h1", "h2", "h3", "old1", "old2")
        for old in ("old1", "old2"):
            await s.judge.submit(OperatorRetires(host=HostName(old), who="ann", reason="old"))
        s.connect("h1")
        await s.after(101)
        assert [i.kind for i in s.judge.record.incidents] == [IncidentKind.PARTITION]

    play(scene)


def test_a_retired_host_is_missed_by_nobody() -> None:
    async def scene(s: Scene) -> None:
        await s.appear("h1")
        assert s.watch.away == 1
        await s.judge.submit(OperatorRetires(host=HostName("h1"), who="ann", reason="old"))
        await s.after(500)
        assert (s.watch.away, s.events(AgentSilent)) == (0, [])

    play(scene)


def test_a_slow_gpu_is_found_after_enough_looks() -> None:
    async def scene(s: Scene) -> None:
        names = [f"h{n}" for n in range(4)]
        await s.appear(*names, gpus=8)
        s.connect(*names)
        for name in names:
            host = replace(s.host(name), state=Lifecycle.HEALTHY, pending=None)
            s.judge._hosts[host.name] = host
            s.telemetry[host.name] = Telemetry.of(
                GpuSample(
                    gpu=gpu.gpu,
                    at_s=0.0,
                    utilization_ratio=1.0,
                    sm_clock_hertz=9e8 if gpu.gpu == "h2-3" else 1.5e9 + 1e7 * gpu.index,
                )
                for gpu in host.inventory
            )
        for _ in range(3):
            await s.after(60)
        assert [s.host(name).state for name in names] == [
            Lifecycle.HEALTHY,
            Lifecycle.HEALTHY,
            Lifecycle.SUSPECT,
            Lifecycle.HEALTHY,
        ]
        assert "h2-3" in s.host("h2").why

    play(scene, replace(POLICY, outliers=Outliers(in_a_row=3)))
