"""The controller's wiring, its start and its end."""

import asyncio
import os
from collections.abc import Coroutine
from functools import partial
from pathlib import Path

import structlog

from fleetd import __version__
from fleetd.compose.actuators import build_actuator
from fleetd.compose.enrolment import build_enrolment, serve_strangers
from fleetd.compose.places import state_dir
from fleetd.compose.turned_away import TurnedAwayCollector
from fleetd.config import load_policy
from fleetd.config.files import ControllerConfig
from fleetd.config.power_tree import load_power_tree
from fleetd.config.shipped import policy_path
from fleetd.controller.controller import Controller
from fleetd.controller.metrics import ControllerCollector
from fleetd.exporter.native import BuildCollector
from fleetd.exporter.server import Exporter
from fleetd.ports import Clock, StoreError
from fleetd.stores.file import in_use
from fleetd.stores.keep import prune
from fleetd.stores.retention import RetentionConfig
from fleetd.stores.sql import SqlStore
from fleetd.system import RealClock, Systemd, run_blocking, setup_logging, stop_on_signals
from fleetd.uplink.server import Server, serve

_log = structlog.get_logger(__name__)

LEDGER = "fleet.db"
"""The ledger, in the state directory."""


def run_controller(config: ControllerConfig) -> None:
    """Run a controller until SIGTERM or SIGINT. Raises PortError or ConfigError when it cannot start."""
    setup_logging()
    with in_use(state_dir(config.state_dir) / LEDGER):
        asyncio.run(_controller(config))


async def _controller(config: ControllerConfig) -> None:
    policy = load_policy(policy_path(config.policy))
    power = None if config.power.tree is None else load_power_tree(config.power.tree)
    folder = state_dir(config.state_dir)
    systemd = Systemd(os.environ)
    store = SqlStore(folder / LEDGER)
    try:
        clock = RealClock()
        actuator, job_ends = build_actuator(config, folder, clock)
        controller = Controller(
            store=store,
            actuator=actuator,
            policy=policy,
            clock=clock,
            run_blocking=run_blocking,
            dispatcher=config.dispatcher,
            job_ends=job_ends,
            scheduler=config.scheduler,
            power=power,
        )
        controller.load()
        turned_away = TurnedAwayCollector(started_at_s=clock.wall_s())
        exporter = Exporter(
            config.exporter.listen, [ControllerCollector(controller), turned_away, BuildCollector(__version__)]
        )
        try:
            enrolment = build_enrolment(config, folder, clock)
            server = await serve(
                config.server, agents=controller.intake, desk=controller.desk, clock=clock, identity=enrolment
            )
            strangers = await serve_strangers(config, enrolment, clock)
            turned_away.server, turned_away.strangers = server, strangers
            running = [controller.run(), server.wait(), retain(config.retention, folder / LEDGER, clock)]
            if strangers is not None:
                running.append(strangers.run())
            systemd.notify("READY=1")
            await _until_stopped(stop_on_signals(), *running, stop_first=server)
            systemd.notify("STOPPING=1")
        finally:
            exporter.close()
    finally:
        store.close()


async def retain(config: RetentionConfig, path: Path, clock: Clock) -> None:
    """Prune the ledger now and then, until cancelled; what cannot be pruned is said, and tried again the next time."""
    going = True
    try:
        while True:
            await clock.sleep_s(config.every_s)
            if config.keep_s is None:
                continue
            before_s = clock.wall_s() - config.keep_s
            try:
                gone = await run_blocking(partial(prune, path, before_s=before_s, go_on=lambda: going))
            except StoreError as error:
                _log.error("ledger not pruned", why=str(error))
            else:
                _log.info("ledger pruned", entries=gone.entries, findings=gone.findings, orders=gone.orders)
    finally:
        going = False  # whoever stops the controller waits for the page at hand, not for a million entries


async def _until_stopped(stop: asyncio.Event, *running: Coroutine[object, object, None], stop_first: Server) -> None:
    """Run until `stop` is set, then end in order; a loop that ends in any other way raises what ended it."""
    stopped = asyncio.create_task(stop.wait())
    loops = [asyncio.create_task(one) for one in running]
    await asyncio.wait([stopped, *loops], return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in loops if task.done()]
    if not ended:
        await stop_first.stop()  # first: what agents have in hand is judged before the judge goes
    for task in (stopped, *loops):
        task.cancel()
    await asyncio.gather(stopped, *loops, return_exceptions=True)
    for task in ended:
        task.result()
