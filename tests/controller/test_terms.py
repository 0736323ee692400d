"""Several controllers on one ledger: one judges, the others say who, and a stale one neither writes nor acts."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.controller import terms
from fleetd.controller.controller import Controller
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.controller.metrics import TurnCollector
from fleetd.controller.terms import Terms
from fleetd.controller.turn import AgentsOfTurn, DeskOfTurn, Turn
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName, OrderId, SpoolId
from fleetd.model.journal import JournalEntry
from fleetd.model.order import FleetOrder, Order, Quarantine
from fleetd.ports import NotJudge, OtherSchema, Peer, Receipt, Standing, Store, StoreError
from fleetd.stores.memory import MemoryStore, Unshared
from fleetd.stores.postgres import PgStore
from fleetd.system import RealClock, run_blocking
from tests.postgres import Cluster
from tests.stores.ledgers import Ledgerer, burnin, hello

H1, SPOOL = HostName("h1"), SpoolId("s")
AGENT, EVE = Peer(name="h1", role="agent"), Peer(name="eve", role="operator")


class Scheduler:
    name = "fake"

    def __init__(self) -> None:
        self.done: list[FleetOrder] = []

    async def standing(self, hosts: object) -> dict[HostName, Standing]:
        del hosts
        return {}

    async def carry_out(self, order: FleetOrder) -> Receipt:
        self.done.append(order)
        return Receipt(order_id=order.id, done=True, why="done")


class Database:
    """One ledger, one place for a judge, and what can befall both."""

    def __init__(self) -> None:
        self.disk = MemoryStore()
        self.term = 0
        self.judge: Seat | None = None
        self.away: StoreError | None = None
        self.hangs = False


class Fenced(MemoryStore):
    """The ledger of one term."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._term = database.term
        self.__dict__.update(
            {k: v for k, v in database.disk.__dict__.items() if k.startswith("_")}
        )  # shared, not copied

    def _see_term(self) -> None:
        if self._database.term != self._term:
            raise NotJudge("another controller is the judge by now")
        if self._database.away is not None:
            raise self._database.away

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        self._see_term()
        super().commit(entries)

    def finish_order(self, order: OrderId, result: str) -> None:
        self._see_term()
        super().finish_order(order, result)

    def claim(self, order: OrderId) -> Unshared:
        self._see_term()
        return super().claim(order)


