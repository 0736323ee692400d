"""The verbs of people, from the command line over gRPC to a controller and back."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator

import pytest
import structlog
from click.testing import CliRunner, Result

from fleetd.actuators.dryrun import DryRun
from fleetd.cli import main
from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.controller.controller import Controller
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.model.finding import BurninEnded, Culprit, FaultClass, Verdict
from fleetd.model.host import Gpu, Hello
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, SpoolId
from fleetd.ports import Peer
from fleetd.stores.memory import MemoryStore
from fleetd.system import RealClock, run_blocking
from fleetd.uplink.config import ServerConfig
from fleetd.uplink.server import serve

Run = Callable[..., Result]
SPOOL = SpoolId("s")
NO_YEAR_S = 1e18
"""A time that no calendar has; the protocol takes every finite number, and clocks are broken."""


async def condemn(controller: Controller, *names: str) -> None:
    """Hosts appear and report a bad GPU each: the first is quarantined, for the others the budget is used up."""
    for name in names:
        host, peer = HostName(name), Peer(name=name, role="agent")
        gpu = Gpu(gpu=GpuId(f"{name}-0"), index=0, vendor="sim", sku="simulated", pci_address=None)
        hello = Hello(host=host, boot_id=BootId("b1"), agent_version="0", capabilities=(), inventory=(gpu,))
        await controller.intake.hello(peer, hello, SPOOL)
        finding = BurninEnded(
            id=FindingId(name),
            host=host,
            boot_id=BootId("b1"),
            at_s=0.0 if name == "h01" else NO_YEAR_S,
            why="outvoted",
            order_id=None,
            level="smoke",
            verdict=Verdict.FAIL,
            fault_class=FaultClass.CHIP_PERSISTENT,
            seed=1,
            vote_key="",
            culprits=(Culprit(gpu=gpu.gpu, index=0, fault_class=FaultClass.CHIP_PERSISTENT, why="alone"),),
        )
        await controller.intake.finding(host, SPOOL, 1, finding)


@pytest.fixture(name="run")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A controller in a thread of its own, and a command line that talks to it."""
    # In one process with the controller, the command's standard output would have the controller's log in it.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    ready, stop = threading.Event(), asyncio.Event()
    port: list[int] = []
    loop = asyncio.new_event_loop()

    async def live() -> None:
        controller = Controller(
            store=MemoryStore(),
            actuator=DryRun(tmp_path_factory.mktemp("orders") / "orders.jsonl", run_blocking=run_blocking),
            policy=load_policy(policy_path("default")),
            clock=RealClock(),
            run_blocking=run_blocking,
            dispatcher=DispatcherConfig(),
        )
        controller.load()
        task = asyncio.create_task(controller.run())
        config = ServerConfig(listen="127.0.0.1:0", insecure=True)
        server = await serve(config, agents=controller.intake, desk=controller.desk, clock=RealClock())
        await condemn(controller, "h01", "h02")
        port.append(server.port)
        ready.set()
        await stop.wait()
        await server.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(live(),))
    thread.start()
    assert ready.wait(120)

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--insecure", "--controller", f"127.0.0.1:{port[0]}"])

    yield run
    loop.call_soon_threadsafe(stop.set)
    thread.join(120)
    loop.close()
    structlog.reset_defaults()


def test_a_day_of_an_operator(run: Run) -> None:
    shown = run("budget", "show")
    assert (shown.exit_code, "fleet tripped" in shown.stdout) == (0, True)
    shown = run("host", "show", "h02").stdout
    assert "charged, not held" in shown
    assert "1e+18 s from 1970 finding h02: outvoted" in shown

    assert "h01: repairing" in run("host", "repair", "h01", "--reason", "new GPU").stdout
    assert "h01: qualifying" in run("host", "burnin", "h01", "--reason", "new GPU").stdout
    refused = run("host", "release", "h01", "--reason", "please")
    assert (refused.exit_code, "burn-in" in refused.stderr) == (1, True)
    assert "h01: probation" in run("host", "release", "h01", "--reason", "demo", "--override").stdout

    assert run("automation", "stop", "--reason", "roll-out").exit_code == 0
    assert "stopped by operator:unauthenticated" in run("automation", "show").stdout
    assert run("automation", "stop", "--reason", "again").exit_code == 1
    assert run("automation", "resume", "--reason", "done").stdout == "automation is running\n"
    assert run("budget", "rearm", "--reason", "looked").stdout == "no budget has tripped\n"
    assert run("budget", "rearm", "--reason", "again").exit_code == 1
    listed = json.loads(run("host", "list", "--json", "-").stdout)["hosts"]
    assert [host["state"] for host in listed] == ["probation", "quarantined"]  # h02 was judged anew

    ended = run("job", "ended", "h01", "4711", "--failed", "--ran", "12.5")
    assert (ended.exit_code, ended.stdout) == (0, "h01 is probation: noted that job 4711 failed\n")
    assert "job 4711 failed after 12 seconds" in run("host", "explain", "h01").stdout
    assert run("job", "ended", "h01", "4711", "--failed", "--ran", "nan").exit_code == 2
    nameless = run("job", "ended", "h01", " ", "--ok", "--ran", "1")
    assert (nameless.exit_code, "name the job that ended" in nameless.stderr) == (1, True)
    assert run("job", "ended", "h99", "4711", "--ok", "--ran", "1").exit_code == 1
    assert run("incident", "list").stdout == "no incident is open\n"
    assert run("incident", "close", "storm/x/1", "--reason", "r", "--acquit").exit_code == 1
    held = run("host", "quarantine", "h01", "--reason", "fan", "--expires-in", "3600", "--json", "-")
    assert json.loads(held.stdout)["holds"][0]["expires_at_s"] > 0
    assert "h01: retired" in run("host", "retire", "h01", "--reason", "old").stdout


@pytest.mark.parametrize("seconds", ["nan", "inf"])
def test_a_hold_for_no_number_of_seconds_is_one_line(seconds: str) -> None:
    words = ["host", "quarantine", "h1", "--reason", "a look", "--expires-in", seconds, "--insecure"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert "--expires-in" in result.stderr.splitlines()[-1]
