"""The control room: the real controller on a simulated disk, and the way for operators to reach it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fleetd.controller.controller import Controller
from fleetd.controller.desk import Desk
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.model.journal import JournalEntry
from fleetd.model.order import FleetOrder
from fleetd.ports import UplinkError
from fleetd.sim.clock import SimClock
from fleetd.sim.disk import File
from fleetd.sim.life import Fuse, Killed, Life
from fleetd.sim.link import Network
from fleetd.sim.scheduler import SimScheduler
from fleetd.world.ledger import Ledger, Record
from fleetd.world.settings import Settings

T = TypeVar("T")


class ControlRoom:
    """One controller after the other, on the same disk."""

    def __init__(
        self,
        *,
        settings: Settings,
        network: Network,
        scheduler: SimScheduler,
        fuse: Fuse | None,
        on_order: Callable[[FleetOrder], None],
        on_entries: Callable[[Sequence[JournalEntry]], None],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        """Nothing runs yet.

        Args:
            settings: of the world.
            network: on which agents come in.
            scheduler: carries out fleet orders; outlives every controller.
            fuse: counts the boundaries at which the controller may be cut.
            on_order: hears of every fleet order that was carried out.
            on_entries: hears of every journal entry, once it is on the disk.
            on_bug: told of a controller that ends by itself.
        """
        self.clock = SimClock()
        self.file: File[Record] = File(self.clock.elapsed_s)
        self.controller: Controller | None = None
        self._settings = settings
        self._network = network
        self._scheduler = scheduler
        self._fuse = fuse
        self._on_order = on_order
        self._on_entries = on_entries
        self._on_bug = on_bug
        self._open = False
        self._life: Life | None = None
        self._run: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[object]] = set()

    def open(self) -> None:
        """Start the controller, now and after each death."""
        self._open = True
        self._start()

    def close(self) -> None:
        """Kill the controller for good, or until the room is opened again."""
        self._open = False
        self.kill()

    def kill(self) -> None:
        """Kill the controller's process; the service manager starts it again."""
        if self._life is not None:
            self._life.end()

    def lose_disk(self) -> None:
        """The next controller begins on an empty disk."""
        self.file = File(self.clock.elapsed_s)

    async def ask(self, question: Callable[[Desk], Awaitable[T]]) -> T:
        """Put a question to the controller's desk.

        Raises UplinkError when no controller answers, and whatever the desk answers with: Refused, StoreError.
        """
        if self.controller is None:
            raise UplinkError("no controller answers")
        task: asyncio.Task[T] = asyncio.ensure_future(_answer(question(self.controller.desk)))
        self._asked.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._asked.discard(task)
            task.cancel()
        if task.cancelled() or isinstance(task.exception(), Killed):
            raise UplinkError("the controller died before it answered")
        return task.result()

    def _start(self) -> None:
        if not self._open or (self._life is not None and self._life.alive):
            return
        life = Life("controller", fuse=self._fuse, on_end=self._died)
        self._life = life
        self.controller = Controller(
            store=Ledger(self.file, life, self._on_entries),
            actuator=self._scheduler.actuator(life, self._on_order),
            policy=self._settings.policy,
            clock=self.clock,
            run_blocking=self._run_blocking,
            dispatcher=DispatcherConfig(),
        )
        self.controller.load()
        self._network.listen(self.controller.intake)
        self._run = asyncio.create_task(self.controller.run(), name="controller")
        self._run.add_done_callback(lambda run: self._ended(life, run))

    async def _run_blocking(self, function: Callable[[], object]) -> object:
        await self.clock.sleep_s(self._settings.disk_seconds)
        return function()

    def _died(self) -> None:
        self.controller = None
        self.file.lose_unsynced()
        self._network.hang_up()
        for task in self._asked:
            task.cancel()
        if self._run is not None:
            self._run.cancel()

    def _ended(self, life: Life, run: asyncio.Task[None]) -> None:
        error = None if run.cancelled() else run.exception()
        if life.alive:
            life.end()
            self._on_bug(error or RuntimeError("the controller ended by itself"))
        elif error is not None and not _only_killed(error):
            self._on_bug(error)
        if self._open:
            asyncio.get_running_loop().call_later(self._settings.restart_seconds, self._start)


async def _answer(question: Awaitable[T]) -> T:
    return await question


def _only_killed(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_only_killed(inner) for inner in error.exceptions)
    return isinstance(error, Killed)
