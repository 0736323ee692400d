"""`fleetd check`: may new work start on this host? For Slurm's prolog and health check, and Kubernetes' probes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fleetd.agent.status_client import ENVIRON, SCHEMA, SOCKET, NoAnswer, ask, default_socket
from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json

__all__ = ["ENVIRON", "command", "socket_option"]

_TIMEOUT_S = 0.1
_F = TypeVar("_F", bound=Callable[..., Any])
_EXIT = {"ready": 0, "bad": BAD}


def socket_option(function: _F) -> _F:
    """Give a command `--socket`."""
    return click.option(
        "--socket",
        "socket",
        type=click.Path(path_type=Path),
        default=lambda: default_socket(os.environ),
        show_default=f"${ENVIRON}, else {SOCKET}",
        help="The agent's Unix socket.",
    )(function)


@click.command(name="check")
@click.option("--json", "json_path", metavar="PATH", help="Write the agent's status as JSON; `-` is standard output.")
@socket_option
def command(json_path: str | None, socket: Path) -> None:
    """Ask the running agent whether new work may start. Starts nothing, and asks no driver.

    Exit code 0: ready. 1: a fault stands, which is named. 2: usage. 3: cannot tell; treat the host as not ready.
    """
    try:
        found = ask(socket, timeout_s=_TIMEOUT_S)
    except NoAnswer as error:
        write_json(json_path, {"schema": SCHEMA, "readiness": "cannot_tell", "why": str(error)})
        raise Failure(str(error), exit_code=CANNOT_JUDGE) from None
    taken = write_json(json_path, found)
    code = _EXIT.get(found["readiness"], CANNOT_JUDGE)
    if code:
        raise Failure(f"{found['readiness'].replace('_', ' ')}: {found['why']}", exit_code=code)
    if not taken:
        click.echo(f"ready: {found['why']}")