class Seat:
    """A `Seat` of the database."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self.rival = ""
        self.taken = 0

    def take(self) -> Store | None:
        if self._database.away is not None:
            raise self._database.away
        if self._database.judge not in {None, self}:
            self.rival = self._database.judge._name  # type: ignore[union-attr]
            return None
        self._database.judge = self
        self._database.term += 1
        self.taken += 1
        return Fenced(self._database)

    def held(self) -> None:
        if self._database.away is not None:
            raise self._database.away
        if self._database.judge is not self:
            raise NotJudge("another controller is the judge by now")

    def leave(self) -> None:
        if self._database.judge is self:
            self._database.judge = None


class Process:
    """One controller: its doors, its terms."""

    def __init__(self, database: Database, name: str) -> None:
        self.turn = Turn()
        self.agents, self.desk = AgentsOfTurn(self.turn), DeskOfTurn(self.turn)
        self.seat, self.scheduler = Seat(database, name), Scheduler()
        self._database = database
        self.terms = Terms(
            self.seat, turn=self.turn, clock=RealClock(), run_blocking=self._run_blocking, judge=self._judge
        )

    async def _run_blocking(self, function: Callable[[], object]) -> object:
        if self._database.hangs and function == self.seat.held:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return function()

    async def _judge(self, store: Store) -> None:
        controller = Controller(
            store=store,
            actuator=self.scheduler,
            policy=load_policy(policy_path("default")),
            clock=RealClock(),
            run_blocking=self._run_blocking,
            dispatcher=DispatcherConfig(),
        )
        controller.load()
        self.turn.begin(controller)
        try:
            await controller.run()
        finally:
            self.turn.end()

    async def until(self, *, judges: bool) -> None:
        await eventually(lambda: (self.turn.controller is not None) == judges)

    def leader(self) -> float:
        families = {family.name: family for family in TurnCollector(self.turn).collect()}
        value: float = families["fleetd_controller_leader"].samples[0].value
        assert ("fleetd_hosts" in families) == bool(value)
        return value


@asynccontextmanager
async def running(process: Process) -> AsyncIterator[Process]:
    async with asyncio.TaskGroup() as group:  # a bug ends the scene at once
        task = group.create_task(process.terms.run())
        yield process
        task.cancel()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "TRY_SECONDS", 0.001)
    monkeypatch.setattr(terms, "LOOK_SECONDS", 0.001)


async def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(30_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await scene()

    asyncio.run(limited())


def test_one_judges_and_the_other_says_who_it_is() -> None:
    async def scene() -> None:
        database = Database()
        async with running(Process(database, "c1")) as first:
            await first.until(judges=True)
            await first.agents.hello(AGENT, hello("h1").hello, SPOOL)
            async with running(Process(database, "c2")) as second:
                await eventually(lambda: second.turn.rival == "c1")
                assert (first.leader(), second.leader()) == (1.0, 0.0)
                with pytest.raises(NotJudge, match="stands by, the judge is c1"):
                    await second.agents.hello(AGENT, hello("h1").hello, SPOOL)
                with pytest.raises(NotJudge):
                    await second.desk.quarantine(EVE, H1, "r")
                assert [host.name for host in await first.desk.hosts()] == ["h1"]
                with pytest.raises(NotJudge):
                    await second.desk.hosts()

    play(scene)


def test_the_next_judge_goes_on_from_what_was_written() -> None:
    async def scene() -> None:
        database = Database()
        async with running(Process(database, "c2")) as second, running(Process(database, "c1")) as first:
            await eventually(lambda: first.seat.taken + second.seat.taken > 0)
            judge, other = (first, second) if first.seat.taken else (second, first)
            await judge.until(judges=True)
            await judge.agents.hello(AGENT, hello("h1").hello, SPOOL)
            await judge.desk.quarantine(EVE, H1, "a look")
            database.judge, database.term = other.seat, database.term  # its session was cut: the other one has it
            await judge.until(judges=False)
            await other.until(judges=True)
            (host,) = await other.desk.hosts()
            assert host.state is Lifecycle.QUARANTINED
            with pytest.raises(NotJudge, match="connect again"):  # it said hello to the one before
                await other.agents.finding(H1, SPOOL, 1, burnin("h1", "f", 1.0).finding)

    play(scene)


def test_who_waits_for_a_judge_that_lost_its_term_is_told_so_and_nothing_was_done() -> None:
    async def scene() -> None:
        database = Database()
        async with running(Process(database, "c1")) as process:
            await process.until(judges=True)
            await process.agents.hello(AGENT, hello("h1").hello, SPOOL)
            written = len(database.disk.journal(after=0, limit=99))
            database.term += 1  # another one began to write, and nobody has noticed yet
            asked = [process.desk.quarantine(EVE, H1, f"r{n}") for n in range(5)]
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(answer, NotJudge)
            await eventually(lambda: process.seat.taken == 2)  # it stands for election again, and begins anew
            await process.until(judges=True)
            assert len(database.disk.journal(after=0, limit=99)) == written
            assert process.scheduler.done == []
            with pytest.raises(NotJudge, match="connect again"):
                await process.agents.order_confirmed(H1, OrderId("h1/1/burnin"), "")
            await process.desk.quarantine(EVE, H1, "again")

    play(scene)


def test_a_database_that_is_away_ends_the_term_and_the_next_begins_when_it_is_back() -> None:
    async def scene() -> None:
        database = Database()
        async with running(Process(database, "c1")) as process:
            await process.until(judges=True)
            database.away = StoreError("postgresql://db/fleet: connection refused")
            await process.until(judges=False)
            with pytest.raises(NotJudge, match="a judge is being elected"):
                await process.desk.hosts()
            database.away = None
            await process.until(judges=True)
            assert process.turn.number == 2

    play(scene)


def test_a_look_that_hangs_ends_the_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "PATIENCE_SECONDS", 0.05)

    async def scene() -> None:
        database = Database()
        async with running(Process(database, "c1")) as process:
            await process.until(judges=True)
            database.hangs = True
            await eventually(lambda: process.turn.number > 1)
            database.hangs = False
            await process.until(judges=True)

    play(scene)


def test_the_first_contact_decides_whether_it_can_start() -> None:
    async def scene() -> None:
        database = Database()
        database.away = StoreError("no such database")
        with pytest.raises(StoreError, match="no such database"):
            await Process(database, "c1").terms.run()

    play(scene)


def test_a_ledger_of_a_newer_version_ends_an_older_controller_whenever_it_appears() -> None:
    async def scene() -> None:
        database = Database()
        process = Process(database, "c1")
        task = asyncio.create_task(process.terms.run())
        await process.until(judges=True)
        database.away = OtherSchema("schema 0099 was written by a newer fleetd")
        with pytest.raises(OtherSchema):
            await task
        assert database.judge is None

    play(scene)


def test_a_bug_in_a_term_ends_the_process() -> None:
    async def broken(store: Store) -> None:
        raise ZeroDivisionError(store)

    async def scene() -> None:
        process = Process(Database(), "c1")
        process.terms._judge = broken
        with pytest.raises(ZeroDivisionError):
            await process.terms.run()

    play(scene)


# ── on a real database ──────────────────────────────────────────────────────────────────────────────────────────────


def quarantines(store: Store) -> list[Order]:
    return [order for order in store.load().open_orders if isinstance(order, Quarantine)]


def made(store: Store, scheduler: Scheduler) -> Controller:
    return Controller(
        store=store,
        actuator=scheduler,
        policy=load_policy(policy_path("default")),
        clock=RealClock(),
        run_blocking=run_blocking,
        dispatcher=DispatcherConfig(retry_first_seconds=0.01),
    )


def test_a_stale_judge_acts_on_nothing(postgres: Cluster) -> None:
    """It believes that it has to quarantine a host, and does not know yet that another one judges."""

    async def scene() -> None:
        place, history = postgres.place(), Ledgerer()
        history.join(0.0, ["h1"])
        history.at(100.0, burnin("h1", "f1", 99.0))
        with closing(PgStore(place)) as store:
            store.commit(history.entries)
            stale, stale_scheduler = made(store, scheduler := Scheduler()), scheduler
            stale.load()
            with closing(PgStore(place)) as successor:
                with pytest.raises(ExceptionGroup) as ended:
                    await stale.run()
                assert ended.group_contains(NotJudge)
                assert stale_scheduler.done == []
                current = made(successor, scheduler := Scheduler())
                current.load()
                task = asyncio.create_task(current.run())
                await eventually(lambda: not quarantines(successor))
                assert [order.id for order in scheduler.done].count(OrderId("h1/2/quarantine")) == 1
                task.cancel()
                await asyncio.wait({task})

    play(scene)


def test_an_order_in_another_controllers_hands_waits(postgres: Cluster) -> None:
    async def scene() -> None:
        place, history = postgres.place(), Ledgerer()
        history.join(0.0, ["h1"])
        history.at(100.0, burnin("h1", "f1", 99.0))
        with closing(PgStore(place)) as before, closing(PgStore(place)) as store:
            with pytest.raises(NotJudge):
                before.commit(history.entries)
            store.commit(history.entries)
            order = quarantines(store)[0]
            elsewhere = store.claim(order.id)  # an attempt of an earlier term, whose session still lives
            assert elsewhere is not None
            scheduler = Scheduler()
            controller = made(store, scheduler)
            controller.load()
            looked = threading.Event()
            original = store.claim

            def claim(wanted: OrderId) -> Any:
                found = original(wanted)
                if wanted == order.id:
                    looked.set()
                return found

            store.claim = claim  # type: ignore[method-assign]
            task = asyncio.create_task(controller.run())
            await asyncio.to_thread(looked.wait, 30)
            assert order.id not in {done.id for done in scheduler.done}
            elsewhere.let_go()
            await eventually(lambda: not quarantines(store))
            assert [done.id for done in scheduler.done].count(order.id) == 1
            task.cancel()
            await asyncio.wait({task})

    play(scene)
