"""`fleetd pki`: certificates for development; tokens with which hosts enrol, where the controller signs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from fleetd.cli.connection import ask, connected
from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json
from fleetd.cli.utc import utc
from fleetd.config import ConfigError
from fleetd.config.files import ControllerConfig, load_controller
from fleetd.model.ids import HostName
from fleetd.ports import Refused, StoreError, UplinkError
from fleetd.system import RealClock, host_name, user_name
from fleetd.uplink.desk import DeskConfig

T = TypeVar("T")


@click.group(name="pki")
def command() -> None:
    """Make certificates for development; let hosts enrol, and see which did."""


@command.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A host, for its agent.  [this one]")
@click.option("--operator", "operators", multiple=True, metavar="NAME", help="An operator: may act.  [operator]")
@click.option("--viewer", "viewers", multiple=True, metavar="NAME", help="A viewer: may look.")
@click.option("--san", "sans", multiple=True, metavar="NAME", help="Another name or address of the controller.")
def dev(
    directory: Path,
    hosts: tuple[str, ...],
    operators: tuple[str, ...],
    viewers: tuple[str, ...],
    sans: tuple[str, ...],
) -> None:
    """Make a CA in DIR, and certificates for the controller, agents and operators; valid for a year.

    DIR must not exist, or be empty. The controller's certificate is for localhost, 127.0.0.1, ::1 and every --san.
    """
    try:
        from fleetd.uplink.pki import DevPki, make_dev_pki  # noqa: PLC0415 - its library is in an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise Failure("making certificates needs `cryptography`: pip install 'fleetd[controller]'") from error
    wanted = DevPki(hosts=hosts or (host_name(),), operators=operators or ("operator",), viewers=viewers, sans=sans)
    try:
        make_dev_pki(directory, wanted, now_s=RealClock().wall_s())
    except UplinkError as error:
        raise Failure(str(error)) from error
    operator = f"{directory}/operators/{wanted.operators[0]}"
    click.echo(
        f"made {directory} with a CA and certificates for the controller, {len(wanted.hosts)} agent(s) and "
        f"{len(wanted.operators) + len(wanted.viewers)} operator(s) and viewer(s), for development only; next: name "
        f"ca, cert and key in the configurations, and export FLEETD_CA={directory}/ca.crt FLEETD_CERT={operator}.crt "
        f"FLEETD_KEY={operator}.key for `fleetd host`"
    )


@command.command()
@click.argument("host")
@click.option("--reason", required=True, help="Why; it stays in the audit.")
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help="The controller's file: make the token here, on its machine, whether it runs or not.",
)
@connected
def token(desk: DeskConfig, host: str, reason: str, path: Path | None) -> None:
    """Let HOST enrol, once: print a token for `fleetd agent enrol`. Ask the controller, or make it on its machine.

    The token is all that is printed on standard output. It is for this host only, and expires (in an hour, if the
    controller's configuration does not say otherwise).
    """
    if path is None:
        made = ask(desk, lambda client: client.issue_token(HostName(host), reason))
    else:
        from fleetd.compose.enrolment import issue_here  # noqa: PLC0415 - on the controller's machine only

        who = user_name(os.geteuid()) or str(os.geteuid())
        clock = RealClock()
        made = _here(path, lambda config: issue_here(config, who, HostName(host), reason, clock))
    click.echo(made.token)
    click.echo(f"for {host}, until {utc(made.expires_at_s)}; there: fleetd agent enrol, which reads it", err=True)


@command.command()
@click.option("--config", "path", type=click.Path(path_type=Path), required=True, help="The controller's file.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="So many at most.")
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
def log(path: Path, limit: int, json_path: str | None) -> None:
    """Show who was let in, and who was not: tokens, enrolments, renewals; newest first. On the controller's machine."""
    from fleetd.compose.enrolment import attempts_here  # noqa: PLC0415 - on the controller's machine only

    found = _here(path, lambda config: attempts_here(config, limit=limit))
    rows = [
        {"at_s": a.at_s, "what": a.what, "host": a.host, "who": a.who, "refused": a.refused, "why": a.why}
        for a in found
    ]
    if write_json(json_path, {"schema": "fleetd.pki.log/1", "attempts": rows}):
        return
    for a in found:
        click.echo(f"{utc(a.at_s)} {'REFUSED ' if a.refused else ''}{a.what} {a.host} by {a.who}: {a.why}")


def _here(path: Path, step: Callable[[ControllerConfig], T]) -> T:
    try:
        return step(load_controller(path))
    except (ConfigError, UplinkError) as error:
        raise Failure(str(error)) from error
    except Refused as error:
        raise Failure(str(error), exit_code=BAD) from error
    except StoreError as error:
        raise Failure(str(error), exit_code=CANNOT_JUDGE) from error
