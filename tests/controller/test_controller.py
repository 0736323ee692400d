"""The controller over a memory ledger and fakes: nothing is told before it is on disk, nothing counts twice."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from fleetd.controller.controller import Controller
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.controller.judge import GREETING_SECONDS
from fleetd.core.policy import Action, Budget, Budgets, Policy, Qualify, Rule, When
from fleetd.model.event import AgentConnected, AgentSilent
from fleetd.model.finding import BurninEnded, Culprit, FaultClass, Verdict
from fleetd.model.host import Gpu, Hello, Lifecycle
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId, SpoolId
from fleetd.model.journal import JournalEntry
from fleetd.model.order import FleetOrder, Quarantine, Release, RunBurnin
from fleetd.ports import ActuatorError, Peer, Receipt, Refused, RunBlocking, Standing, StoreError
from fleetd.stores.memory import MemoryStore

H01, H02 = HostName("h01"), HostName("h02")
SPOOL = SpoolId("s1")
AGENT, OPERATOR, VIEWER = (
    Peer(name="h01", role="agent"),
    Peer(name="eve", role="operator"),
    Peer(name="max", role="viewer"),
)
GPUS = tuple(Gpu(gpu=GpuId(f"G{n}"), index=n, vendor="sim", sku="simulated", pci_address=None) for n in range(8))
POLICY = Policy(
    qualify=Qualify(level="smoke", timeout_seconds=60, attempts=2),
    proofs={FaultClass.CHIP_PERSISTENT: "smoke"},
    budgets=Budgets(
        quarantines=Budget(max_ratio=0.5, at_least=1, max_in_window=9, window_seconds=3600),
    ),
    rules=(Rule(name="bad", when=When(fault_class=(FaultClass.CHIP_PERSISTENT,)), then=Action.QUARANTINE),),
)


class StillClock:
    """Time moves when the test says so; waiting gives the others a turn."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall_s(self) -> float:
        return self.now_s

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        self.now_s += seconds / 1000  # so that loops that only wait make little time pass
        await asyncio.sleep(0)


class Scheduler:
    """An actuator that fails as often as it is told to."""

    name = "fake"

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.done: list[FleetOrder] = []
        self.idle = asyncio.Event()

    async def standing(self, hosts: Collection[HostName]) -> dict[HostName, Standing]:
        del hosts
        return {}

    async def carry_out(self, order: FleetOrder) -> Receipt:
        if self.failures:
            self.failures -= 1
            raise ActuatorError("scheduler is away")
        self.done.append(order)
        self.idle.set()
        return Receipt(order_id=order.id, done=True, why="done")


