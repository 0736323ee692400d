"""`fleetd demo`: the main job on loopback, with real processes: burn in, find the bad GPU, quarantine its host."""

import asyncio
import math
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from fleetd.cli import demo_world
from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.loopback import HostPlan, Loopback
from fleetd.model.host import Host, Lifecycle
from fleetd.ports import PortError, Refused
from fleetd.system import RealClock

PLANTED_HOST, PLANTED_INDEX = "h02", 5
PLANTED = f"gpu={PLANTED_INDEX},fault=F03,rate=0.3"
"""An intermittent multi-bit fault: about three launches in ten come out wrong."""
PLANS = (HostPlan(name="h01"), HostPlan(name=PLANTED_HOST, fault=PLANTED), HostPlan(name="h03"))
SETTLED = frozenset({Lifecycle.HEALTHY, Lifecycle.QUARANTINED})
POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the story ended."""

    right: bool
    last_line: str


@click.command(name="demo")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Keep everything in this new directory.")
@click.option("--seconds", type=click.IntRange(min=10), default=180, show_default=True, help="Give up after this time.")
@click.option("--world", "hosts", type=click.IntRange(1, 20_000), help="Instead: a simulated fleet of so many hosts.")
@click.option("--hours", type=click.FloatRange(0.1, 24 * 31), default=24.0, show_default=True, help="With --world.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="With --world: the same seed, the same day.",
)
@click.option("--policy", default="default", show_default=True, help="With --world: a shipped policy, or a file.")
def command(  # noqa: PLR0917 - click calls it by keywords
    folder: Path | None, seconds: int, hosts: int | None, hours: float, seed: int, policy: str
) -> None:
    """Three hosts with 8 simulated GPUs each, one GPU corrupt: watch its host being found and quarantined.

    With --world N, the day of a whole simulated fleet passes in seconds instead: what goes wrong, what is quarantined,
    what is withheld, and why. Text on a terminal, JSON lines on a pipe.
    """
    if not math.isfinite(hours):
        raise Failure("demo: --hours must be a number of hours")
    if hosts is not None:
        if folder is not None:
            raise Failure("demo: --dir is for the demo with real processes; a world leaves no files")
        demo_world.run(hosts=hosts, hours=hours, seed=seed, policy=policy)
        return
    _refuse_options_of_worlds(click.get_current_context())
    if find_spec("torch") is None:
        raise Failure("demo burns simulated GPUs in and needs torch: pip install 'fleetd[burnin,controller]'")
    console = Console(highlight=False, markup=False, soft_wrap=True)
    try:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="fleetd-demo-"))
        else:
            folder.mkdir(parents=True)
    except OSError as error:
        raise Failure(f"{folder}: {error.strerror}; name a new directory with --dir") from error
    clock = RealClock()
    try:
        with Loopback(folder.resolve(), PLANS, now_s=clock.wall_s()) as fleet:
            outcome = asyncio.run(_story(fleet, clock, console, seconds))
            _show(fleet, console)
    except (PortError, Refused) as error:
        raise Failure(f"demo: {error}; logs are in {folder / 'logs'}", exit_code=CANNOT_JUDGE) from error
    except TimeoutError as error:
        message = f"demo: not settled after {seconds} s; logs are in {folder / 'logs'}"
        raise Failure(message, exit_code=CANNOT_JUDGE) from error
    console.print(f"reports, configurations and logs stay in {folder}")
    console.print(outcome.last_line)
    if not outcome.right:
        raise SystemExit(BAD)


def _refuse_options_of_worlds(ctx: click.Context) -> None:
    """Refuse to ignore what somebody asked for."""
    for name in ("hours", "seed", "policy"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise Failure(f"demo: --{name} is for a simulated fleet; add --world N")


async def _story(fleet: Loopback, clock: RealClock, console: Console, seconds: int) -> Outcome:
    began_s = clock.elapsed_s()

    def say(text: str) -> None:
        console.print(f"[{clock.elapsed_s() - began_s:5.1f} s] {text}")

    say(f"planted in {PLANTED_HOST}, GPU {PLANTED_INDEX}: an intermittent multi-bit fault ({PLANTED})")
    say("starting a controller and the agents of " + ", ".join(fleet.plans) + " (mutual TLS on loopback)")
    fleet.start_all()
    with console.status("burning in") as status:
        async with asyncio.timeout(seconds):
            hosts = await _until_settled(fleet, clock, say, status.update)
    return _judge(hosts)


async def _until_settled(
    fleet: Loopback, clock: RealClock, say: Callable[[str], None], update: Callable[[str], None]
) -> tuple[Host, ...]:
    seen: dict[str, str] = {}
    began_s = clock.elapsed_s()
    async with fleet.desk() as desk:
        while True:
            await clock.sleep_s(POLL_SECONDS)
            for name in ("controller", *fleet.plans):
                if not fleet.alive(name):
                    raise PortError(f"{name} ended by itself")
            try:
                hosts = await desk.hosts()
            except PortError:
                continue  # the controller is not up yet
            for host in hosts:
                if seen.get(host.name) != host.why:
                    seen[host.name] = host.why
                    say(f"{host.name} {host.state}: {host.why}")
            states = ", ".join(f"{host.name} {host.state}" for host in hosts)
            update(f"{clock.elapsed_s() - began_s:.0f} s: {states}")
            if len(hosts) == len(fleet.plans) and all(host.state in SETTLED for host in hosts):
                return hosts


def _judge(hosts: tuple[Host, ...]) -> Outcome:
    """Say what was quarantined; right only if it is the planted host and GPU and no other."""
    quarantined = [host for host in hosts if host.state is Lifecycle.QUARANTINED]
    healthy = sum(host.state is Lifecycle.HEALTHY for host in hosts)
    blamed = [
        (host.name, gpu.index, hold.fault_class.value)
        for host in quarantined
        for hold in host.holds
        for gpu in host.inventory
        if gpu.gpu == hold.gpu
    ]
    if not blamed:
        return Outcome(right=False, last_line=f"demo: quarantined nothing, {healthy} hosts healthy")
    name, index, fault_class = blamed[0]
    right = [b[:2] for b in blamed] == [(PLANTED_HOST, PLANTED_INDEX)] and healthy == len(hosts) - 1
    line = f"demo: quarantined {name}, culprit gpu index {index} ({fault_class}), {healthy} hosts healthy"
    return Outcome(
        right=right, last_line=line if right else f"{line}; expected {PLANTED_HOST} gpu {PLANTED_INDEX} only"
    )


def _show(fleet: Loopback, console: Console) -> None:
    """Show where the fact is visible: command line and /metrics."""
    for words in (("host", "list"), ("host", "explain", PLANTED_HOST)):
        console.print(f"\n$ fleetd {' '.join(words)}")
        answer = subprocess.run(fleet.command(*words), capture_output=True, text=True, timeout=30, check=False)
        console.print((answer.stdout + answer.stderr).rstrip())
    console.print("\n$ curl http://CONTROLLER/metrics")
    wanted = ("fleetd_hosts{", "fleetd_gpu_held{", "fleetd_orders_carried_out_total")
    for line in fleet.metrics("controller").splitlines():
        if line.startswith(wanted) and not line.endswith(" 0.0"):
            console.print(line)
    for report in sorted((fleet.folder / PLANTED_HOST / "burnin").glob("*.json")):
        console.print(f"\nthe burn-in's report: {report}")
    console.print(f"orders as recorded by the dry run: {fleet.folder / 'controller' / 'orders.jsonl'}")
