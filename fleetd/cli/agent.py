"""`fleetd agent`: run the agent of this host until it is stopped; `fleetd agent status`: ask the running one."""

from pathlib import Path
from typing import Any

import click

from fleetd.agent.status_client import NoAnswer, ask
from fleetd.cli.check import socket_option
from fleetd.cli.failure import CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json

_TIMEOUT_S = 2.0


@click.group(name="agent", invoke_without_command=True)
@click.option("--config", "path", type=click.Path(path_type=Path), help="YAML file of `kind: Agent`.")
@click.pass_context
def command(context: click.Context, path: Path | None) -> None:
    """Run the agent of this host: metrics, findings, burn-ins that the controller orders."""
    if context.invoked_subcommand is not None:
        return
    if path is None:
        raise click.UsageError("Missing option '--config'.")
    # Imported here: asking a running agent needs none of it.
    from fleetd.compose.agent import run_agent  # noqa: PLC0415
    from fleetd.config import ConfigError  # noqa: PLC0415
    from fleetd.config.files import load_agent  # noqa: PLC0415
    from fleetd.ports import PortError  # noqa: PLC0415

    try:
        run_agent(load_agent(path))
    except (ConfigError, PortError) as error:
        raise Failure(str(error)) from error


@command.command(name="status")
@click.option("--json", "json_path", metavar="PATH", help="Write the status as JSON; `-` is standard output.")
@socket_option
def status(json_path: str | None, socket: Path) -> None:
    """Show what the running agent knows: its GPUs, the events that stand against them, and how it does itself."""
    try:
        found = ask(socket, timeout_s=_TIMEOUT_S)
    except NoAnswer as error:
        raise Failure(str(error), exit_code=CANNOT_JUDGE) from None
    if write_json(json_path, found):
        return
    click.echo(f"{found['host']}: {found['readiness'].replace('_', ' ')}: {found['why']}")
    click.echo(
        f"agent {found['agent_version']}, controller {'connected' if found['uplink_connected'] else 'away'}, ", nl=False
    )
    click.echo(f"{found['findings_total']} findings, {found['spool_pending']} not acknowledged")
    _events("host", found["host_events"])
    for gpu in found["gpus"]:
        click.echo(f"GPU {gpu['index']}  {gpu['gpu']}  {gpu['sku']}  {'answers' if gpu['answers'] else 'silent'}")
        _events(f"GPU {gpu['index']}", gpu["events"])


def _events(where: str, events: list[dict[str, Any]]) -> None:
    for one in events:
        click.echo(f"  {where}: {one['severity']}: {one['code']}: {one['why']} (clears: {one['clear']})")
