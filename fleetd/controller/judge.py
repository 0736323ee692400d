"""One decision after the other: events in, decided by the core, on disk, then told to whoever waits."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from fleetd.controller.dispatcher import Dispatcher
from fleetd.core.budget import FleetView, after, view_of
from fleetd.core.judgement import judge
from fleetd.core.policy import Policy
from fleetd.core.step import Step
from fleetd.model.event import Event, FindingReceived, TimePassed
from fleetd.model.host import Host
from fleetd.model.ids import FindingId, HostName, SpoolId
from fleetd.model.journal import JournalEntry, SpoolProgress, StoreImage
from fleetd.ports import Clock, RunBlocking, Store, StoreError

_log = structlog.get_logger(__name__)

QUEUE_MAX = 4096
"""Events waiting for a decision; a sender waits when it is full, which slows its agent's stream down."""
BATCH_MAX = 256
"""Events decided and written in one transaction: one disk sync serves them all."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    event: Event
    progress: SpoolProgress | None
    decided: "asyncio.Future[Step[Host]]"


class Judge:
    """Owns the fleet's state. Nothing else changes a host."""

    def __init__(
        self, *, store: Store, policy: Policy, clock: Clock, run_blocking: RunBlocking, dispatcher: Dispatcher
    ) -> None:
        self._store = store
        self._policy = policy
        self._clock = clock
        self._run_blocking = run_blocking
        self._dispatcher = dispatcher
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(maxsize=QUEUE_MAX)
        self._hosts: dict[HostName, Host] = {}
        self._spools: dict[tuple[HostName, SpoolId], int] = {}
        self._fleet = FleetView()
        self.decisions_total = 0
        self.withheld_total = 0
        self.store_errors_total = 0

    @property
    def hosts(self) -> Mapping[HostName, Host]:
        """The fleet as decided and written."""
        return self._hosts

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._policy

    def adopt(self, image: StoreImage) -> None:
        """Go on from a ledger: hosts, spools, what the budgets have spent, and the orders that are still open."""
        self._hosts = {host.name: host for host in image.hosts}
        self._spools = {(host, progress.spool): progress.seq for host, progress in image.spools}
        self._fleet = view_of(
            image.hosts,
            quarantined_at_s=image.quarantined_at_s,
            budget=self._policy.budgets.quarantines,
            tripped=image.budget_tripped,
        )
        self._dispatcher.issue(image.open_orders)

    @property
    def budget_tripped(self) -> bool:
        """Whether automatic quarantines are withheld until a human re-arms the budget."""
        return self._fleet.tripped

    async def rearm_budget(self, who: str, reason: str) -> None:
        """Let automatic quarantines through again; what was withheld stays withheld. Raises StoreError."""
        now_s = self._clock.wall_s()
        await self._run_blocking(lambda: self._store.rearm_budget(at_s=now_s, who=who, reason=reason))
        self._fleet = replace(self._fleet, tripped=False)
        _log.warning("quarantine budget re-armed", who=who, reason=reason)

    def last_seq(self, host: HostName, spool: SpoolId) -> int:
        """Return the highest sequence number on disk for a spool; 0 when it is new."""
        return self._spools.get((host, spool), 0)

    async def submit(self, event: Event, progress: SpoolProgress | None = None) -> Step[Host]:
        """Have an event decided; returns when the decision is on disk. Raises StoreError when it could not be."""
        decided: asyncio.Future[Step[Host]] = asyncio.get_running_loop().create_future()
        await self._queue.put(_Waiting(event, progress, decided))
        return await decided

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH_MAX and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                await self._decide(batch)
            except StoreError as error:
                self.store_errors_total += 1
                _log.error("the ledger refused; nothing was decided", events=len(batch), error=str(error))
                for waiting in batch:
                    if not waiting.decided.done():
                        waiting.decided.set_exception(StoreError(str(error)))

    async def _decide(self, batch: list[_Waiting]) -> None:
        counted = await self._counted_before(batch)
        hosts: dict[HostName, Host] = {}
        spools: dict[tuple[HostName, SpoolId], int] = {}
        fleet = self._fleet
        steps: list[Step[Host]] = []
        entries: list[JournalEntry] = []
        for waiting in batch:
            event, now_s = waiting.event, self._clock.wall_s()
            before = hosts.get(event.host) or self._hosts.get(event.host)
            step = self._step(now_s, before, event, fleet, counted)
            steps.append(step)
            if waiting.progress is not None:
                spools[event.host, waiting.progress.spool] = waiting.progress.seq
            if _leaves_no_trace(event, before, step):
                continue
            hosts[event.host] = step.state
            fleet = after(fleet, before=before, step=step, now_s=now_s, budget=self._policy.budgets.quarantines)
            entries.append(_entry(now_s, waiting, step))
        if entries:
            await self._run_blocking(lambda: self._store.commit(entries))
        self._hosts.update(hosts)
        self._spools.update(spools)
        self._fleet = fleet
        self._tell(batch, steps)

    async def _counted_before(self, batch: list[_Waiting]) -> set[FindingId]:
        """Findings that were judged before: resent by a new spool, or found again by a repeated run."""
        asked = {w.event.finding.id for w in batch if isinstance(w.event, FindingReceived)}
        if not asked:
            return set()
        known: set[FindingId] = set()

        def look() -> None:
            known.update(finding for finding in asked if self._store.finding_known(finding))

        await self._run_blocking(look)
        return known

    def _step(
        self, now_s: float, before: Host | None, event: Event, fleet: FleetView, counted: set[FindingId]
    ) -> Step[Host]:
        if isinstance(event, FindingReceived):
            if event.finding.id in counted and before is not None:
                return Step(state=before, orders=(), why=f"finding {event.finding.id} again: it counts once")
            counted.add(event.finding.id)
        return judge(now_s=now_s, host=before, event=event, fleet=fleet, policy=self._policy)

    def _tell(self, batch: list[_Waiting], steps: list[Step[Host]]) -> None:
        for waiting, step in zip(batch, steps, strict=True):
            self.decisions_total += 1
            self.withheld_total += len(step.withheld)
            self._dispatcher.issue(step.orders)
            if step.orders or step.withheld or not isinstance(waiting.event, TimePassed):
                _log.info(
                    "decided",
                    host=step.state.name,
                    on=type(waiting.event).__name__,
                    state=step.state.state,
                    orders=[order.id for order in step.orders],
                    withheld=[withheld.order.id for withheld in step.withheld],
                    why=step.why,
                )
            if not waiting.decided.done():
                waiting.decided.set_result(step)


def _leaves_no_trace(event: Event, before: Host | None, step: Step[Host]) -> bool:
    """Whether there is nothing to write: time passed and nothing was due, or a request about a host nobody knows."""
    if isinstance(event, TimePassed):
        return step.state == before and not step.orders
    return before is None and step.refused


def _entry(now_s: float, waiting: _Waiting, step: Step[Host]) -> JournalEntry:
    return JournalEntry(
        at_s=now_s,
        event=waiting.event,
        host=step.state,
        orders=step.orders,
        withheld=step.withheld,
        refused=step.refused,
        trips_budget=step.trips_budget,
        why=step.why,
        progress=waiting.progress,
    )
