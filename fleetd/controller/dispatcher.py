"""Has open orders carried out: fleet orders by the actuator, burn-ins by the host's agent. Each once in effect."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import structlog

from fleetd.controller.outbox import attempt
from fleetd.controller.retries import RETRY_AFTER_MAX_S, DispatcherConfig, Trouble
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import AgentOrder, FleetOrder, Notify, Order, RecallBurnin, RunBurnin
from fleetd.ports import (
    Actuator,
    ActuatorError,
    ActuatorObjection,
    Clock,
    NotJudge,
    PortError,
    RunBlocking,
    Store,
    StoreError,
)

__all__ = ["Dispatcher", "DispatcherConfig"]

_log = structlog.get_logger(__name__)


class Dispatcher:
    """Outbox worker. An order leaves it only when somebody said that it is done, refused or void."""

    def __init__(
        self, *, store: Store, actuator: Actuator, clock: Clock, run_blocking: RunBlocking, config: DispatcherConfig
    ) -> None:
        self._store = store
        self._actuator = actuator
        self._clock = clock
        self._run_blocking = run_blocking
        self._config = config
        self._fleet: dict[HostName, deque[FleetOrder]] = {}
        self._parked: set[HostName] = set()  # of those in `_fleet`: nothing of theirs may go out now
        self._held: set[HostName] = set()  # of the parked ones: something of theirs is held back
        self._trouble: dict[OrderId, Trouble] = {}  # of orders in `_fleet`
        self._wakes: asyncio.Queue[tuple[HostName, float]] = asyncio.Queue()  # bounded by the attempts under way
        self._parked_burnins: dict[HostName, dict[OrderId, RunBurnin]] = {}  # of the present sessions
        self._ready: asyncio.Queue[HostName] = asyncio.Queue()  # bounded by the number of hosts: one entry a host
        self._burnins: dict[HostName, dict[OrderId, RunBurnin]] = {}
        self._sessions: dict[HostName, asyncio.Queue[AgentOrder | None]] = {}
        self._recalled: dict[HostName, OrderId] = {}  # what each present session was told to stop
        self._ahead_s: dict[HostName, float] = {}  # bounded by the number of hosts
        self.void_since: Callable[[Order], str | None] = lambda _order: None
        """Says why an order is not meant any more; asked right before each attempt to carry one out."""
        self.void_without_node: Callable[[Order], str | None] = lambda _order: None
        """The same, when the scheduler has no node of its host."""
        self.held_back: Callable[[Order], str | None] = lambda _order: None
        """Says why an order that is meant has to wait; asked at the same moments. See `reconsider`."""
        self.on_obstacle: Callable[[FleetOrder, str], Awaitable[None]] = _nobody_hears
        """Hears why an order is not carried out, when a human is to be told. May raise StoreError: it is told again."""
        self.recalled: Callable[[HostName], RecallBurnin | None] = lambda _host: None
        """Says which burn-in an agent that has it is to stop; asked at the same moments."""
        self.on_session: Callable[[HostName, bool], None] = lambda _host, _there: None
        """Hears of each agent that comes and goes."""
        self.failures_total = 0
        self.carried_out_total = 0
        self.void_total = 0
        self.given_up_total = 0

    @property
    def connected(self) -> frozenset[HostName]:
        """Hosts whose agent has a stream open."""
        return frozenset(self._sessions)

    @property
    def open_orders(self) -> int:
        """Orders that nobody has confirmed."""
        return sum(map(len, self._fleet.values())) + sum(map(len, self._burnins.values()))

    @property
    def hosts_held_back(self) -> int:
        """Hosts with open orders that wait because automation is stopped."""
        return len(self._held.union(self._parked_burnins))

    @property
    def busy(self) -> frozenset[HostName]:
        """Hosts with open orders for the scheduler."""
        return frozenset(host for host, orders in self._fleet.items() if any(not isinstance(o, Notify) for o in orders))

    @property
    def orders_in_trouble(self) -> int:
        """Open orders for the scheduler whose last attempt failed."""
        troubles = list(self._trouble.values())  # at once: a scrape asks on its own thread, while orders come and go
        return sum(trouble.failures > 0 for trouble in troubles)

    def has_session(self, host: HostName) -> bool:
        """Whether the agent of a host has a stream open."""
        return host in self._sessions

    def set_skew(self, host: HostName, skew_s: float) -> None:
        """Note how far the clock of a host is ahead of ours: its orders are sent in its time."""
        # Against our monotonic clock: our own wall clock may be set while the host stays connected.
        self._ahead_s[host] = skew_s + self._clock.wall_s() - self._clock.elapsed_s()

    def issue(self, orders: Sequence[Order]) -> None:
        """Take over orders that are on disk."""
        for order in orders:
            if isinstance(order, RunBurnin):
                self._burnins.setdefault(order.host, {})[order.id] = order
                session = self._sessions.get(order.host)
                if session is not None:
                    session.put_nowait(order)
                continue
            waiting = self._fleet.setdefault(order.host, deque())
            waiting.append(order)
            if len(waiting) == 1:
                self._ready.put_nowait(order.host)
            else:
                self._unpark(order.host)

    def reconsider(self, host: HostName | None = None) -> None:
        """Look again at the orders that were held back, of one host or of all: something has changed."""
        names = (host,) if host is not None else sorted({*self._parked, *self._parked_burnins, *self._sessions})
        for name in names:  # everybody is only gathered for a word to all: one host is looked at after each decision
            self._unpark(name)
            self._recall(name)
            session = self._sessions.get(name)
            for order in self._parked_burnins.pop(name, {}).values():
                if session is not None:
                    session.put_nowait(order)

    def _recall(self, host: HostName) -> None:
        """Tell the agent of a host to stop what is taken back, once a session: a later one is told again."""
        session, recall = self._sessions.get(host), self.recalled(host)
        if session is None or recall is None or self._recalled.get(host) == recall.order_id:
            return
        self._recalled[host] = recall.order_id
        session.put_nowait(recall)
        _log.info("burn-in recalled", host=host, order=recall.order_id, why=recall.why)

    def _unpark(self, host: HostName) -> None:
        if host in self._parked:
            self._parked.remove(host)
            self._held.discard(host)
            self._ready.put_nowait(host)

    async def run(self) -> None:
        """Carry out fleet orders until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._config.workers):
                group.create_task(self._work())
            while True:
                host, delay_s = await self._wakes.get()
                group.create_task(self._wake(host, delay_s))  # at most one an attempt: it ends within the longest wait

    async def _wake(self, host: HostName, delay_s: float) -> None:
        """Look at a host again after a while: no worker waits for it meanwhile."""
        await self._clock.sleep_s(delay_s)
        self._unpark(host)

    async def _work(self) -> None:
        while True:
            host = await self._ready.get()
            waiting = self._fleet[host]
            # What may go out overtakes what is held back or waits: word to a human, what a person asked for since.
            order = next((o for o in waiting if self._may_go(o)), None)
            if order is None or not await self._attempt(order):
                self._park(host)
                continue
            waiting.remove(order)
            self._trouble.pop(order.id, None)
            if waiting:
                self._ready.put_nowait(host)
            else:
                del self._fleet[host]

    def _may_go(self, order: FleetOrder) -> bool:
        """Whether there is something to do about an order now."""
        trouble = self._trouble.get(order.id)
        if trouble is not None and self._elapsed() < trouble.again_s:
            return False
        return self.void_since(order) is not None or self.held_back(order) is None

    def _park(self, host: HostName) -> None:
        """Nothing of a host can be done now: a wake or a change brings it back."""
        waiting = self._fleet[host]
        if any(self._may_go(order) for order in waiting):
            self._ready.put_nowait(host)  # something came while the attempt was under way
            return
        self._parked.add(host)
        if any(self.held_back(order) is not None for order in waiting):
            self._held.add(host)
            _log.info("orders held back", host=host, orders=len(waiting))

    async def _attempt(self, order: FleetOrder) -> bool:
        """Try an order once; False when it is not done, and then it is known when to try again."""
        try:
            tried = await attempt(
                order,
                store=self._store,
                actuator=self._actuator,
                run_blocking=self._run_blocking,
                void_since=self.void_since,
                void_without_node=self.void_without_node,
                held_back=self.held_back,
            )
        except NotJudge:
            raise  # nothing is tried again here: it ends this controller's time
        except (ActuatorError, StoreError) as error:
            return await self._failed(order, error)
        if tried is None:
            _log.info("another controller is at this order", order=order.id)
            self._later(order, self._config.retry_first_seconds)
        elif tried.held_back:
            _log.info("order held back", order=order.id, why=tried.why)  # `reconsider` brings it back
        elif not tried.done:
            _log.info("order under way", order=order.id, why=tried.why)
            self._later(order, self._config.retry_max_seconds).failures = 0
        elif tried.void:
            self.void_total += 1
            _log.info("order void", order=order.id, why=tried.why)
        else:
            self.carried_out_total += 1
            _log.info("order carried out", order=order.id, actuator=self._actuator.name, why=tried.why)
        return tried is not None and tried.done

    async def _failed(self, order: FleetOrder, error: PortError) -> bool:
        """Plan the next attempt and see whether a human is to be told; True when there is to be none."""
        self.failures_total += 1
        failures = self._trouble[order.id].failures if order.id in self._trouble else 0
        delay_s = min(self._config.retry_first_seconds * 2.0 ** min(failures, 30), self._config.retry_max_seconds)
        if isinstance(error, ActuatorError) and error.retry_after_s is not None:
            delay_s = max(delay_s, min(error.retry_after_s, RETRY_AFTER_MAX_S))
        _log.warning("order failed, will be tried again", order=order.id, error=str(error), delay_s=delay_s)
        trouble = self._later(order, delay_s)
        trouble.failures = failures + 1
        if isinstance(order, Notify):
            return trouble.failures >= self._config.page_attempts and await self._give_up(order, str(error))
        definite = isinstance(error, ActuatorObjection)
        if definite or trouble.failures >= self._config.tell_after_attempts:
            why, now_s = str(error) if definite else f"{trouble.failures} attempts failed: {error}", self._elapsed()
            kind = str(error) if definite else "failing"  # the words of a failure change from attempt to attempt
            if trouble.told != kind or now_s - trouble.told_s >= self._config.tell_again_seconds:
                trouble.told, trouble.told_s = kind, now_s
                try:
                    await self.on_obstacle(order, why)
                except StoreError as refused:
                    trouble.told = None
                    _log.warning("nobody could be told", order=order.id, error=str(refused))
        return False

    async def _give_up(self, order: Notify, error: str) -> bool:
        try:
            await self._run_blocking(partial(self._store.finish_order, order.id, f"given up: {error}"))
        except StoreError as refused:
            _log.warning("a message could not be closed", order=order.id, error=str(refused))
            return False
        self.given_up_total += 1
        _log.error("a message to a human was not delivered", order=order.id, why=order.why, error=error)
        return True

    def _later(self, order: FleetOrder, delay_s: float) -> Trouble:
        trouble = self._trouble.setdefault(order.id, Trouble())
        trouble.again_s = self._elapsed() + delay_s
        self._wakes.put_nowait((order.host, delay_s))
        return trouble

    def _elapsed(self) -> float:
        return self._clock.elapsed_s()

    async def agent_orders(self, host: HostName) -> AsyncIterator[AgentOrder]:
        """Burn-ins for one host and their recalls, the open first; ends when a newer connection takes over."""
        session: asyncio.Queue[AgentOrder | None] = asyncio.Queue()
        older = self._sessions.get(host)
        if older is not None:
            older.put_nowait(None)
        self._sessions[host] = session
        self._parked_burnins.pop(host, None)
        self.on_session(host, True)  # noqa: FBT003 - a plain callback
        for order in self._burnins.get(host, {}).values():
            session.put_nowait(order)
        self._recalled.pop(host, None)
        self._recall(host)
        try:
            while (order_or_end := await session.get()) is not None:
                if isinstance(order_or_end, RecallBurnin):
                    yield order_or_end
                    continue
                if order_or_end.id not in self._burnins.get(host, {}):
                    continue
                if order_or_end.not_after_s < self._clock.wall_s():
                    await self.finish_burnin(host, order_or_end.id, "void: its time ran out before the agent had it")
                    continue
                void = self.void_since(order_or_end)
                if void is not None:
                    self.void_total += 1
                    _log.info("order void", order=order_or_end.id, why=void)
                    await self.finish_burnin(host, order_or_end.id, f"void: {void}")
                    continue
                if (held_back := self.held_back(order_or_end)) is not None:
                    _log.info("order held back", order=order_or_end.id, why=held_back)
                    self._parked_burnins.setdefault(host, {})[order_or_end.id] = order_or_end
                    continue
                yield self._in_its_time(order_or_end)
        finally:
            if self._sessions.get(host) is session:
                del self._sessions[host]
                self._recalled.pop(host, None)
                self._parked_burnins.pop(host, None)  # a later session begins with all that are open
                self.on_session(host, False)  # noqa: FBT003 - a plain callback

    def _in_its_time(self, order: RunBurnin) -> RunBurnin:
        """The order with its times on the clock of the host, which decides there whether it came too late."""
        ours_s = self._clock.wall_s() - self._clock.elapsed_s()
        skew_s = round(self._ahead_s.get(order.host, ours_s) - ours_s, 3)  # no noise where there is no skew
        return replace(order, issued_at_s=order.issued_at_s + skew_s, not_after_s=order.not_after_s + skew_s)

    async def finish_burnin(self, host: HostName, order_id: OrderId, result: str) -> None:
        """Close a burn-in order: its agent has it on disk, refused it, or it is void. Raises StoreError."""
        await self._run_blocking(partial(self._store.finish_order, order_id, result))
        self._burnins.get(host, {}).pop(order_id, None)


async def _nobody_hears(_order: FleetOrder, _why: str) -> None:
    """Tell nobody: until somebody wants to hear it."""
