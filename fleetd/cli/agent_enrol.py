"""`fleetd agent enrol`: give this host its certificate, with an operator's token."""

import sys
from pathlib import Path

import click

from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.cli.utc import utc
from fleetd.config import ConfigError
from fleetd.config.files import load_agent
from fleetd.model.ids import HostName
from fleetd.ports import PortError, Refused
from fleetd.system import RealClock, host_name

_TOKEN_MAX_BYTES = 4096
_ANSWER_S = 20.0


@click.command(name="enrol")
@click.option("--controller", metavar="ADDRESS", required=True, help="HOST:PORT where the controller enrols hosts.")
@click.option("--config", "path", type=click.Path(path_type=Path), help="The agent's file: names host, ca, cert, key.")
@click.option("--ca", type=click.Path(path_type=Path), help="What the controller's certificate descends from.")
@click.option("--cert", type=click.Path(path_type=Path), help="Where the certificate goes.")
@click.option("--key", type=click.Path(path_type=Path), help="Where the key goes; it is made here and never leaves.")
@click.option("--host", metavar="NAME", help="The host's name in the fleet.  [as in the file, or the kernel's]")
@click.option("--token", "token_file", type=click.Path(path_type=Path), help="File with the token.  [standard input]")
@click.option("--force", is_flag=True, help="Also when there is a certificate that counts.")
def enrol(
    *,
    controller: str,
    path: Path | None,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    host: str | None,
    token_file: Path | None,
    force: bool,
) -> None:
    """Make a key on this host, and have the controller sign it.

    The token of `fleetd pki token` is read from standard input: on a command line others would see it. Run it as the
    agent's user. Exit code 1: the controller refused; 3: it could not be reached.
    """
    files, name = _files(path, ca, cert, key, host)
    try:
        from fleetd.uplink.enrol import Files  # noqa: PLC0415 - its library is in an extra
        from fleetd.uplink.enrol import enrol as ask  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise Failure("enrolling needs `cryptography`: pip install 'fleetd[enrol]'") from error
    try:
        valid = ask(
            controller,
            Files(ca=files[0], cert=files[1], key=files[2]),
            host=name,
            token=_token(token_file),
            answer_s=_ANSWER_S,
            now_s=RealClock().wall_s(),
            force=force,
        )
    except Refused as error:
        raise Failure(str(error), exit_code=BAD) from error
    except PortError as error:
        raise Failure(str(error), exit_code=CANNOT_JUDGE) from error
    click.echo(
        f"{name} has a certificate until {utc(valid.ends_at_s)}: {files[1]}; with `uplink: {{renew: true}}` in its "
        "file, the agent renews it"
    )


def _files(
    path: Path | None, ca: Path | None, cert: Path | None, key: Path | None, host: str | None
) -> tuple[tuple[Path, Path, Path], HostName]:
    """What the command line says, else what the agent's file says."""
    if path is not None:
        try:
            config = load_agent(path)
        except ConfigError as error:
            raise Failure(str(error)) from error
        if (tls := config.uplink.tls) is not None:
            ca, cert, key = ca or Path(tls.ca), cert or Path(tls.cert), key or Path(tls.key)
        host = host or config.host
    if ca is None or cert is None or key is None:
        raise Failure("agent enrol: name the agent's file with --config, or --ca, --cert and --key")
    if cert == key:
        raise Failure(f"agent enrol: {cert}: the certificate and the key need a file each")
    return (ca, cert, key), HostName(host) if host else host_name()


def _token(path: Path | None) -> str:
    try:
        if path is None:
            if sys.stdin.isatty():
                click.echo("token: ", nl=False, err=True)
            raw = sys.stdin.buffer.readline(_TOKEN_MAX_BYTES)
        else:
            with path.open("rb") as file:
                raw = file.read(_TOKEN_MAX_BYTES)
        token = raw.decode("ascii").strip()
    except OSError as error:
        raise Failure(f"agent enrol: cannot read {path or 'the token'}: {error.strerror}") from error
    except UnicodeDecodeError:
        token = ""
    if not token:
        where = path or "standard input"
        raise Failure(f"agent enrol: {where} holds no token; an operator makes one: fleetd pki token HOST")
    return token
