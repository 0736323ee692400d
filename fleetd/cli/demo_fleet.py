"""The demo's story, with real processes: hosts are burnt in, a GPU goes bad, is found, and its host quarantined."""

import asyncio
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.loopback import HostPlan, Loopback
from fleetd.model.host import Host, Lifecycle
from fleetd.ports import PortError, Refused
from fleetd.sim.vendorlibs.libraries import NoFakeLibrary
from fleetd.system import RealClock

PLANTED_HOST, PLANTED_INDEX = "h02", 5
PLANTED = f"gpu={PLANTED_INDEX},fault=F03,rate=0.3"
"""An intermittent multi-bit fault: about three launches in ten come out wrong."""
FAKE = (
    HostPlan(name="h01", vendor="nvidia"),
    HostPlan(name=PLANTED_HOST, vendor="nvidia"),
    HostPlan(name="h03", vendor="amd"),
)
"""GPUs behind fake libraries: one of them goes bad while all is running."""
SIMULATED = tuple(replace(plan, vendor=None, fault=PLANTED if plan.name == PLANTED_HOST else None) for plan in FAKE)
"""The same hosts with devices that are simulated in the agents: there the fault is planted from the start."""
SETTLED = frozenset({Lifecycle.HEALTHY, Lifecycle.QUARANTINED})
POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the story ended."""

    right: bool
    last_line: str


def run(folder: Path, *, seconds: int, console: Console) -> None:
    """Tell the story. Raises Failure when it does not come to its end, SystemExit when that is the wrong one."""
    clock = RealClock()
    try:
        with _fleet(folder, clock, console) as fleet:
            outcome = asyncio.run(_Story(fleet, clock, console).tell(seconds))
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


def _fleet(folder: Path, clock: RealClock, console: Console) -> Loopback:
    """The hosts with fake libraries, or, where there can be none, those with simulated devices."""
    try:
        return Loopback(folder, FAKE, now_s=clock.wall_s())
    except NoFakeLibrary as why:
        console.print(f"no fake vendor libraries: {why}; going on with GPUs that are simulated inside the agents")
        return Loopback(folder, SIMULATED, now_s=clock.wall_s())


class _Story:
    """What happens, and what is said of it."""

    def __init__(self, fleet: Loopback, clock: RealClock, console: Console) -> None:
        self._fleet = fleet
        self._clock = clock
        self._console = console
        self._began_s = clock.elapsed_s()
        self._told: dict[str, str] = {}

    async def tell(self, seconds: int) -> Outcome:
        """From the start of the processes to the end. Raises TimeoutError, PortError."""
        fleet = self._fleet
        made_of = [f"{plan.name} {plan.vendor or 'simulated'}" for plan in fleet.plans.values()]
        if not fleet.fakes:
            self._say(f"planted in {PLANTED_HOST}, GPU {PLANTED_INDEX}: an intermittent multi-bit fault ({PLANTED})")
        self._say(f"starting a controller and agents of 8 GPUs each (mutual TLS on loopback): {', '.join(made_of)}")
        if fleet.fakes:
            self._say(
                "they read their GPUs through the vendors' own bindings, nvidia-ml-py and amdsmi, on fake libraries"
            )
        fleet.start_all()
        async with asyncio.timeout(seconds):
            hosts = await self._until(_settled, "burning in")
            if fleet.fakes and all(host.state is Lifecycle.HEALTHY for host in hosts):
                since_s = {host.name: host.since_s for host in hosts}
                self._let_go_bad()
                hosts = await self._until(
                    lambda now: (
                        _settled(now) and any(h.name == PLANTED_HOST and h.since_s != since_s[h.name] for h in now)
                    ),
                    "watching",
                )
        return _judge(hosts)

    def _let_go_bad(self) -> None:
        fake = self._fleet.fakes[PLANTED_HOST]
        fake.burn_in(seed=self._fleet.plans[PLANTED_HOST].seed, inject=PLANTED)
        fake.go_bad(PLANTED_INDEX)
        self._say(
            f"{PLANTED_HOST}, GPU {PLANTED_INDEX} goes bad ({fake.scenario.file}): uncorrected memory errors in its "
            f"library, and an intermittent multi-bit fault in what it computes ({PLANTED})"
        )

    async def _until(self, ended: Callable[[tuple[Host, ...]], bool], doing: str) -> tuple[Host, ...]:
        """Tell what the controller says of each host until the end of a chapter. Raises PortError."""
        with self._console.status(doing) as status:
            async with self._fleet.desk() as desk:
                while True:
                    await self._clock.sleep_s(POLL_SECONDS)
                    for name in ("controller", *self._fleet.plans):
                        if not self._fleet.alive(name):
                            raise PortError(f"{name} ended by itself")
                    try:
                        hosts = await desk.hosts()
                    except PortError:
                        continue  # the controller is not up yet
                    self._tell_news(hosts)
                    states = ", ".join(f"{host.name} {host.state}" for host in hosts)
                    status.update(f"{doing}, {self._clock.elapsed_s() - self._began_s:.0f} s: {states}")
                    if len(hosts) == len(self._fleet.plans) and ended(hosts):
                        return hosts

    def _tell_news(self, hosts: tuple[Host, ...]) -> None:
        for host in hosts:
            if self._told.get(host.name) != host.why:
                self._told[host.name] = host.why
                self._say(f"{host.name} {host.state}: {host.why}")

    def _say(self, text: str) -> None:
        self._console.print(f"[{self._clock.elapsed_s() - self._began_s:5.1f} s] {text}")


def _settled(hosts: tuple[Host, ...]) -> bool:
    return all(host.state in SETTLED for host in hosts)


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
        answer = subprocess.run(fleet.command(*words), capture_output=True, text=True, timeout=120, check=False)
        console.print((answer.stdout + answer.stderr).rstrip())
    _show_metrics(
        fleet, "controller", ("fleetd_hosts{", "fleetd_gpu_held{", "fleetd_orders_carried_out_total"), console
    )
    for name, plan in fleet.plans.items():
        gpu = f'{{gpu="SIM-{name}-{PLANTED_INDEX:02d}"'
        if plan.vendor is not None:
            _show_metrics(fleet, name, (f"fleetd_gpu_info{gpu}", f"fleetd_gpu_ecc_uncorrected_total{gpu}"), console)
    for report in sorted((fleet.folder / PLANTED_HOST / "burnin").glob("*.json")):
        console.print(f"\na burn-in's report: {report}")
    console.print(f"orders as recorded by the dry run: {fleet.folder / 'controller' / 'orders.jsonl'}")


def _show_metrics(fleet: Loopback, name: str, wanted: tuple[str, ...], console: Console) -> None:
    console.print(f"\n$ curl http://{name.upper()}/metrics")
    for line in fleet.metrics(name).splitlines():
        if line.startswith(wanted) and not (name == "controller" and line.endswith(" 0.0")):
            console.print(line)
