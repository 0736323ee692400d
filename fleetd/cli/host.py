"""`fleetd host`: the fleet as the controller sees it, and the operator's two verbs."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.model.host import Host
from fleetd.model.ids import HostName
from fleetd.ports import Refused, UplinkError
from fleetd.uplink.desk import DeskClient, DeskConfig

Answer = TypeVar("Answer")

PIPE_COLUMNS = 10_000

_CONNECTION = (
    click.option(
        "--controller",
        metavar="ADDRESS",
        envvar="FLEETD_CONTROLLER",
        default="127.0.0.1:7443",
        show_default=True,
        help="HOST:PORT of the controller.",
    ),
    click.option(
        "--ca", type=click.Path(path_type=Path), envvar="FLEETD_CA", help="Certificate authority of the fleet."
    ),
    click.option("--cert", type=click.Path(path_type=Path), envvar="FLEETD_CERT", help="Your certificate."),
    click.option("--key", type=click.Path(path_type=Path), envvar="FLEETD_KEY", help="Your key."),
    click.option("--insecure", is_flag=True, help="No TLS; loopback addresses only."),
)


def _connected(function: Callable[..., None]) -> Callable[..., None]:
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


_json_option = click.option(
    "--json", "json_path", metavar="PATH", help="Write the result as JSON to PATH (`-`: standard output)."
)


@click.group(name="host")
def command() -> None:
    """Look at hosts, quarantine them, give them back, ask why."""


@command.command("list")
@_connected
@_json_option
def list_hosts(desk: DeskConfig, json_path: str | None) -> None:
    """List all hosts: state, GPUs, holds, why."""
    hosts = _ask(desk, lambda client: client.hosts())
    if _write_json(json_path, [msgspec.to_builtins(host) for host in hosts]):
        return
    table = Table("host", "state", "since (UTC)", "GPUs", "holds", "why", box=None, pad_edge=False)
    for host in hosts:
        since = datetime.fromtimestamp(host.since_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(host.name, host.state, since, str(len(host.inventory)), str(len(host.holds)), host.why)
    _print(table if hosts else "no host has reported yet")


@command.command()
@click.argument("name")
@_connected
@_json_option
def show(desk: DeskConfig, name: str, json_path: str | None) -> None:
    """Show one host: GPUs, holds with their evidence, latest samples, newest findings."""
    host, samples, findings = _ask(desk, lambda client: client.host(HostName(name)))
    body = {
        "host": msgspec.to_builtins(host),
        "samples": [msgspec.to_builtins(sample) for sample in samples],
        "findings": [msgspec.to_builtins(finding) for finding in findings],
    }
    if _write_json(json_path, body):
        return
    _print(f"{host.name}: {host.state} since {_utc(host.since_s)}: {host.why}")
    for hold in host.holds:
        exit_condition = f"a passing `{hold.proof_level}` burn-in" if hold.proof_level else "an operator's decision"
        _print(f"  held by {hold.owner} since {_utc(hold.at_s)}: {hold.reason}; leaves by {exit_condition}")
        _print(f"    evidence: {', '.join(hold.evidence) or 'none'}")
    latest = {sample.gpu: sample for sample in samples}
    for gpu in host.inventory:
        sample = latest.get(gpu.gpu)
        reading = (
            f"{_number(sample.power_watts, 'W')}, {_number(sample.temperature_celsius, '°C')}"
            if sample
            else "no sample"
        )
        _print(f"  gpu {gpu.index} {gpu.gpu} ({gpu.sku}): {reading}")
    for finding in findings[:10]:
        _print(f"  {_utc(finding.at_s)} finding {finding.id}: {finding.why}")


@command.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why; it is shown to everybody who looks at the host.")
@_connected
@_json_option
def quarantine(desk: DeskConfig, name: str, reason: str, json_path: str | None) -> None:
    """Take a host away from its users."""
    _changed(_ask(desk, lambda client: client.quarantine(HostName(name), reason)), json_path)


@command.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why; it stays in the host's history.")
@click.option("--override", is_flag=True, help="Lift the holds although the proof that they ask for is missing.")
@_connected
@_json_option
def release(desk: DeskConfig, name: str, reason: str, *, override: bool, json_path: str | None) -> None:
    """Give a host back to its users: needs the proof that its holds ask for, or --override."""
    _changed(_ask(desk, lambda client: client.release(HostName(name), reason, override=override)), json_path)


@command.command()
@click.argument("name")
@_connected
@_json_option
def explain(desk: DeskConfig, name: str, json_path: str | None) -> None:
    """Say step by step why a host is where it is."""
    steps = _ask(desk, lambda client: client.explain(HostName(name)))
    if _write_json(json_path, [{"at_s": at_s, "why": why} for at_s, why in steps]):
        return
    for at_s, why in steps:
        _print(f"{_utc(at_s)}  {why}")


def _ask(desk: DeskConfig, question: Callable[[DeskClient], Coroutine[Any, Any, Answer]]) -> Answer:
    async def ask() -> Answer:
        async with DeskClient(desk) as client:
            return await question(client)

    try:
        _ = desk.tls
    except UplinkError as error:
        raise Failure(str(error)) from error
    try:
        return asyncio.run(ask())
    except Refused as error:
        raise Failure(str(error), exit_code=BAD) from error
    except UplinkError as error:
        raise Failure(str(error), exit_code=CANNOT_JUDGE) from error


def _changed(host: Host, json_path: str | None) -> None:
    if not _write_json(json_path, msgspec.to_builtins(host)):
        _print(f"{host.name}: {host.state}: {host.why}")


def _write_json(path: str | None, body: Any) -> bool:
    """Write JSON if it was asked for; returns whether standard output is taken by it."""
    if path is None:
        return False
    text = json.dumps(body, indent=2)
    if path == "-":
        click.echo(text)
        return True
    try:
        Path(path).write_text(text + "\n")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; give --json another path") from error
    return False


def _print(text: Any) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_COLUMNS  # a pipe has no edge: one host, one line
    console.print(text)


def _utc(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _number(value: float | None, unit: str) -> str:
    return "not read" if value is None else f"{value:.0f} {unit}"
