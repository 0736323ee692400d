"""`fleetd agent`: run the agent of this host; `status`, `release`, `attach` talk to it, `enrol` gives it a name."""

from pathlib import Path
from typing import Any

import click

from fleetd.agent.holders import holders
from fleetd.agent.status_client import NoAnswer, Refused, ask, tell
from fleetd.cli.check import socket_option
from fleetd.cli.duration import Time
from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json
from fleetd.exporter.config import COMPAT

_TIMEOUT_S = 2.0
_RELEASE_S = 40.0
"""A release waits for the call into the driver that is under way: at most the deadline of opening the library."""


class _Verbs(click.Group):
    """A group whose `enrol` is imported when it is used: asking a running agent loads no gRPC."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in alphabetical order."""
        return sorted([*super().list_commands(ctx), "enrol"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one verb; None when there is no such verb."""
        if cmd_name != "enrol":
            return super().get_command(ctx, cmd_name)
        from fleetd.cli.agent_enrol import enrol  # noqa: PLC0415

        return enrol


@click.group(name="agent", cls=_Verbs, invoke_without_command=True)
@click.option("--config", "path", type=click.Path(path_type=Path), help="YAML file of `kind: Agent`.")
@click.option("--compat", type=click.Choice(COMPAT), help="Serve the metrics under these names, too; as in the file.")
@click.pass_context
def command(context: click.Context, path: Path | None, compat: str | None) -> None:
    """Run the agent of this host: metrics, findings, burn-ins that the controller orders.

    Exit code 0: stopped. 1: something around it did not let it start or go on (disk, address), so trying again may
    help. 2: usage or configuration.
    """
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
        run_agent(load_agent(path), path, compat=compat)
    except ConfigError as error:
        raise Failure(str(error)) from error
    except PortError as error:
        raise Failure(str(error), exit_code=BAD) from error


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


@command.command(name="release")
@click.option("--for", "seconds", type=Time(longest_s=3600), required=True, help="How long: 300s, 5m; at most 1h.")
@socket_option
def release(seconds: float, socket: Path) -> None:
    """Have the agent let go of all GPUs for some time, so that they can be reset or their driver be changed.

    Exit code 0: no process that this user can see holds a GPU. 1: one does, which is named, or the release was refused.
    3: no agent answers.
    """
    _tell(socket, {"do": "release", "seconds": seconds})
    if others := holders():
        named = ", ".join(f"{one.name} ({one.pid}) has {one.device} open" for one in others)
        raise Failure(f"release: the agent let go for {seconds:g} s, but {named}; stop them", exit_code=BAD)
    click.echo(f"released for {seconds:g} s: no process holds a GPU; `fleetd agent attach` ends it before")


@command.command(name="attach")
@socket_option
def attach(socket: Path) -> None:
    """Have the agent take the GPUs up again before the time of a release is over."""
    _tell(socket, {"do": "attach"})
    click.echo("attached: the agent reads the GPUs again")


def _tell(socket: Path, request: dict[str, Any]) -> None:
    try:
        tell(socket, request, timeout_s=_RELEASE_S)
    except NoAnswer as error:
        raise Failure(str(error), exit_code=CANNOT_JUDGE) from None
    except Refused as error:
        raise Failure(f"{request['do']}: {error}", exit_code=BAD) from None


def _events(where: str, events: list[dict[str, Any]]) -> None:
    for one in events:
        click.echo(f"  {where}: {one['severity']}: {one['code']}: {one['why']} (clears: {one['clear']})")
