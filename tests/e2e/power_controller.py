"""A controller that shares a power tree out, in a thread of its own, as real agents and commands meet it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from fleetd.actuators.dryrun import DryRun
from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.controller.controller import Controller
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.controller.power_config import GRACE_MAX_S, TTL_MAX_S, PowerTree
from fleetd.stores.memory import MemoryStore
from fleetd.system import RealClock, run_blocking
from fleetd.uplink.config import ServerConfig
from fleetd.uplink.server import serve

SETTLED_S = 1.1 * (TTL_MAX_S + GRACE_MAX_S)


class WoundClock(RealClock):
    """Real time that may be wound on, so that no earlier controller's lease can be out; only its owner reads it."""

    ahead_s = 0.0

    def elapsed_s(self) -> float:
        return super().elapsed_s() + self.ahead_s


def made(folder: Path, tree: PowerTree | None, *, settled: bool) -> Controller:
    """A controller over an empty ledger; `settled`: one that has been up for minutes."""
    clock = WoundClock()
    controller = Controller(
        store=MemoryStore(),
        actuator=DryRun(folder / "orders.jsonl", run_blocking=run_blocking),
        policy=load_policy(policy_path("observe")),
        clock=clock,
        run_blocking=run_blocking,
        dispatcher=DispatcherConfig(),
        power=tree,
    )
    clock.ahead_s = SETTLED_S if settled else 0.0
    return controller


@contextmanager
def serving(folder: Path, tree: PowerTree | None, *, settled: bool) -> Iterator[tuple[int, Controller]]:
    """The port of a controller, and the controller; it ends as if it were killed."""
    loop, stop, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    found: list[tuple[int, Controller]] = []

    async def live() -> None:
        controller = made(folder, tree, settled=settled)
        task = asyncio.create_task(controller.run())
        config = ServerConfig(listen="127.0.0.1:0", insecure=True)
        server = await serve(config, agents=controller.intake, desk=controller.desk)
        found.append((server.port, controller))
        ready.set()
        await stop.wait()
        await server.stop(grace_s=0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(live(),))
    thread.start()
    try:
        assert ready.wait(120)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(120)
        loop.close()
        structlog.reset_defaults()
