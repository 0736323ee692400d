"""How a command reaches the controller: options, certificates, and what an answer or its absence means."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.ports import Refused, UplinkError
from fleetd.uplink.desk import DeskClient, DeskConfig

Answer = TypeVar("Answer")

_CONNECTION = (
    click.option(
        "--controller",
        metavar="ADDRESS",
        envvar="FLEETD_CONTROLLER",
        default="127.0.0.1:7443",
        show_default=True,
        help="HOST:PORT of the controller, or several with commas: of those that share a ledger, the judge is asked.",
    ),
    click.option(
        "--ca", type=click.Path(path_type=Path), envvar="FLEETD_CA", help="Certificate authority of the fleet."
    ),
    click.option("--cert", type=click.Path(path_type=Path), envvar="FLEETD_CERT", help="Your certificate."),
    click.option("--key", type=click.Path(path_type=Path), envvar="FLEETD_KEY", help="Your key."),
    click.option("--insecure", is_flag=True, help="No TLS; loopback addresses only."),
)


def connected(function: Callable[..., None]) -> Callable[..., None]:
    """Add the connection options and hand the command a `DeskConfig` as `desk`."""

    @wraps(function)
    def command(
        controller: str, ca: Path | None, cert: Path | None, key: Path | None, *, insecure: bool, **rest: Any
    ) -> None:
        desk = DeskConfig(
            address=controller,
            ca=str(ca) if ca else None,
            cert=str(cert) if cert else None,
            key=str(key) if key else None,
            insecure=insecure,
        )
        function(desk=desk, **rest)

    for option in reversed(_CONNECTION):
        command = option(command)
    return command


def ask(desk: DeskConfig, question: Callable[[DeskClient], Coroutine[Any, Any, Answer]]) -> Answer:
    """Ask the controller one thing. Raises Failure: 1 when it refuses, 2 on bad options, 3 when it cannot answer."""

    async def answer() -> Answer:
        async with DeskClient(desk) as client:
            return await question(client)

    try:
        _ = desk.tls
    except UplinkError as error:
        raise Failure(str(error)) from error
    try:
        return asyncio.run(answer())
    except Refused as error:
        raise Failure(str(error), exit_code=BAD) from error
    except UplinkError as error:
        raise Failure(str(error), exit_code=CANNOT_JUDGE) from error
