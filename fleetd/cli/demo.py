"""`fleetd demo`: fleetd at work where there is no GPU: a fleet, one host, or the day of a simulated fleet."""

import math
import tempfile
from importlib.util import find_spec
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from fleetd.cli import demo_fleet, demo_host, demo_world
from fleetd.cli.failure import Failure

_ONLY_WITH = {"hours": "world", "seed": "world", "policy": "world", "port": "host"}
"""Option → the option without which it means nothing."""


@click.command(name="demo")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Keep everything in this new directory.")
@click.option("--seconds", type=click.IntRange(min=10), default=300, show_default=True, help="Give up after so many.")
@click.option("--host", metavar="VENDOR[:GPUS]", help="Instead: one agent, on a fake host: nvidia, amd, nvidia:4, …")
@click.option("--port", type=click.IntRange(1, 65535), help="With --host: of /metrics; any free one by default.")
@click.option("--world", "hosts", type=click.IntRange(1, 20_000), help="Instead: a simulated fleet of so many hosts.")
@click.option(
    "--hours",
    type=click.FloatRange(0.1, 24 * 31),
    default=24.0,
    show_default=True,
    help="With --world: how long its day is.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="With --world: the same seed, the same day.",
)
@click.option("--policy", default="default", show_default=True, help="With --world: a shipped policy, or a file.")
def command(  # noqa: PLR0917 - click calls it by keywords
    folder: Path | None,
    seconds: int,
    host: str | None,
    port: int | None,
    hosts: int | None,
    hours: float,
    seed: int,
    policy: str,
) -> None:
    """Show fleetd at work: of three hosts with 8 GPUs each, one GPU goes bad, is found, and its host is quarantined.

    The agents run the vendors' real Python bindings on fake libraries, which gcc builds at the first time; without gcc
    the GPUs are simulated inside the agents.

    With --host nvidia, one such agent runs until Ctrl-C, for looking at its /metrics and for letting its GPUs go bad.
    With --world N, the day of a whole simulated fleet passes in seconds: what goes wrong, what is quarantined, what is
    withheld, and why. Text on a terminal, JSON lines on a pipe.
    """
    if not math.isfinite(hours):
        raise Failure("demo: --hours must be a number of hours")
    if hosts is not None:
        for name, given in (("dir", folder), ("host", host)):
            if given is not None:
                raise Failure(
                    f"demo: --{name} is for the demo with real processes; a world has none, and leaves no files"
                )
        _refuse_idle_options("world")
        demo_world.run(hosts=hosts, hours=hours, seed=seed, policy=policy)
        return
    _refuse_idle_options("" if host is None else "host")
    plan = None if host is None else demo_host.plan_of(host)
    if plan is None and find_spec("torch") is None:
        raise Failure("demo burns simulated GPUs in and needs torch: pip install 'fleetd[burnin,controller]'")
    console = Console(highlight=False, markup=False, soft_wrap=True)
    folder = _made(folder)
    if plan is not None:
        demo_host.run(folder, plan, port=port, console=console)
    else:
        demo_fleet.run(folder, seconds=seconds, console=console)


def _refuse_idle_options(chosen: str) -> None:
    """Refuse to ignore what somebody asked for."""
    context = click.get_current_context()
    for name, needs in _ONLY_WITH.items():
        if needs != chosen and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            with_what = "a simulated fleet; add --world N" if needs == "world" else "one host; add --host VENDOR"
            raise Failure(f"demo: --{name} is for {with_what}")


def _made(folder: Path | None) -> Path:
    """The new folder of a demo. Raises Failure."""
    try:
        if folder is None:
            return Path(tempfile.mkdtemp(prefix="fleetd-demo-"))
        folder.mkdir(parents=True)
    except OSError as error:
        raise Failure(f"{folder}: {error.strerror}; name a new directory with --dir") from error
    return folder.resolve()
