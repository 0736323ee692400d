"""A stand for the page: the real controller on a ledger in memory, made hosts, on the loopback, without TLS.

    python -m tests.web.stand --hosts 10000 --port 8080 [--still] [--tokens FILE] [--state DIR]

Prints the address. Every second a few things happen (findings, agents that come and go, readings) unless `--still`.
Host h00003 is called by a name and a reason full of markup in `why`. The page's files are read anew for each request.
"""

import argparse
import asyncio
import contextlib
import random
import secrets
import tempfile
from dataclasses import replace
from pathlib import Path

import structlog

from fleetd.controller.controller import Controller
from fleetd.core import alerts
from fleetd.model.event import FindingReceived
from fleetd.model.host import Host, Lifecycle
from fleetd.model.telemetry import Telemetry
from fleetd.ports import Peer, Refused
from fleetd.system import RealClock, run_blocking, setup_logging, stop_on_signals
from fleetd.web.app import make_app
from fleetd.web.config import WebConfig
from fleetd.web.page import load_static
from fleetd.web.server import serve_web
from tests.web.made import controller_of, fault_of, host_of, name_of, samples_of, xid_of

OPERATOR = Peer(name="alice", role="operator")
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)> \u202e \"quotes\" & 'ticks'"


def made_hosts(count: int, rng: random.Random, at_s: float) -> tuple[Host, ...]:
    """Most are healthy; some are in every other state."""
    rare = [s for s in Lifecycle if s not in {Lifecycle.HEALTHY, Lifecycle.QUARANTINED}]
    hosts = []
    for number in range(count):
        state = rng.choice(rare) if rng.random() < 0.015 else Lifecycle.HEALTHY
        host = host_of(number, at_s=at_s - rng.uniform(0, 86400), state=state)
        if state is Lifecycle.PROBATION:
            host = replace(host, probation_until_s=at_s + 1800)
        if number % 997 == 5:
            host = replace(host, place=replace(host.place, rack=None))
        hosts.append(host)
    return tuple(hosts)


async def stories(controller: Controller, count: int, clock: RealClock) -> None:
    """What has happened before anybody looks."""
    now_s = clock.wall_s()
    desk, judge = controller.desk, controller.judge
    for number in (1, 2, 19, 40, 77, 150, 151, 152):
        host = judge.hosts.get(name_of(number))
        if host is None:
            continue
        await judge.submit(FindingReceived(host=host.name, finding=xid_of(host, at_s=now_s - 90, number=number)))
        await judge.submit(FindingReceived(host=host.name, finding=fault_of(host, at_s=now_s - 60, number=number)))
    for number, reason in ((3, EVIL), (9, "swap of the whole baseboard, ticket 4711")):
        if number < count:
            await desk.quarantine(OPERATOR, name_of(number), reason)
    if count > 1:
        with contextlib.suppress(Refused):
            await desk.release(OPERATOR, name_of(1), "it looks fine to me", override=False)


async def life(controller: Controller, count: int, rng: random.Random, clock: RealClock) -> None:
    """A few things a second."""
    number = 0
    while True:
        number += 1
        now_s = clock.wall_s()
        for name in (name_of(rng.randrange(count)) for _ in range(3)):
            there = controller.dispatcher.has_session(name)
            if there and rng.random() < 0.3:
                del controller.dispatcher._sessions[name]
                controller.dispatcher.on_session(name, False)  # noqa: FBT003
            elif not there:
                controller.dispatcher._sessions[name] = asyncio.Queue()
                controller.dispatcher.on_session(name, True)  # noqa: FBT003
        for name in {name_of(n) for n in (*range(min(20, count)), *(rng.randrange(count) for _ in range(20)))}:
            await controller.intake.telemetry_received(
                name, Telemetry.of(samples_of(controller.judge.hosts[name], at_s=now_s, rng=rng))
            )
        if number % 3 == 0:
            host = controller.judge.hosts[name_of(rng.randrange(count))]
            make = fault_of if rng.random() < 0.3 else xid_of
            finding = make(host, at_s=now_s, number=1000 + number)
            await controller.judge.submit(FindingReceived(host=host.name, finding=finding))
        await clock.sleep_s(1)


async def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--still", action="store_true")
    parser.add_argument("--tokens", type=Path)
    parser.add_argument("--log", action="store_true")
    asked = parser.parse_args()
    rng, clock = random.Random(7), RealClock()  # noqa: S311
    if asked.log:
        setup_logging()
    else:
        structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with tempfile.TemporaryDirectory() as folder:
        hosts = made_hosts(asked.hosts, rng, clock.wall_s())
        controller = controller_of(hosts, clock=clock, run_blocking=run_blocking, folder=Path(folder))
        for host in hosts:
            if rng.random() > 0.002:
                controller.dispatcher._sessions[host.name] = asyncio.Queue()
            if host.name < name_of(20):
                for back in range(60, 0, -1):
                    readings = samples_of(host, at_s=clock.wall_s() - 10 * back, rng=rng)
                    await controller.intake.telemetry_received(host.name, Telemetry.of(readings))
        bug: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        config = WebConfig(listen=f"127.0.0.1:{asked.port}", insecure=True, tokens=asked.tokens)

        async def metrics(_accept: str) -> tuple[str, bytes]:
            return "text/plain", b""

        app = make_app(
            config,
            desk=controller.desk,
            view=controller.view,
            clock=clock,
            secret=lambda: secrets.token_urlsafe(32),
            read_alerts=alerts.read,
            metrics=metrics,
            on_bug=lambda error: bug.done() or bug.set_exception(error),
            static=load_static,
        )
        running = [asyncio.create_task(controller.judge.run()), asyncio.create_task(controller.dispatcher.run())]
        await stories(controller, asked.hosts, clock)
        server = await serve_web(config, app, bug)
        print(f"http://127.0.0.1:{server.port}/", flush=True)  # noqa: T201
        if not asked.still:
            running.append(asyncio.create_task(life(controller, asked.hosts, rng, clock)))
        running.append(asyncio.create_task(server.wait()))
        stopped = asyncio.create_task(stop_on_signals().wait())
        await asyncio.wait([stopped, *running], return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in running if task.done()]
        await server.stop()
        for task in (stopped, *running):
            task.cancel()
        await asyncio.gather(stopped, *running, return_exceptions=True)
        for task in ended:
            task.result()


if __name__ == "__main__":
    asyncio.run(main())
