"""`fleetd demo --host VENDOR`: one agent on a fake host, to look at and to play with until Ctrl-C."""

import asyncio
import shlex
from pathlib import Path

from rich.console import Console

from fleetd.cli.check import ENVIRON
from fleetd.cli.failure import CANNOT_JUDGE, Failure
from fleetd.loopback import HostPlan, Loopback
from fleetd.sim.vendorlibs.host import VENDORS
from fleetd.sim.vendorlibs.libraries import NoFakeLibrary
from fleetd.system import RealClock, stop_on_signals

NAME = "h01"
GPUS_MAX = 16
"""More are on no host of today."""
_START_SECONDS = 180.0
_POLL_SECONDS = 0.25
_MADE_OF = {"nvidia": ("nvidia-ml-py", "libnvidia-ml.so.1"), "amd": ("amdsmi", "libamd_smi.so")}
_TROUBLES = {
    "nvidia": {"uncorrected memory errors": "TotalEccErrors.1 = 2", "its driver hangs": "hang.PowerUsage = 1"},
    "amd": {
        "uncorrected memory errors": "total_ecc_count.uncorrectable_count = 2",
        "its driver hangs": "hang.power_info = 1",
    },
}
"""What a user may add to the scenario: what it is, and the line behind the GPU's number."""


def plan_of(text: str) -> HostPlan:
    """Read `nvidia`, `amd:4`, …. Raises Failure."""
    vendor, colon, count = text.partition(":")
    gpus = int(count) if count.isascii() and count.isdigit() and len(count) <= len(str(GPUS_MAX)) else None
    if vendor not in VENDORS:
        raise Failure(f"demo: --host {text!r:.80}: no such vendor; there are: {', '.join(VENDORS)}")
    if colon and (gpus is None or not 1 <= gpus <= GPUS_MAX):
        raise Failure(f"demo: --host {text!r:.80}: give a number of GPUs from 1 to {GPUS_MAX}, like {vendor}:8")
    return HostPlan(name=NAME, vendor=vendor, gpus=gpus or 8)


def run(folder: Path, plan: HostPlan, *, port: int | None, console: Console) -> None:
    """Run the agent until SIGINT or SIGTERM. Raises Failure: there is no library for it, or the agent ended."""
    clock = RealClock()
    try:
        fleet = Loopback(folder, (plan,), now_s=clock.wall_s())
    except NoFakeLibrary as error:
        raise Failure(f"demo: no fake vendor libraries: {error}") from error
    if port is not None:
        fleet.metrics_ports[NAME] = port
        fleet.write_agent(NAME, port=fleet.port)
    with fleet:
        asyncio.run(_until_stopped(fleet, clock, console))


async def _until_stopped(fleet: Loopback, clock: RealClock, console: Console) -> None:
    stop = stop_on_signals()
    console.print(f"starting an agent on a fake host, in {fleet.folder}; it has read every GPU after some ten seconds")
    fleet.start(NAME)
    shown = False
    began_s = clock.elapsed_s()
    while not stop.is_set():
        if not fleet.alive(NAME):
            raise Failure(f"demo: the agent ended; its log is {_log(fleet)}", exit_code=CANNOT_JUDGE)
        if not shown and await asyncio.to_thread(_all_read, fleet):
            shown = True
            _explain(fleet, console)
        if not shown and clock.elapsed_s() - began_s > _START_SECONDS:
            raise Failure(f"demo: the agent does not show every GPU; its log is {_log(fleet)}", exit_code=CANNOT_JUDGE)
        try:
            async with asyncio.timeout(_POLL_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue
    console.print(f"stopped; configuration, state and log stay in {fleet.folder}")


def _all_read(fleet: Loopback) -> bool:
    """Whether every GPU was read in full, which takes a slow round: errors show as the growth of a known counter."""
    return fleet.metrics(NAME).count("\nfleetd_gpu_ecc_uncorrected_total{") == fleet.plans[NAME].gpus


def _log(fleet: Loopback) -> Path:
    return fleet.folder / "logs" / f"{NAME}.log"


def _explain(fleet: Loopback, console: Console) -> None:
    """Say where to look, and how to let a GPU go bad."""
    plan, scenario, socket = fleet.plans[NAME], fleet.fakes[NAME].scenario.file, fleet.socket(NAME)
    binding, library = _MADE_OF[str(plan.vendor)]
    console.print(f"the agent of a host of {plan.gpus} GPUs: {binding} on a fake {library}; it has no controller\n")
    console.print(f"  curl http://127.0.0.1:{fleet.metrics_ports[NAME]}/metrics")
    if socket is not None:
        console.print(f"  export {ENVIRON}={shlex.quote(str(socket))}")
        console.print("  fleetd check; fleetd agent status")
    console.print("\nlet a GPU go bad, and look again after some seconds:")
    for what, line in _TROUBLES[str(plan.vendor)].items():
        told = f"{plan.gpus - 1} {line}"
        console.print(f"  echo '{told}' >> {shlex.quote(str(scenario))}  # {what}")
    console.print(f"\nits log: {_log(fleet)}; Ctrl-C ends it")
