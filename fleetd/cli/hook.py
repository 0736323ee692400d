"""`fleetd hook`: what other tools hand in."""

import json
from typing import BinaryIO

import click

from fleetd.cli.connection import ask, connected
from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json
from fleetd.core.alerts import Read, UnreadableAlerts, read
from fleetd.ports import AlertsTaken
from fleetd.uplink.desk import DeskConfig

BODY_BYTES_MAX = 8 << 20


@click.group(name="hook")
def command() -> None:
    """Take alerts of other monitors as findings."""


@command.command("alertmanager")
@click.argument("body", type=click.File("rb"), default="-")
@connected
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
def alertmanager(desk: DeskConfig, body: BinaryIO, json_path: str | None) -> None:
    """Make findings of the alerts in the BODY of Alertmanager's webhook (`-`: standard input).

    Each firing alert becomes a finding with the code `alert.NAME` on the host that its labels name, once; a policy's
    rules decide what it means, and without one a human is told of an error. Resolved alerts change nothing.

    Exit codes: 0 all were taken; 1 some were not; 2 usage; 3 the body or the controller cannot be read.
    """
    found = _read(body.read(BODY_BYTES_MAX + 1))
    taken = ask(desk, lambda client: client.alerts(found.alerts)) if found.alerts else AlertsTaken(taken=0, refused=())
    refused = [*found.refused, *taken.refused]
    result = {
        "schema": "fleetd.alerts/1",
        "firing": len(found.alerts),
        "resolved": found.resolved,
        "taken": taken.taken,
        "refused": refused,
    }
    if not write_json(json_path, result):
        click.echo(f"{len(found.alerts)} alerts fire, {taken.taken} of them are new; {found.resolved} are resolved")
        for why in refused:
            click.echo(f"not taken: {why}")
    if refused:
        raise Failure(f"hook alertmanager: {len(refused)} alerts were not taken: {refused[0]}", exit_code=BAD)


def _read(body: bytes) -> Read:
    if len(body) > BODY_BYTES_MAX:
        raise Failure(f"hook alertmanager: the body has more than {BODY_BYTES_MAX} bytes", exit_code=CANNOT_JUDGE)
    try:
        return read(json.loads(body))
    except (UnreadableAlerts, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())[:200]
        raise Failure(f"hook alertmanager: the body cannot be read: {said}", exit_code=CANNOT_JUDGE) from error
