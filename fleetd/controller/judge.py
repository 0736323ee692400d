"""One decision after the other: events in, decided by the core, on disk, then told to whoever waits."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from fleetd.controller.dispatcher import Dispatcher
from fleetd.core.fleet import Fleet
from fleetd.core.fleetwide import judge_fleet, rejudgement
from fleetd.core.judgement import judge
from fleetd.core.policy import Policy
from fleetd.core.replay import counts_once
from fleetd.core.step import Step
from fleetd.model.event import AgentConnected, AgentSilent, AnyEvent, Event, FindingReceived, FleetEvent, TimePassed
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.ids import FindingId, HostName, SpoolId
from fleetd.model.journal import JournalEntry, SpoolProgress, StoreImage
from fleetd.ports import Clock, NotJudge, RunBlocking, Store, StoreError

_log = structlog.get_logger(__name__)

QUEUE_MAX = 4096
"""Events waiting for a decision; a sender waits when it is full, which slows its agent's stream down."""
BATCH_MAX = 256
"""Events decided and written in one transaction: one disk sync serves them all."""
GREETING_SECONDS = 30.0
"""So long after a hello no silence is believed: its session takes a moment to begin. If none does, it is told again."""

OVER = "this controller is not the judge any more: ask the one that is"

AnyStep = Step[Host] | Step[None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    event: AnyEvent
    progress: SpoolProgress | None
    decided: "asyncio.Future[AnyStep] | None"
    """None: nobody waits for it, it followed from another decision."""


@dataclass(slots=True, kw_only=True)
class _Batch:
    """What a transaction is about to change."""

    hosts: dict[HostName, Host] = field(default_factory=dict)
    spools: dict[tuple[HostName, SpoolId], int] = field(default_factory=dict)
    entries: list[JournalEntry] = field(default_factory=list)
    decided: list[tuple[_Waiting, AnyStep]] = field(default_factory=list)


class Judge:
    """Owns the fleet's state. Nothing else changes a host."""

    def __init__(
        self,
        *,
        store: Store,
        policy: Policy,
        clock: Clock,
        run_blocking: RunBlocking,
        dispatcher: Dispatcher,
        on_host: Callable[[Host], None] = lambda _: None,
        on_fleet: Callable[[], None] = lambda: None,
    ) -> None:
        """Wire it; `on_host` hears of every host after a decision on it is on disk, `on_fleet` of another record."""
        self._store = store
        self._policy = policy
        self._clock = clock
        self._run_blocking = run_blocking
        self._dispatcher = dispatcher
        self._on_host = on_host
        self._on_fleet = on_fleet
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(maxsize=QUEUE_MAX)
        self._hosts: dict[HostName, Host] = {}
        self._spools: dict[tuple[HostName, SpoolId], int] = {}
        self._fleet = Fleet(policy)
        self._record = self._fleet.record
        self._greeted_s: dict[HostName, float] = {}  # elapsed time of the last hello; bounded by the hosts
        self._over = False
        self.decisions_total = 0
        self.withheld_total = 0
        self.store_errors_total = 0
        self.store_trouble = ""
        """What the ledger said when it refused last; "": it has not since it was written last."""
        self.deciding_since_s: float | None = None
        """Elapsed time at which the batch in hand was begun; None: none is."""

    @property
    def hosts(self) -> Mapping[HostName, Host]:
        """The fleet as decided and written."""
        return self._hosts

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._policy

    @property
    def record(self) -> FleetRecord:
        """Tripped budgets, the kill switch, open incidents, as decided and written."""
        return self._record

    @property
    def fleet(self) -> Fleet:
        """The counts by area; of what is decided and not yet written, too. To be read only."""
        return self._fleet

    @property
    def budget_tripped(self) -> bool:
        """Whether automatic quarantines of some area are withheld until a human re-arms its budget."""
        return bool(self._record.tripped)

    def adopt(self, image: StoreImage) -> None:
        """Go on from a ledger: hosts, spools, what the budgets have spent, and the orders that are still open."""
        self._hosts = {host.name: host for host in image.hosts}
        self._spools = {(host, progress.spool): progress.seq for host, progress in image.spools}
        self._fleet = Fleet.of(image, self._policy)
        self._record = self._fleet.record
        self._dispatcher.issue(image.open_orders)

    def last_seq(self, host: HostName, spool: SpoolId) -> int:
        """Return the highest sequence number on disk for a spool; 0 when it is new."""
        return self._spools.get((host, spool), 0)

    async def submit(self, event: Event, progress: SpoolProgress | None = None) -> Step[Host]:
        """Have an event decided; returns when the decision is on disk.

        Raises StoreError when it could not be, NotJudge when somebody else decides.
        """
        step = await self._put(event, progress)
        assert step.state is not None  # noqa: S101 - an event of a host leads to a step of a host
        return step

    async def submit_fleet(self, event: FleetEvent) -> Step[None]:
        """Have an event of the whole fleet decided, with what it means for each host. Raises StoreError."""
        step = await self._put(event, None)
        assert step.state is None  # noqa: S101 - an event of the fleet leads to a step of the fleet
        return step

    async def _put(self, event: AnyEvent, progress: SpoolProgress | None) -> AnyStep:
        decided: asyncio.Future[AnyStep] = asyncio.get_running_loop().create_future()
        if not self._over:
            await self._queue.put(_Waiting(event, progress, decided))
        if self._over:  # also when it ended while this waited for its place
            raise NotJudge(OVER)
        return await decided

    async def run(self) -> None:
        """Decide until cancelled, or until another controller is the judge: then NotJudge is raised.

        Whatever ends it, nothing is decided afterwards, and everybody who waits is told so.
        """
        batch: list[_Waiting] = []
        try:
            while True:
                batch = [await self._queue.get()]
                while len(batch) < BATCH_MAX and not self._queue.empty():
                    batch.append(self._queue.get_nowait())
                self.deciding_since_s = self._clock.elapsed_s()
                try:
                    await self._decide(batch)
                except NotJudge:
                    raise
                except StoreError as error:
                    self.store_trouble = str(error)
                    self._fleet.roll_back()
                    self.store_errors_total += 1
                    _log.error("the ledger refused; nothing was decided", events=len(batch), error=str(error))
                    _refuse(batch, StoreError(str(error)))
                self.deciding_since_s = None
        finally:
            self._over = True
            while not self._queue.empty():
                batch.append(self._queue.get_nowait())
            _refuse(batch, NotJudge(OVER))

    async def _decide(self, batch: list[_Waiting]) -> None:
        counted = await self._counted_before(batch)
        made = _Batch()
        todo = deque(batch)
        while todo:
            todo.extendleft(reversed(self._decide_one(todo.popleft(), made, counted)))
        if made.entries:
            await self._run_blocking(lambda: self._store.commit(made.entries))
            self.store_trouble = ""
        self._fleet.commit()
        before, self._record = self._record, self._fleet.record
        self._hosts.update(made.hosts)
        self._spools.update(made.spools)
        self._tell(made)
        if self._record != before:
            self._on_fleet()

    def _decide_one(self, waiting: _Waiting, made: _Batch, counted: set[FindingId]) -> list[_Waiting]:
        """Decide one event into the batch; returns what follows from it, to be decided next."""
        event, now_s = waiting.event, self._clock.wall_s()
        before: Host | None = None
        step: AnyStep
        follows: list[Event]
        if isinstance(event, FleetEvent):
            step = judge_fleet(now_s=now_s, record=self._fleet.record, event=event)
            names = () if step.refused else sorted({*self._hosts, *made.hosts})
            known = (made.hosts.get(name) or self._hosts[name] for name in names)
            follows = [e for host in known if (e := rejudgement(event, host)) is not None]
        else:
            before = made.hosts.get(event.host) or self._hosts.get(event.host)
            step = self._step(now_s, before, event, counted)
            follows = list(step.followups)
        made.decided.append((waiting, step))
        if waiting.progress is not None and not isinstance(event, FleetEvent):
            made.spools[event.host, waiting.progress.spool] = waiting.progress.seq
        if not _leaves_no_trace(event, before, step):
            if step.state is not None:
                made.hosts[step.state.name] = step.state
            self._fleet.apply(now_s=now_s, before=before, event=event, step=step)
            made.entries.append(_entry(now_s, waiting, step))
        return [_Waiting(event, None, None) for event in follows]

    async def _counted_before(self, batch: list[_Waiting]) -> set[FindingId]:
        """Findings that were judged before: resent by a new spool, or found again by a repeated run."""
        asked = {w.event.finding.id for w in batch if isinstance(w.event, FindingReceived)}
        if not asked:
            return set()
        known: set[FindingId] = set()

        await self._run_blocking(lambda: known.update(self._store.findings_known(asked)))
        return known

    def _step(self, now_s: float, before: Host | None, event: Event, counted: set[FindingId]) -> Step[Host]:
        if isinstance(event, FindingReceived):
            if event.finding.id in counted and before is not None:
                return Step(state=before, why=counts_once(event.finding.id))
            counted.add(event.finding.id)
        if isinstance(event, AgentSilent) and before is not None and self._is_there(event.host):
            return Step(state=before, why="its agent said hello while its silence was told")
        if isinstance(event, AgentConnected) and not _stale_hello(event, before):
            self._greeted_s[event.host] = self._clock.elapsed_s()
        return judge(now_s=now_s, host=before, event=event, fleet=self._fleet, policy=self._policy)

    def _is_there(self, host: HostName) -> bool:
        """Whether an agent is there that was away when its silence was told: between hello and session none sees it."""
        greeted_s = self._greeted_s.get(host)
        greeted = greeted_s is not None and self._clock.elapsed_s() - greeted_s < GREETING_SECONDS
        return greeted or self._dispatcher.has_session(host)

    def _tell(self, made: _Batch) -> None:
        for waiting, step in made.decided:
            self.decisions_total += 1
            self.withheld_total += len(step.withheld)
            self._dispatcher.issue(step.orders)
            if step.orders or step.withheld or not isinstance(waiting.event, TimePassed | AgentSilent):
                _log.info(
                    "decided",
                    host=step.state.name if step.state is not None else None,
                    on=type(waiting.event).__name__,
                    state=step.state.state if step.state is not None else None,
                    orders=[order.id for order in step.orders],
                    withheld=[withheld.order.id for withheld in step.withheld],
                    why=step.why,
                )
            if waiting.decided is not None and not waiting.decided.done():
                waiting.decided.set_result(step)
        for host in made.hosts.values():
            self._on_host(host)
        if any(isinstance(entry.event, FleetEvent) for entry in made.entries):
            self._dispatcher.reconsider()


def _refuse(batch: list[_Waiting], error: StoreError) -> None:
    """Tell whoever still waits."""
    for waiting in batch:
        if waiting.decided is not None and not waiting.decided.done():
            waiting.decided.set_exception(error)


def _leaves_no_trace(event: AnyEvent, before: Host | None, step: AnyStep) -> bool:
    """Whether there is nothing to write: nothing was due, or a request about a host nobody knows."""
    if isinstance(event, TimePassed | AgentSilent) or _stale_hello(event, before):
        return step.state == before and not step.orders and step.fleet is None
    return before is None and step.refused


def _stale_hello(event: AnyEvent, before: Host | None) -> bool:
    """A hello of an earlier boot: told once, not once a reconnect."""
    return isinstance(event, AgentConnected) and before is not None and event.hello.boot_id in before.boots


def _entry(now_s: float, waiting: _Waiting, step: AnyStep) -> JournalEntry:
    return JournalEntry(
        at_s=now_s,
        event=waiting.event,
        host=step.state,
        orders=step.orders,
        withheld=step.withheld,
        refused=step.refused,
        fleet=step.fleet,
        why=step.why,
        progress=waiting.progress,
    )
