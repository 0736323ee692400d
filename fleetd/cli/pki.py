"""`fleetd pki`: certificates for development. A site's own CA makes those of production."""

from pathlib import Path

import click

from fleetd.cli.failure import Failure
from fleetd.ports import UplinkError
from fleetd.system import RealClock, host_name


@click.group(name="pki")
def command() -> None:
    """Make certificates for development, tests and demonstrations."""


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
