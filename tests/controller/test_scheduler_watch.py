"""The controller looks at its scheduler: what differs is put right, and jobs that ended are counted once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from fleetd.actuators.mark import number_of
from fleetd.controller.controller import Controller
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.controller.metrics import ControllerCollector
from fleetd.model.event import JobEnded
from fleetd.model.fleet import IncidentKind
from fleetd.model.ids import HostName, OrderId
from fleetd.model.job import EndedJob
from fleetd.model.order import FleetOrder, Notify, Quarantine, Release
from fleetd.ports import ActuatorError, Receipt, Standing
from fleetd.stores.memory import MemoryStore
from tests.controller.test_controller import (
    H01,
    OPERATOR,
    POLICY,
    SPOOL,
    Scheduler,
    StillClock,
    ended,
    play,
    qualify,
    settled,
)


class Watched(Scheduler):
    """Says how hosts stand, and which jobs ended, as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.stands: dict[HostName, Standing] = {}
        self.ends: list[EndedJob] = []
        self.away = False
        self.asked = asyncio.Event()

    async def carry_out(self, order: FleetOrder) -> Receipt:
        receipt = await super().carry_out(order)
        if not isinstance(order, Notify):
            self.stands.pop(order.host, None)
        return receipt

    async def standing(self, hosts: Collection[HostName]) -> dict[HostName, Standing]:
        self.asked.set()
        if self.away:
            raise ActuatorError("away")
        return {host: stands for host, stands in self.stands.items() if host in hosts}

    async def ended(self, hosts: Collection[HostName]) -> tuple[EndedJob, ...]:
        if self.away:
            raise ActuatorError("away")
        return tuple(end for end in self.ends if end.host in hosts)


@asynccontextmanager
async def watching(store: MemoryStore, scheduler: Watched) -> AsyncIterator[Controller]:
    async def here(function: Callable[[], object]) -> object:
        return function()

    controller = Controller(
        store=store,
        actuator=scheduler,
        policy=POLICY,
        clock=StillClock(),
        run_blocking=here,
        dispatcher=DispatcherConfig(),
        job_ends=scheduler,
    )
    controller.load()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(controller.run())
        yield controller
        task.cancel()


def job(name: str, *, ok: bool = False, ran_seconds: float = 5.0, host: HostName = H01) -> EndedJob:
    return EndedJob(host=host, job=name, ok=ok, ran_seconds=ran_seconds)


def job_ends(store: MemoryStore) -> list[tuple[str, float]]:
    events = [entry.event for _, entry in store.journal(after=0, limit=1000)]
    return [(event.job, event.ran_seconds) for event in events if isinstance(event, JobEnded)]


async def quarantined(controller: Controller, scheduler: Watched) -> None:
    order = await qualify(controller)
    await controller.intake.finding(H01, SPOOL, 1, ended(order, bad=5))
    await settled(lambda: any(isinstance(done, Quarantine) for done in scheduler.done))


def test_a_held_host_that_the_scheduler_serves_is_closed_again_at_the_start() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Watched()
        async with watching(store, scheduler) as controller:
            await quarantined(controller, scheduler)
        scheduler.stands = {H01: Standing(closed=False, order_id=None)}
        async with watching(store, scheduler) as controller:
            await settled(lambda: sum(isinstance(done, Quarantine) for done in scheduler.done) == 2)
            await settled(lambda: any("not there" in done.why for done in scheduler.done if isinstance(done, Notify)))
            assert controller.scheduler_watch.differences_total == 1

    play(scene)


def test_a_node_that_vanished_under_a_hold_is_told_once_and_closed_when_it_comes_back() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Watched()
        async with watching(store, scheduler) as controller:
            await quarantined(controller, scheduler)
            scheduler.stands = {H01: Standing(closed=False, order_id=None, known=False)}
            for _ in range(3):
                await controller.scheduler_watch.compare()
            assert controller.scheduler_watch.differences_total == 1
            await settled(lambda: any("knows no node" in done.why for done in scheduler.done))
            scheduler.stands = {H01: Standing(closed=False, order_id=None)}
            await controller.scheduler_watch.compare()
            # The controller's own loop looks at the same time: it may order it, too.
            await settled(lambda: sum(isinstance(done, Quarantine) for done in scheduler.done) >= 2)
            await settled(lambda: not controller.dispatcher.busy)
            before = controller.scheduler_watch.differences_total
            scheduler.stands = {H01: Standing(closed=False, order_id=None, known=False)}
            await controller.scheduler_watch.compare()
            assert controller.scheduler_watch.differences_total == before + 1

    play(scene)


