"""The controller's wiring, its start and its end."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog

from fleetd import __version__
from fleetd.compose.actuators import build_actuator
from fleetd.compose.certificate import served_certificates
from fleetd.compose.enrolment import build_enrolment, serve_strangers
from fleetd.compose.places import state_dir
from fleetd.compose.shared import prune as prune_shared
from fleetd.compose.shared import seat_of
from fleetd.compose.sign_of_life import SignOfLife, judge_stuck
from fleetd.compose.turned_away import TurnedAwayCollector
from fleetd.config import load_policy
from fleetd.config.files import ControllerConfig
from fleetd.config.power_tree import load_power_tree
from fleetd.config.shipped import policy_path
from fleetd.controller.controller import Controller
from fleetd.controller.metrics import TurnCollector
from fleetd.controller.terms import Terms
from fleetd.controller.turn import AgentsOfTurn, DeskOfTurn, Turn, ViewOfTurn
from fleetd.exporter.native import BuildCollector
from fleetd.exporter.page import Collector, Page
from fleetd.exporter.server import Exporter
from fleetd.model.journal import StoreImage
from fleetd.ports import Clock, DeskDoor, FleetView, Store, StoreError
from fleetd.stores.file import in_use
from fleetd.stores.keep import Pruned, prune
from fleetd.stores.place import PgPlace
from fleetd.stores.retention import RetentionConfig
from fleetd.stores.sql import SqlStore
from fleetd.system import (
    RealClock,
    Systemd,
    few_full_collections,
    host_name,
    reload_on_signal,
    run_blocking,
    run_on_daemon,
    setup_logging,
    stop_on_signals,
    thread_of_its_own,
)
from fleetd.uplink.server import Server, serve
from fleetd.web.tokens import WebError

if TYPE_CHECKING:
    from fleetd.web.server import WebServer

_log = structlog.get_logger(__name__)

LEDGER = "fleet.db"
"""The ledger, in the state directory."""


def run_controller(config: ControllerConfig) -> None:
    """Run a controller until SIGTERM or SIGINT. Raises PortError or ConfigError when it cannot start."""
    setup_logging()
    few_full_collections()
    if config.store is not None:
        asyncio.run(_shared(_Parts(config), PgPlace(url=config.store)))
        return
    with in_use(state_dir(config.state_dir) / LEDGER):
        asyncio.run(_alone(_Parts(config)))


class _Door(Protocol):
    async def stop(self) -> None:
        """Let nobody in any more, and answer who is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """What is listened on."""

    server: Server
    """For agents and people."""
    doors: Sequence[_Door]
    """All of them, in the order in which they are closed."""
    running: Sequence[Coroutine[object, object, None]]
    """To be run as long as anything is served."""


class _Parts:
    """What a controller is made of, whosever turn it is to judge."""

    def __init__(self, config: ControllerConfig) -> None:
        """Read what a start reads. Raises PortError, ConfigError."""
        self.config = config
        self.folder = state_dir(config.state_dir)
        self.policy = load_policy(policy_path(config.policy))
        self.power = None if config.power.tree is None else load_power_tree(config.power.tree)
        self.clock = RealClock()
        self.systemd = Systemd(os.environ)
        self.turn = Turn()
        self.life = SignOfLife(self.systemd, self.clock, stuck=lambda: judge_stuck(self.turn, self.clock))
        self.turned_away = TurnedAwayCollector(started_at_s=self.clock.wall_s())

    def controller(self, store: Store) -> Controller:
        """A controller that knows nothing yet. Raises ActuatorError."""
        actuator, job_ends = build_actuator(self.config, self.folder, self.clock)
        return Controller(
            store=store,
            actuator=actuator,
            policy=self.policy,
            clock=self.clock,
            run_blocking=run_blocking,
            run_deciding=thread_of_its_own("judge"),
            dispatcher=self.config.dispatcher,
            job_ends=job_ends,
            scheduler=self.config.scheduler,
            power=self.power,
            policy_name=self.config.policy,
        )

    @contextmanager
    def metrics(self) -> Iterator[Page]:
        """Serve the page of metrics. Raises PortError."""
        collectors: list[Collector] = [
            TurnCollector(self.turn),
            self.turned_away,
            served_certificates(self.config),
            BuildCollector(__version__),
        ]
        exporter = Exporter(self.config.exporter.listen, collectors, trouble=self.life.trouble)
        try:
            yield Page(collectors)
        finally:
            exporter.close()

    async def serve(self, metrics: Page) -> "_Served":
        """Listen for agents and people, and where the configuration says so for browsers, and for hosts to be enrolled.

        Raises PortError.
        """
        desk, view = DeskOfTurn(self.turn), ViewOfTurn(self.turn)
        asked = reload_on_signal()  # before anybody hears that this listens
        opened: list[_Door] = []
        try:
            opened += (web := await _web(self.config, desk, view, metrics))
            enrolment = build_enrolment(self.config, self.folder, self.clock)
            agents = AgentsOfTurn(self.turn)
            server = await serve(self.config.server, agents=agents, desk=desk, clock=self.clock, identity=enrolment)
            opened.append(server)
            strangers = await serve_strangers(self.config, enrolment, self.clock)
        except BaseException:  # what could be opened is closed again: nobody waits on a door without a house
            for door in opened:
                await door.stop()
            raise
        running = [server.wait(), self.life.run(), _nothing_to_reload(asked), *(one.wait() for one in web)]
        self.turned_away.server, self.turned_away.strangers = server, strangers
        if strangers is not None:
            running.append(strangers.run())
        return _Served(server=server, doors=opened, running=running)