class SickDisk(MemoryStore):
    """A ledger that refuses so many commits."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreError("disk full")
        super().commit(entries)


async def _run_here(function: Callable[[], object]) -> object:
    await asyncio.sleep(0)
    return function()


@asynccontextmanager
async def running(
    store: MemoryStore,
    scheduler: Scheduler,
    *,
    run_blocking: RunBlocking | None = None,
    run_deciding: RunBlocking | None = None,
) -> AsyncIterator[Controller]:
    controller = Controller(
        store=store,
        actuator=scheduler,
        policy=POLICY,
        clock=StillClock(),
        run_blocking=run_blocking or _run_here,
        run_deciding=run_deciding,
        dispatcher=DispatcherConfig(),
    )
    controller.load()
    async with asyncio.TaskGroup() as group:  # a bug in a loop ends the scene at once
        task = group.create_task(controller.run())
        yield controller
        task.cancel()


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await scene()

    asyncio.run(limited())


def hello(host: HostName = H01, boot: str = "b1") -> Hello:
    return Hello(host=host, boot_id=BootId(boot), agent_version="0.1.0", capabilities=("burnin",), inventory=GPUS)


def ended(order: RunBurnin | None, *, bad: int | None = None, finding: str = "f1", host: HostName = H01) -> BurninEnded:
    culprits = (
        ()
        if bad is None
        else (Culprit(gpu=GPUS[bad].gpu, index=bad, fault_class=FaultClass.CHIP_PERSISTENT, why="alone"),)
    )
    return BurninEnded(
        id=FindingId(finding),
        host=host,
        boot_id=BootId("b1"),
        at_s=1.0,
        why="w",
        order_id=order.id if order else None,
        level="smoke",
        verdict=Verdict.PASS if bad is None else Verdict.FAIL,
        fault_class=FaultClass.NONE if bad is None else FaultClass.CHIP_PERSISTENT,
        seed=1,
        vote_key="k",
        culprits=culprits,
    )


async def qualify(controller: Controller) -> RunBurnin:
    """Say hello and take the first order."""
    assert await controller.intake.hello(AGENT, hello(), SPOOL) == 0
    order = await anext(controller.intake.orders(H01))
    assert isinstance(order, RunBurnin)
    return order


def test_a_new_host_is_burnt_in_and_healthy_when_it_passes() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            order = await qualify(controller)
            assert order.level == "smoke"
            await controller.intake.order_confirmed(H01, order.id, "")
            assert await controller.intake.finding(H01, SPOOL, 1, ended(order)) == 1
            (host,) = await controller.desk.hosts()
            assert host.state is Lifecycle.HEALTHY

    play(scene)


def test_a_bad_gpu_quarantines_its_host_once_however_often_it_is_told() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Scheduler(failures=2)
        async with running(store, scheduler) as controller:
            order = await qualify(controller)
            finding = ended(order, bad=5)
            assert await controller.intake.finding(H01, SPOOL, 1, finding) == 1
            assert await controller.intake.finding(H01, SPOOL, 1, finding) == 1
            assert await controller.intake.finding(H01, SpoolId("reinstalled"), 7, finding) == 7
            await scheduler.idle.wait()
            host, _, findings = await controller.desk.host(H01)
            assert host.state is Lifecycle.QUARANTINED
            assert [hold.gpu for hold in host.holds] == ["G5"]
            assert len(findings) == 1
        assert [type(o) for o in scheduler.done] == [Quarantine]

    play(scene)


def test_an_open_order_is_carried_out_after_a_restart() -> None:
    async def scene() -> None:
        store = MemoryStore()
        async with running(store, Scheduler(failures=10**9)) as controller:
            order = await qualify(controller)
            await controller.intake.finding(H01, SPOOL, 1, ended(order, bad=5))
        scheduler = Scheduler()
        async with running(store, scheduler) as controller:
            await scheduler.idle.wait()
            assert controller.judge.last_seq(H01, SPOOL) == 1
            (host,) = await controller.desk.hosts()
            assert host.state is Lifecycle.QUARANTINED
        assert [type(o) for o in scheduler.done] == [Quarantine]

    play(scene)


def test_nothing_is_acknowledged_when_the_ledger_refuses() -> None:
    async def scene() -> None:
        store = SickDisk(refusals=0)
        async with running(store, Scheduler()) as controller:
            order = await qualify(controller)
            store.refusals = 1
            with pytest.raises(StoreError, match="disk full"):
                await controller.intake.finding(H01, SPOOL, 1, ended(order, bad=5))
            assert controller.judge.last_seq(H01, SPOOL) == 0
            (host,) = await controller.desk.hosts()
            assert host.state is Lifecycle.QUALIFYING
            assert await controller.intake.finding(H01, SPOOL, 1, ended(order, bad=5)) == 1

    play(scene)


def test_a_newer_connection_takes_the_orders_over() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            await controller.intake.hello(AGENT, hello(), SPOOL)
            older = controller.intake.orders(H01)
            first = await anext(older)
            newer = controller.intake.orders(H01)
            again = await anext(newer)
            assert again == first
            with pytest.raises(StopAsyncIteration):
                await anext(older)
            assert controller.dispatcher.connected == {H01}

    play(scene)


def test_a_refused_burnin_is_tried_again_and_then_a_human_is_told() -> None:
    async def scene() -> None:
        scheduler = Scheduler()
        async with running(MemoryStore(), scheduler) as controller:
            first = await qualify(controller)
            await controller.intake.order_confirmed(H01, first.id, "no torch here")
            second = await anext(controller.intake.orders(H01))
            assert second.id != first.id
            await controller.intake.order_confirmed(H01, second.id, "no torch here")
            await scheduler.idle.wait()
            assert "no torch here" in scheduler.done[0].why
            (host,) = await controller.desk.hosts()
            assert (host.state, host.pending) == (Lifecycle.QUALIFYING, None)

    play(scene)


@pytest.mark.parametrize("peer", [OPERATOR, VIEWER, Peer(name="h02", role="agent")])
def test_only_a_hosts_own_agent_speaks_for_it(peer: Peer) -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            with pytest.raises(Refused):
                await controller.intake.hello(peer, hello(), SPOOL)
            assert await controller.desk.hosts() == ()

    play(scene)


def test_a_finding_about_another_host_is_refused() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            await qualify(controller)
            with pytest.raises(Refused, match="sent a finding about h02"):
                await controller.intake.finding(H01, SPOOL, 1, ended(None, bad=5, host=H02))

    play(scene)


def test_the_desk_quarantines_releases_and_explains() -> None:
    async def scene() -> None:
        scheduler = Scheduler()
        async with running(MemoryStore(), scheduler) as controller:
            order = await qualify(controller)
            await controller.intake.finding(H01, SPOOL, 1, ended(order))
            held = await controller.desk.quarantine(OPERATOR, H01, "smells  burnt")
            assert (held.state, held.holds[0].reason) == (Lifecycle.QUARANTINED, "smells burnt")
            freed = await controller.desk.release(OPERATOR, H01, "was toast", override=False)
            assert freed.state is Lifecycle.HEALTHY
            steps = await controller.desk.explain(H01)
            assert [at_s for at_s, _ in steps] == sorted(at_s for at_s, _ in steps)
            assert "smells burnt" in " ".join(why for _, why in steps)

    play(scene)


def test_a_release_without_proof_is_refused_and_an_override_is_not() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            order = await qualify(controller)
            await controller.intake.finding(H01, SPOOL, 1, ended(order, bad=5))
            with pytest.raises(Refused, match="smoke"):
                await controller.desk.release(OPERATOR, H01, "please", override=False)
            freed = await controller.desk.release(OPERATOR, H01, "demo day", override=True)
            assert freed.state is Lifecycle.PROBATION

    play(scene)


@pytest.mark.parametrize(
    ("peer", "name", "reason", "message"),
    [
        (VIEWER, H01, "r", "only an operator"),
        (OPERATOR, H02, "r", "no host 'h02'"),
        (OPERATOR, H01, "  ", "needs a reason"),
        (OPERATOR, H01, "x" * 1001, "longer than"),
    ],
)
def test_what_the_desk_refuses(peer: Peer, name: HostName, reason: str, message: str) -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            await qualify(controller)
            with pytest.raises(Refused, match=message):
                await controller.desk.quarantine(peer, name, reason)
            with pytest.raises(Refused, match=message):
                await controller.desk.release(peer, name, reason, override=True)

    play(scene)


async def condemn(controller: Controller, *names: str) -> None:
    """Hosts without GPUs in common report a bad GPU each."""
    for name in names:
        host, peer = HostName(name), Peer(name=name, role="agent")
        gpu = replace(GPUS[5], gpu=GpuId(f"{name}-5"))
        await controller.intake.hello(peer, replace(hello(host), inventory=(gpu,)), SPOOL)
        culprit = Culprit(gpu=gpu.gpu, index=5, fault_class=FaultClass.CHIP_PERSISTENT, why="alone")
        finding = replace(ended(None, bad=5, finding=name, host=host), culprits=(culprit,), vote_key="")
        await controller.intake.finding(host, SPOOL, 1, finding)


def test_the_budget_withholds_until_a_human_rearms_it_and_then_judges_what_is() -> None:
    async def scene() -> None:
        store = MemoryStore()
        async with running(store, Scheduler()) as controller:
            await condemn(controller, "h01", "h02")
            first, second = await controller.desk.hosts()
            assert (first.state, second.state) == (Lifecycle.QUARANTINED, Lifecycle.SUSPECT)
            assert controller.judge.budget_tripped
            with pytest.raises(Refused, match="only an operator"):
                await controller.desk.rearm_budget(VIEWER, "r")
        async with running(store, Scheduler()) as controller:
            assert controller.judge.budget_tripped
            await controller.desk.release(OPERATOR, H01, "it was the cable", override=True)
            record = await controller.desk.rearm_budget(OPERATOR, "looked at both")
            assert record.tripped == ()
            with pytest.raises(Refused, match="nothing to re-arm"):
                await controller.desk.rearm_budget(OPERATOR, "again")
            _, second = await controller.desk.hosts()
            assert second.state is Lifecycle.QUARANTINED

    play(scene)


def test_the_kill_switch_survives_a_restart_and_holds_burnins_back() -> None:
    async def scene() -> None:
        store = MemoryStore()
        async with running(store, Scheduler()) as controller:
            await controller.desk.stop_automation(OPERATOR, "roll-out")
        async with running(store, Scheduler()) as controller:
            await controller.intake.hello(AGENT, hello(), SPOOL)
            assert controller.dispatcher.open_orders == 0
            await controller.desk.resume_automation(OPERATOR, "done")
            order = await anext(controller.intake.orders(H01))
            assert order.level == "smoke"

    play(scene)


def test_a_ledger_that_refuses_takes_back_what_the_budget_counted() -> None:
    async def scene() -> None:
        store = SickDisk(refusals=0)
        async with running(store, Scheduler()) as controller:
            await controller.intake.hello(AGENT, hello(), SPOOL)
            before = controller.judge._fleet.snapshot()
            store.refusals = 1
            with pytest.raises(StoreError):
                await controller.intake.finding(H01, SPOOL, 1, ended(None, bad=5))
            assert controller.judge._fleet.snapshot() == before

    play(scene)


@pytest.mark.parametrize("off_s", [-3600.0, 3.0, 3600.0])
def test_orders_are_sent_in_the_time_of_the_host(off_s: float) -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            now_s = 1000.0
            await controller.intake.hello(AGENT, replace(hello(), at_s=now_s + off_s), SPOOL)
            order = await anext(controller.intake.orders(H01))
            expected_s = now_s + 60 + (off_s if abs(off_s) > 5 else 0)
            assert order.not_after_s == pytest.approx(expected_s, abs=1)

    play(scene)


def test_a_second_machine_under_the_same_name_is_refused() -> None:
    async def scene() -> None:
        store = MemoryStore()
        async with running(store, Scheduler()) as controller:
            for boot in ("b1", "b2"):
                await controller.intake.hello(AGENT, hello(boot=boot), SPOOL)
            for _ in range(3):
                with pytest.raises(Refused, match="second machine"):
                    await controller.intake.hello(AGENT, hello(boot="b1"), SPOOL)
            assert len(store.history(H01, limit=99)) == 3  # the repeats leave no trace

    play(scene)


def test_a_host_that_was_reinstalled_begins_a_new_spool_and_nothing_is_lost() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            await qualify(controller)
            await controller.intake.finding(H01, SPOOL, 7, ended(None, finding="old"))
            assert await controller.intake.hello(AGENT, hello(boot="b2"), SpoolId("s2")) == 0
            assert await controller.intake.finding(H01, SpoolId("s2"), 1, ended(None, finding="new")) == 1
            _, _, findings = await controller.desk.host(H01)
            assert [f.id for f in findings] == ["new", "old"]

    play(scene)


def test_an_agent_that_stays_away_is_a_lost_host() -> None:
    async def scene() -> None:
        scheduler = Scheduler()
        async with running(MemoryStore(), scheduler) as controller:
            order = await qualify(controller)
            await controller.intake.finding(H01, SPOOL, 1, ended(order))
            controller.watch.session_changed(H01, there=False)
            clock = controller.watch._clock
            assert isinstance(clock, StillClock)
            clock.now_s += 301
            await scheduler.idle.wait()
            (host,) = await controller.desk.hosts()
            assert host.state is Lifecycle.SUSPECT
            assert "host lost" in host.why

    play(scene)


def test_an_order_whose_time_ran_out_is_void_and_another_is_made() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            await controller.intake.hello(AGENT, hello(), SPOOL)
            clock = controller.watch._clock
            assert isinstance(clock, StillClock)
            clock.now_s += 500
            order = await anext(controller.intake.orders(H01))
            assert order.id == OrderId("h01/2/burnin")

    play(scene)


async def settled(reached: Callable[[], bool]) -> None:
    """Give the loops so many turns to get there."""
    for _ in range(1000):
        if reached():
            return
        await asyncio.sleep(0)
    raise AssertionError("not reached in 1000 turns")


def test_s16_a_quarantine_that_is_taken_back_while_the_scheduler_is_away_is_never_carried_out() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Scheduler(failures=1_000_000)
        async with running(store, scheduler) as controller:
            await qualify(controller)
            await controller.desk.quarantine(OPERATOR, H01, "smells burnt")
            await controller.desk.release(OPERATOR, H01, "was toast", override=True)
            scheduler.failures = 0
            await scheduler.idle.wait()
            await settled(lambda: controller.dispatcher.void_total == 1)
            assert [type(order) for order in scheduler.done] == [Release]
        (record,) = [r for r in store.orders(H01, limit=9) if isinstance(r.order, Quarantine)]
        assert (record.done, record.result.startswith("void: its host was released")) == (True, True)

    play(scene)


def test_s16_a_burnin_that_waits_for_its_agent_is_not_run_under_a_repair() -> None:
    async def scene() -> None:
        store = MemoryStore()
        async with running(store, Scheduler()) as controller:
            await controller.intake.hello(AGENT, hello(), SPOOL)
            await controller.desk.repair(OPERATOR, H01, "new cable")
            orders = controller.intake.orders(H01)
            waiting = asyncio.ensure_future(anext(orders))
            await settled(lambda: controller.dispatcher.void_total == 1)
            await controller.desk.burnin(OPERATOR, H01, "repaired", level=None)
            order = await waiting
        burnins = [r for r in store.orders(H01, limit=9) if isinstance(r.order, RunBurnin)]
        assert order.id == burnins[1].order.id
        assert "nothing is run on it" in burnins[0].result

    play(scene)


@pytest.mark.parametrize("ran_seconds", [-1.0, float("nan"), float("inf")])
def test_s21_the_desk_takes_note_of_jobs(ran_seconds: float) -> None:
    async def scene() -> None:
        store = MemoryStore()
        async with running(store, Scheduler()) as controller:
            await qualify(controller)
            await controller.desk.job_ended(OPERATOR, H01, "job 7", ok=False, ran_seconds=2.0)
            assert "job 7 failed after 2 seconds" in (await controller.desk.explain(H01))[-1][1]
            with pytest.raises(Refused, match="number of seconds"):
                await controller.desk.job_ended(OPERATOR, H01, "job 8", ok=False, ran_seconds=ran_seconds)
            with pytest.raises(Refused, match="only an operator"):
                await controller.desk.job_ended(VIEWER, H01, "job 8", ok=False, ran_seconds=1.0)

    play(scene)


def test_a_silence_that_is_told_while_the_agent_says_hello_is_not_believed() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            await controller.intake.hello(AGENT, hello(), SPOOL)
            clock = controller.judge._clock
            assert isinstance(clock, StillClock)
            silent = AgentSilent(host=H01, since_s=1.0, away=1, known=9)
            await asyncio.gather(  # the same batch, and the next one: no session has begun yet
                controller.judge.submit(AgentConnected(host=H01, hello=hello())), controller.judge.submit(silent)
            )
            step = await controller.judge.submit(silent)
            assert (step.state.silent, step.orders) == (None, ())
            clock.now_s += GREETING_SECONDS
            step = await controller.judge.submit(silent)  # and no session followed
            assert step.state.silent is not None
            await controller.intake.hello(AGENT, hello(), SPOOL)
            session = asyncio.ensure_future(anext(controller.intake.orders(H01)))
            await settled(lambda: controller.dispatcher.has_session(H01))
            clock.now_s += GREETING_SECONDS
            assert (await controller.judge.submit(silent)).state.silent is None
            session.cancel()

    play(scene)