def test_a_stray_drain_of_ours_is_lifted_and_one_of_others_is_not() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Watched()
        async with watching(store, scheduler) as controller:
            await quarantined(controller, scheduler)
            (closing,) = (done.id for done in scheduler.done if isinstance(done, Quarantine))
            await controller.desk.release(OPERATOR, H01, "r", override=True)
            await settled(lambda: sum(isinstance(done, Release) for done in scheduler.done) == 1)
            scheduler.stands = {H01: Standing(closed=True, order_id=None)}
            await controller.scheduler_watch.compare()
            assert sum(isinstance(done, Release) for done in scheduler.done) == 1
            scheduler.stands = {H01: Standing(closed=True, order_id=closing)}
            await controller.scheduler_watch.compare()
            # The controller's own loop looks at the same time: it may order it, too.
            await settled(lambda: sum(isinstance(done, Release) for done in scheduler.done) >= 2)

    play(scene)


def test_what_an_earlier_ledger_closed_is_never_opened_by_a_new_one_and_told_once_of_all() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Watched()
        async with watching(store, scheduler) as controller:
            await qualify(controller)
            earlier = OrderId("h01/9/quarantine")
            scheduler.stands = {H01: Standing(closed=True, order_id=earlier, why="gpu 2 is wrong")}
            for _ in range(3):
                await controller.scheduler_watch.compare()
            await settled(lambda: len(scheduler.done) > 0)
            (hold,) = controller.judge.hosts[H01].holds
            assert "gpu 2 is wrong" in hold.reason
            assert controller.scheduler_watch.differences_total == 0
            assert [incident.kind for incident in controller.judge.record.incidents] == [IncidentKind.EARLIER]
            metrics = {m.name: m for m in ControllerCollector(controller).collect()}
            assert metrics["fleetd_hosts_held_by_earlier"].samples[0].value == 1
            # Only a person gives it back, and then with a number that the scheduler takes for the later one.
            await controller.desk.release(OPERATOR, H01, "looked at", override=True)
            await settled(lambda: any(isinstance(done, Release) for done in scheduler.done))
        (told, back) = scheduler.done
        assert isinstance(told, Notify)
        assert isinstance(back, Release)
        assert number_of(back.id) > 9

    play(scene)


def test_a_host_with_an_open_order_and_one_that_changes_meanwhile_are_left_to_the_next_look() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Watched()
        async with watching(store, scheduler) as controller:
            order = await qualify(controller)
            scheduler.failures = 10**6
            await controller.intake.finding(H01, SPOOL, 1, ended(order, bad=5))
            scheduler.stands = {H01: Standing(closed=False, order_id=None)}
            await controller.scheduler_watch.compare()
            assert controller.scheduler_watch.differences_total == 0

    play(scene)


def test_a_job_of_very_many_hosts_counts_once_on_each_over_a_restart() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Watched()
        async with watching(store, scheduler) as controller:
            await qualify(controller)
            scheduler.ends = [job(str(n), ok=True) for n in range(1500)]  # more than decisions look at
            await controller.scheduler_watch.hear(scheduler)
        async with watching(store, scheduler) as controller:
            await controller.scheduler_watch.hear(scheduler)
        entries = store.journal(after=0, limit=9999)
        assert sum(isinstance(entry.event, JobEnded) for _, entry in entries) == 1500

    play(scene)


def test_a_retired_host_claims_no_ends_of_jobs() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Watched()
        async with watching(store, scheduler) as controller:
            await qualify(controller)
            await controller.desk.retire(OPERATOR, H01, "renamed")
            scheduler.ends = [job("1")]
            await controller.scheduler_watch.hear(scheduler)
        assert job_ends(store) == []

    play(scene)


def test_a_scheduler_that_is_away_is_looked_at_again() -> None:
    async def scene() -> None:
        scheduler = Watched()
        scheduler.away = True
        async with watching(MemoryStore(), scheduler) as controller:
            await scheduler.asked.wait()
            await settled(lambda: controller.scheduler_watch.failures_total == 2)

    play(scene)


def test_the_end_of_a_job_counts_once_over_looks_and_restarts() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Watched()
        async with watching(store, scheduler) as controller:
            await qualify(controller)
            scheduler.ends = [job("1"), job("2", ok=True), job("3", host=HostName("unknown"))]
            for _ in range(3):
                await controller.scheduler_watch.hear(scheduler)
        async with watching(store, scheduler) as controller:
            await controller.scheduler_watch.hear(scheduler)
            scheduler.ends.append(job("1", ran_seconds=60.0))  # requeued, and ended again
            await controller.scheduler_watch.hear(scheduler)
            await controller.desk.host(H01)
            await controller.desk.release(OPERATOR, H01, "r", override=True)
        assert job_ends(store) == [("1", 5.0), ("2", 5.0), ("1", 60.0)]

    play(scene)
