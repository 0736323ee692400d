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


def _file(name: str, variable: str, says: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, type=click.Path(path_type=Path), envvar=variable, show_envvar=True, help=says)


_CONNECTION = (
    click.option(
        "--controller",
        metavar="ADDRESS",
        envvar="FLEETD_CONTROLLER",
        show_envvar=True,
        default="127.0.0.1:7443",
        show_default=True,
        help="HOST:PORT of the controller; several that share a ledger with commas.",
    ),
    _file("--ca", "FLEETD_CA", "What the controller's certificate descends from."),
    _file("--cert", "FLEETD_CERT", "Your certificate: it says who you are."),
    _file("--key", "FLEETD_KEY", "Your certificate's key."),
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
