"""The controller as one thing: judge, intake, dispatcher and desk over the ports that it is given."""

import asyncio

import structlog

from fleetd.controller.desk import Desk
from fleetd.controller.dispatcher import Dispatcher, DispatcherConfig
from fleetd.controller.intake import Intake
from fleetd.controller.judge import Judge
from fleetd.core.policy import Policy
from fleetd.model.event import TimePassed
from fleetd.ports import Actuator, Clock, RunBlocking, Store, StoreError

_log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
"""How often hosts that wait for a burn-in are looked at: how late a time-out may be seen."""


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
    ) -> None:
        self._store = store
        self._clock = clock
        self.dispatcher = Dispatcher(
            store=store, actuator=actuator, clock=clock, run_blocking=run_blocking, config=dispatcher
        )
        self.judge = Judge(
            store=store, policy=policy, clock=clock, run_blocking=run_blocking, dispatcher=self.dispatcher
        )
        self.intake = Intake(judge=self.judge, dispatcher=self.dispatcher)
        self.desk = Desk(judge=self.judge, store=store, telemetry=self.intake.telemetry, run_blocking=run_blocking)

    def load(self) -> None:
        """Go on from the ledger. Raises StoreError."""
        image = self._store.load()
        self.judge.adopt(image)
        _log.info("ledger loaded", hosts=len(image.hosts), open_orders=len(image.open_orders))

    async def run(self) -> None:
        """Judge, dispatch and watch the time until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.judge.run())
            group.create_task(self.dispatcher.run())
            group.create_task(self._watch_time())

    async def _watch_time(self) -> None:
        while True:
            await self._clock.sleep_s(TICK_SECONDS)
            waiting = [host.name for host in self.judge.hosts.values() if host.pending is not None]
            for name in waiting:
                try:
                    await self.judge.submit(TimePassed(host=name))
                except StoreError:
                    break  # the judge has logged and counted it; the next tick looks again