async def _alone(parts: _Parts) -> None:
    """Judge on a ledger of one's own, in a file."""
    path = parts.folder / LEDGER
    store = SqlStore(path)
    try:
        controller = parts.controller(store)
        controller.load()
        parts.turn.begin(controller)
        with parts.metrics() as metrics:
            served = await parts.serve(metrics)
            parts.systemd.notify("READY=1")
            judging = (controller.run(), retain(parts.config.retention, path, parts.clock))
            await _until_stopped(stop_on_signals(), *served.running, *judging, stop_first=served.doors)
            parts.systemd.notify("STOPPING=1")
    finally:
        store.close()


async def _shared(parts: _Parts, place: PgPlace) -> None:
    """Judge on a ledger in PostgreSQL when it is our turn, and send everybody to the judge when it is not."""
    seat = seat_of(place, holder=f"{host_name()} ({parts.config.server.listen})")
    with parts.metrics() as metrics:
        served = await parts.serve(metrics)
        await served.server.serving(yes=False)

        async def judge(store: Store) -> None:
            controller = parts.controller(store)
            images: list[StoreImage] = []
            await run_blocking(lambda: images.append(store.load()))  # meanwhile it is watched whether it is our turn
            controller.adopt(images[0])
            parts.turn.begin(controller)
            await served.server.serving(yes=True)
            parts.systemd.notify("STATUS=judge")
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(controller.run())
                    group.create_task(retain(parts.config.retention, place, parts.clock))
            finally:
                parts.turn.end()
                await served.server.serving(yes=False)
                served.server.turn_away("this controller is not the judge any more")
                parts.systemd.notify("STATUS=standing by")

        # On threads of its own: a look at the seat must not queue behind a slow ledger, it would be taken for lost.
        terms = Terms(seat, turn=parts.turn, clock=parts.clock, run_blocking=run_on_daemon, judge=judge)
        parts.systemd.notify("READY=1\nSTATUS=standing by")
        try:
            await _until_stopped(stop_on_signals(), terms.run(), *served.running, stop_first=served.doors)
        finally:
            await served.server.stop(grace_s=0)
        parts.systemd.notify("STOPPING=1")


async def _web(config: ControllerConfig, desk: DeskDoor, view: FleetView, metrics: Page) -> list["WebServer"]:
    """The page, if it is to be served: none or one. Raises PortError."""
    if config.web is None:
        return []
    try:
        from fleetd.compose.web import serve_page  # noqa: PLC0415 - a controller without the page does without FastAPI
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"fastapi", "uvicorn"}:
            raise
        raise WebError(f"web: needs `{error.name}`: pip install 'fleetd[controller]', or remove `web:`") from error
    return [await serve_page(config.web, desk=desk, view=view, metrics=metrics)]


async def retain(config: RetentionConfig, at: Path | PgPlace, clock: Clock) -> None:
    """Prune the ledger now and then, until cancelled; what cannot be pruned is said, and tried again the next time."""
    going = True
    try:
        while True:
            await clock.sleep_s(config.every_s)
            if config.keep_s is None:
                continue
            before_s = clock.wall_s() - config.keep_s
            try:
                gone = await run_blocking(partial(_prune, at, before_s=before_s, go_on=lambda: going))
            except StoreError as error:
                _log.error("ledger not pruned", why=str(error))
            else:
                _log.info("ledger pruned", entries=gone.entries, findings=gone.findings, orders=gone.orders)
    finally:
        going = False  # whoever stops the controller waits for the page at hand, not for a million entries


def _prune(at: Path | PgPlace, *, before_s: float, go_on: Callable[[], bool]) -> Pruned:
    if isinstance(at, PgPlace):
        return prune_shared(at, before_s=before_s, go_on=go_on)
    return prune(at, before_s=before_s, go_on=go_on)


async def _nothing_to_reload(asked: asyncio.Event) -> None:
    """Say so at each SIGHUP, whose default would end the controller without order: whoever sends it means no harm."""
    while True:
        await asked.wait()
        asked.clear()
        _log.warning("nothing reloaded", why="certificates and tokens are read by themselves; restart for the rest")


async def _until_stopped(
    stop: asyncio.Event, *running: Coroutine[object, object, None], stop_first: Sequence[_Door]
) -> None:
    """Run until `stop` is set, then end in order; a loop that ends in any other way raises what ended it."""
    stopped = asyncio.create_task(stop.wait())
    loops = [asyncio.create_task(one) for one in running]
    await asyncio.wait([stopped, *loops], return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in loops if task.done()]
    if not ended:
        for door in stop_first:  # first: what agents and people have in hand is judged before the judge goes
            await door.stop()
    for task in (stopped, *loops):
        task.cancel()
    await asyncio.gather(stopped, *loops, return_exceptions=True)
    for task in ended:
        task.result()
