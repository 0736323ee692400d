"""The controller as one thing: judge, intake, dispatcher and desk over the ports that it is given."""

import asyncio

import structlog

from fleetd.controller.changes import ChangeLog
from fleetd.controller.desk import Desk
from fleetd.controller.dispatcher import Dispatcher, DispatcherConfig
from fleetd.controller.intake import Intake
from fleetd.controller.judge import Judge
from fleetd.controller.power import PowerBudgets
from fleetd.controller.power_config import PowerTree
from fleetd.controller.reads import READS_AT_ONCE, FewAtOnce
from fleetd.controller.scheduler_watch import SchedulerWatch, SchedulerWatchConfig
from fleetd.controller.view import View
from fleetd.controller.watch import Watch
from fleetd.core.intent import held_back, recalled, void_since, void_without_node
from fleetd.core.policy import Policy
from fleetd.model.event import OrderObstructed
from fleetd.model.host import Host
from fleetd.model.ids import HostName
from fleetd.model.journal import StoreImage
from fleetd.model.order import FleetOrder
from fleetd.ports import Actuator, Clock, JobEnds, RunBlocking, Store

_log = structlog.get_logger(__name__)


class Controller:
    """Give it ports, then `run()` it; `intake` and `desk` are what the transports call."""

    def __init__(
        self,
        *,
        store: Store,
        actuator: Actuator,
        policy: Policy,
        clock: Clock,
        run_blocking: RunBlocking,
        dispatcher: DispatcherConfig,
        job_ends: JobEnds | None = None,
        scheduler: SchedulerWatchConfig = SchedulerWatchConfig(),  # noqa: B008 - frozen
        power: PowerTree | None = None,
        policy_name: str = "",
        run_deciding: RunBlocking | None = None,
    ) -> None:
        """Wire it.

        `run_deciding` runs what the judge writes, so that no scheduler that hangs and no reader keeps a decision from
        the disk; None: as `run_blocking`, which runs all that blocks besides.
        """
        self._store = store
        reads = FewAtOnce(run_blocking, most=READS_AT_ONCE)
        self.changes = ChangeLog(epoch=f"{round(clock.wall_s() * 1000):x}")
        self.dispatcher = Dispatcher(
            store=store, actuator=actuator, clock=clock, run_blocking=run_blocking, config=dispatcher
        )
        self.judge = Judge(
            store=store,
            policy=policy,
            clock=clock,
            run_blocking=run_deciding or run_blocking,
            dispatcher=self.dispatcher,
            on_host=self._host_changed,
            on_fleet=lambda: self.changes.note(None),
        )
        self.power = PowerBudgets(power, clock=clock)
        self.intake = Intake(judge=self.judge, dispatcher=self.dispatcher, clock=clock, power=self.power)
        self.watch = Watch(judge=self.judge, dispatcher=self.dispatcher, telemetry=self.intake.telemetry, clock=clock)
        self.scheduler_watch = SchedulerWatch(
            judge=self.judge,
            dispatcher=self.dispatcher,
            actuator=actuator,
            job_ends=job_ends,
            clock=clock,
            config=scheduler,
        )
        self._wire()
        telemetry = self.intake.telemetry
        self.desk = Desk(judge=self.judge, store=store, telemetry=telemetry, run_blocking=reads, power=self.power)
        self.view = View(
            judge=self.judge,
            store=store,
            dispatcher=self.dispatcher,
            changes=self.changes,
            windows=self.intake.windows,
            clock=clock,
            run_blocking=reads,
            policy_name=policy_name,
        )

    def _wire(self) -> None:
        """Tell the dispatcher whom to ask and whom to tell."""
        self.dispatcher.on_obstacle = self._obstructed
        self.dispatcher.on_session = self._session_changed
        self.dispatcher.void_since = lambda order: void_since(order, self.judge.hosts.get(order.host))
        self.dispatcher.void_without_node = lambda order: void_without_node(order, self.judge.hosts.get(order.host))
        self.dispatcher.held_back = lambda order: held_back(
            order, self.judge.hosts.get(order.host), self.judge.record.stopped
        )
        self.dispatcher.recalled = lambda host: recalled(self.judge.hosts.get(host), self.judge.record.stopped)

    def load(self) -> None:
        """Go on from the ledger. Raises StoreError."""
        self.adopt(self._store.load())

    def adopt(self, image: StoreImage) -> None:
        """Go on from what was read of the ledger."""
        self.judge.adopt(image)
        self.scheduler_watch.adopt(image.jobs_heard)
        for host in image.hosts:
            self.watch.host_changed(host)
        _log.info("ledger loaded", hosts=len(image.hosts), open_orders=len(image.open_orders))

    async def run(self) -> None:
        """Judge, dispatch and watch the time until cancelled; raises a group with NotJudge when another one judges."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.judge.run())
            group.create_task(self.dispatcher.run())
            group.create_task(self.watch.run())
            group.create_task(self.scheduler_watch.run())

    async def _obstructed(self, order: FleetOrder, why: str) -> None:
        await self.judge.submit(OrderObstructed(host=order.host, order_id=order.id, why=why))

    def _session_changed(self, host: HostName, there: bool) -> None:
        self.watch.session_changed(host, there)
        self.changes.note(host)

    def _host_changed(self, host: Host) -> None:
        self.changes.note(host.name)
        self.watch.host_changed(host)
        self.dispatcher.reconsider(host.name)
