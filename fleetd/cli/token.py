"""`fleetd token`: what lets people and programs into the HTTP API without a client certificate."""

import click

from fleetd.cli.duration import seconds
from fleetd.cli.failure import Failure
from fleetd.cli.jsonout import write_json
from fleetd.cli.utc import utc
from fleetd.system import RealClock, secret
from fleetd.web.tokens import ROLES, WebError, new_token

SCHEMA = "fleetd.token/1"


@click.group(name="token")
def command() -> None:
    """Make bearer tokens for the HTTP API and the page."""


@command.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it may: change, look, hand in alerts.")
@click.option("--expires-in", metavar="AGE", help="It ends by itself after 90d, 12h, 30m; by default never.")
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
def new(name: str, role: str, expires_in: str | None, json_path: str | None) -> None:
    """Make a token for NAME: a person or a program, as the audit trail will name it.

    The token is shown once and kept nowhere. The line holds its digest: add it to the file that the controller's
    configuration names (`web: {tokens: FILE}`); it is read without a restart. Take the line out to withdraw the token.
    """
    expires_at_s = None if expires_in is None else RealClock().wall_s() + seconds(expires_in)
    try:
        token, line = new_token(name, role, entropy=secret(), expires_at_s=expires_at_s)
    except WebError as error:
        raise Failure(f"token new: {error}") from error
    if write_json(json_path, {"schema": SCHEMA, "token": token, "line": line}):
        return
    until = "without end" if expires_at_s is None else f"until {utc(expires_at_s)}"
    click.echo(f"token of {name}, {role}, {until}; it is not shown again:\n\n    {token}\n")
    click.echo(f"line for the controller's file of tokens:\n\n    {line}")
