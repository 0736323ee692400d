"""`fleetd job`: what the controller has to know of jobs, where it does not ask the scheduler itself."""

import math

import click
import msgspec

from fleetd.cli.connection import ask, connected
from fleetd.cli.failure import Failure
from fleetd.cli.jsonout import write_json
from fleetd.model.ids import HostName
from fleetd.uplink.desk import DeskConfig


@click.group(name="job")
def command() -> None:
    """Tell the controller how jobs ended."""


@command.command("ended")
@click.argument("host")
@click.argument("job")
@click.option("--ok/--failed", required=True, help="Whether it ended well. One that was cancelled is not told at all.")
@click.option(
    "--ran", "ran_seconds", type=click.FloatRange(min=0), required=True, metavar="SECONDS", help="How long it ran."
)
@connected
@click.option("--json", "json_path", metavar="PATH", help="Write the host as JSON; `-` is standard output.")
def ended(desk: DeskConfig, host: str, job: str, ran_seconds: float, json_path: str | None, *, ok: bool) -> None:
    """Tell that JOB ended on HOST: many that fail at once on one host, and not elsewhere, accuse it.

    For an epilog. A controller whose actuator is `slurm` or `kubernetes` hears of the ends of jobs by itself.
    """
    if not math.isfinite(ran_seconds):
        raise Failure("job ended: --ran must be a number of seconds")
    found = ask(desk, lambda client: client.job_ended(HostName(host), job, ok=ok, ran_seconds=ran_seconds))
    if not write_json(json_path, {"schema": "fleetd.host/1", **msgspec.to_builtins(found)}):
        click.echo(f"{found.name} is {found.state}: noted that job {job} {'ended well' if ok else 'failed'}")
