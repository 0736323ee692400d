"""The world: machines, a control room, a network and people on one virtual clock, and a timetable."""

import asyncio
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from fleetd.model.finding import Finding
from fleetd.model.host import Host, Place
from fleetd.model.ids import FindingId, HostName, SpoolId
from fleetd.model.journal import JournalEntry
from fleetd.model.order import FleetOrder
from fleetd.sim.clock import SimClock
from fleetd.sim.disk import File, SimSpool, SpoolRecord
from fleetd.sim.life import Fuse, Life
from fleetd.sim.link import Network
from fleetd.sim.loop import run
from fleetd.sim.scheduler import SimScheduler
from fleetd.world.checks import broken
from fleetd.world.ledger import Ledger, journal_of
from fleetd.world.machine import Machine
from fleetd.world.outcome import Outcome
from fleetd.world.people import Crew, Operator
from fleetd.world.room import ControlRoom
from fleetd.world.settings import Settings
from fleetd.world.timetable import Entry, Expectation, Expected, Expecting, Moment

_ALL = sys.maxsize


class WorldError(AssertionError):
    """A check of a world failed, an expectation was not met, or a process ended by itself; one line each."""


class World:
    """Lay out the timetable, then `run` it once."""

    def __init__(self, settings: Settings, *, fuse: Fuse | None = None, crew: bool = False) -> None:
        """Nothing exists before `run`.

        Args:
            settings: what it is made of.
            fuse: counts the places at which a process may be cut, and cuts one.
            crew: whether somebody repairs what is quarantined.
        """
        self.settings = settings
        self.clock = SimClock()
        self.machines: dict[HostName, Machine] = {}
        self.doubles: list[Machine] = []
        """Machines that use the name of another one."""
        self.room: ControlRoom
        self.network: Network
        self.scheduler: SimScheduler
        self.on_order: list[Callable[[FleetOrder], None]] = []
        """Called for every fleet order that was carried out."""
        self.on_entry: list[Callable[[float, JournalEntry], None]] = []
        """Called with the virtual time for every journal entry, once it is on the controller's disk."""
        self.on_event: list[Callable[[float, str], None]] = []
        """Called with the virtual time for everything that the timetable makes happen, in words."""
        self._fuse = fuse
        self._crew = crew
        self._entries: list[Entry] = []
        self._expectations: list[Expectation] = []
        self._bug: asyncio.Future[None]
        self._folder: Path
        self._tasks: set[asyncio.Task[None]] = set()  # bounded by the timetable and the hosts

    # ── the timetable ───────────────────────────────────────────────────────────────────────────────────────────────

    def at(self, seconds: float) -> Moment:
        """Return a moment of the timetable, to say what happens then."""
        return Moment(seconds, self._entries.append)

    def expect(self, what: Expected, *, host: str | None = None, why: str = "", withheld: bool = False) -> Expecting:
        """Expect an order or a state; without a time: at least once."""
        expectation = Expectation(what=what, host=host, why=why, withheld=withheld)
        return Expecting(expectation, self._expectations)

    def machine(self, name: str) -> Machine:
        """One host. Raises KeyError."""
        return self.machines[HostName(name)]

    def operator(self, name: str) -> Operator:
        """Return somebody who may change hosts."""
        return Operator(self, name)

    # ── what takes more than one machine or more than a moment ──────────────────────────────────────────────────────

    def exchange(self, one: Machine, one_index: int, other: Machine, other_index: int) -> None:
        """Exchange two parts; both hosts reboot."""
        for machine in {one.name: one, other.name: other}.values():
            machine.reboot()
        one.planted = other.planted = one.planted or other.planted  # what was wrong may go with the part
        one.parts[one_index], other.parts[other_index] = other.parts[other_index], one.parts[one_index]

    def reinstall(self, machine: Machine) -> None:
        """Give a host an empty disk and boot it."""
        machine.switch_off()
        machine.reinstall()
        asyncio.get_running_loop().call_later(self.settings.boot_seconds, machine.switch_on)

    def double(self, machine: Machine) -> None:
        """Switch on a second machine under the name of this one."""
        double = self._machine(machine.name, Place(), body=f"{machine.name}-double")
        self.doubles.append(double)
        double.switch_on()

    def single(self, machine: Machine) -> None:
        """Switch off whatever else uses the name of this machine, and boot it: only a new boot is believed again."""
        for double in self.doubles:
            if double.name == machine.name:
                double.switch_off()
        machine.reboot()

    def fill_disk(self, host: str | None, *, full: bool) -> None:
        """Let a disk refuse writes, or take them again; None: the controller's."""
        if host is None:
            self.room.file.full = full
        else:
            self.machine(host).fill_disk(full=full)

    def lose_ledger(self) -> None:
        """Let a controller begin on an empty ledger, beside agents and a scheduler that know the last one's orders."""
        self.room.kill()
        self.room.lose_disk()
        self.scheduler.meet_another_ledger()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on beside the timetable; what it raises ends the world."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._work_ended)

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, *, seconds: float, settled: bool = True) -> Outcome:
        """Run from the beginning to the end, then check everything.

        Args:
            seconds: virtual length.
            settled: whether the timetable leaves enough calm at the end for all to be well again.

        Returns:
            What is left, after the checks passed.

        Raises:
            WorldError: a check failed or an expectation was not met.
            DeadlockError: the program would hang for ever.
        """
        with tempfile.TemporaryDirectory(prefix="fleetd-world-") as folder, quiet():
            outcome = run(self._run(seconds, Path(folder)))
        faults = broken(outcome, settled=settled)
        faults += [missed for expectation in self._expectations if (missed := expectation.misses(outcome))]
        if faults:
            raise WorldError("\n".join(faults))
        return outcome

    async def _run(self, seconds: float, folder: Path) -> Outcome:
        self._bug = asyncio.get_running_loop().create_future()
        self._build(folder)
        self.room.open()
        step_s = self.settings.start_seconds / max(1, len(self.machines))
        for number, machine in enumerate(self.machines.values()):
            asyncio.get_running_loop().call_later(number * step_s, machine.switch_on)
        self.spawn(self._follow())
        if self._crew:
            self.spawn(Crew(self).work())
        end = asyncio.create_task(self.clock.sleep_s(seconds))
        await asyncio.wait({end, self._bug}, return_when=asyncio.FIRST_COMPLETED)
        outcome = self._outcome()
        await self._stop()
        if self._bug.done() and (error := self._bug.exception()) is not None:
            raise WorldError(f"at {outcome.seconds:.0f} s a process ended by itself: {error!r}") from error
        return outcome

    def _build(self, folder: Path) -> None:
        settings = self.settings
        rng = random.Random(f"{settings.seed}/network")  # noqa: S311 - a simulation
        self.network = Network(rng=rng, weather=settings.weather, on_bug=self._found_bug)
        rng = random.Random(f"{settings.seed}/scheduler")  # noqa: S311 - a simulation
        self.scheduler = SimScheduler(clock=self.clock, rng=rng, refuse_ratio=settings.actuator_refuse_ratio)
        self.room = ControlRoom(
            settings=settings,
            network=self.network,
            scheduler=self.scheduler,
            fuse=self._fuse,
            on_order=self._tell,
            on_entries=self._written,
            on_bug=self._found_bug,
        )
        self._folder = folder
        self.machines = {
            name: self._machine(name, settings.place(number)) for number, name in enumerate(settings.names())
        }

    def _machine(self, name: HostName, place: Place, body: str | None = None) -> Machine:
        return Machine(
            name,
            settings=self.settings,
            place=place,
            network=self.network,
            folder=self._folder,
            fuse=self._fuse,
            on_bug=self._found_bug,
            body=body,
        )

    def _tell(self, order: FleetOrder) -> None:
        for listener in self.on_order:
            listener(order)

    def _written(self, entries: Sequence[JournalEntry]) -> None:
        for listener in self.on_entry:
            for entry in entries:
                listener(self.clock.elapsed_s(), entry)

    async def _follow(self) -> None:
        """Follow the timetable; what takes time goes on beside it."""
        for entry in sorted(self._entries, key=lambda entry: entry.at_s):
            await self.clock.sleep_s(entry.at_s - self.clock.elapsed_s())
            for listener in self.on_event:
                listener(entry.at_s, entry.what)
            going_on = entry.act(self)
            if isinstance(going_on, Awaitable):
                self.spawn(_finish(going_on))

    def _work_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._found_bug(error)

    def _found_bug(self, error: BaseException) -> None:
        if not self._bug.done():
            self._bug.set_exception(error)

    async def _stop(self) -> None:
        for machine in (*self.machines.values(), *self.doubles):
            machine.switch_off()
        self.room.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest)

    def _outcome(self) -> Outcome:
        life = Life("checks", fuse=None, on_end=lambda: None)
        ledger = Ledger(self.room.file, life)
        image = ledger.load()
        rows = (row for host in image.hosts for row in ledger.findings(host.name, limit=_ALL))
        found: dict[FindingId, Finding] = {}
        unsent = 0
        for machine in self.machines.values():
            kept, waiting = _on_disk(machine.spool_file, life)
            found |= kept
            unsent += waiting
        controller = self.room.controller
        return Outcome(
            seconds=self.clock.elapsed_s(),
            policy=self.settings.policy,
            journal=journal_of(self.room.file.records),
            image=image,
            rows=tuple(rows),
            hosts=image.hosts if controller is None else tuple(sorted(controller.judge.hosts.values(), key=_name)),
            carried=tuple(self.scheduler.carried),
            found=found,
            unsent=unsent,
            drained=frozenset(self.scheduler.drained),
            attended=self._crew,
            lost_disks=sum(len(machine.retired_files) for machine in self.machines.values()),
            planted=frozenset(name for name, machine in self.machines.items() if machine.planted),
            sick=frozenset(name for name, machine in self.machines.items() if _is_sick(machine, self.network)),
        )


async def _finish(work: Awaitable[object]) -> None:
    await work


def _name(host: Host) -> HostName:
    return host.name


def _is_sick(machine: Machine, network: Network) -> bool:
    return not machine.powered or network.is_isolated(machine.name) or machine.is_troubled


def _on_disk(file: File[SpoolRecord], life: Life) -> tuple[dict[FindingId, Finding], int]:
    """The findings that were ever safe in a spool and were not dropped from it, and how many of them wait."""
    spool = SimSpool(SpoolId("checks"), file, life)
    found = {written.record.id: written.record for written in file.records if not isinstance(written.record, int)}
    for dropped in spool.dropped:
        found.pop(dropped, None)
    return found, spool.depth


@contextmanager
def quiet() -> Iterator[None]:
    """Keep agents and controller from logging: thousands of them in one process bury everything else."""
    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger("critical"),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
