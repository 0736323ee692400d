"""The controller's wiring, its start and its end."""

import asyncio
import os

from fleetd import __version__
from fleetd.compose.actuators import build_actuator
from fleetd.compose.places import state_dir
from fleetd.config import load_policy
from fleetd.config.files import ControllerConfig
from fleetd.config.power_tree import load_power_tree
from fleetd.config.shipped import policy_path
from fleetd.controller.controller import Controller
from fleetd.controller.metrics import ControllerCollector
from fleetd.exporter.native import BuildCollector
from fleetd.exporter.server import Exporter
from fleetd.stores.file import in_use
from fleetd.stores.sql import SqlStore
from fleetd.system import RealClock, Systemd, run_blocking, setup_logging, stop_on_signals
from fleetd.uplink.server import Server, serve

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
        exporter = Exporter(config.exporter.listen, [ControllerCollector(controller), BuildCollector(__version__)])
        try:
            server = await serve(config.server, agents=controller.intake, desk=controller.desk)
            systemd.notify("READY=1")
            await _until_stopped(stop_on_signals(), controller, server)
            systemd.notify("STOPPING=1")
        finally:
            exporter.close()
    finally:
        store.close()


async def _until_stopped(stop: asyncio.Event, controller: Controller, server: Server) -> None:
    """Run until `stop` is set, then end in order; a loop that ends in any other way raises what ended it."""
    stopped = asyncio.create_task(stop.wait())
    loops = [asyncio.create_task(controller.run()), asyncio.create_task(server.wait())]
    await asyncio.wait([stopped, *loops], return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in loops if task.done()]
    if not ended:
        await server.stop()  # first: what agents have in hand is judged before the judge goes
    for task in (stopped, *loops):
        task.cancel()
    await asyncio.gather(stopped, *loops, return_exceptions=True)
    for task in ended:
        task.result()
