"""`fleetd bundle`: the evidence of this host in one file, for a vendor's case."""

from pathlib import Path

import click

from fleetd.agent.bundle_pack import PackError
from fleetd.cli.check import socket_option
from fleetd.cli.failure import Failure
from fleetd.cli.jsonout import write_json


@click.command(name="bundle")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("/etc/fleetd/agent.yaml"),
    show_default=True,
    help="The agent's configuration, which says where its state lies.",
)
@click.option("--out", type=click.Path(path_type=Path), help="FILE.tar.zst or FILE.tar.gz.  [default: by the time]")
@click.option("--json", "json_path", metavar="PATH", help="Write the manifest as JSON; `-` is standard output.")
@click.option("--redact/--no-redact", default=True, show_default=True, help="Replace names and serials; cut secrets.")
@socket_option
def command(config: Path, out: Path | None, json_path: str | None, redact: bool, socket: Path) -> None:
    """Bundle the evidence of this host: status, readings, findings, logs, versions, topology, configuration.

    Asks no driver, and works with the agent dead: what could not be had is named. Serials, UUIDs, host names,
    addresses, users and pods become pseudonyms unless --no-redact is given: read a bundle before you give it away all
    the same.
    """
    from fleetd.compose.bundle import BundleRequest, make_bundle  # noqa: PLC0415 - the help needs none of it

    try:
        path, manifest = make_bundle(BundleRequest(config=config, socket=socket, out=out, redact=redact))
    except PackError as error:
        raise Failure(str(error)) from None
    if write_json(json_path, {"path": str(path), **manifest}):
        return
    click.echo(f"{path}: {len(manifest['files'])} files, {'redacted' if redact else 'NOT redacted'}")
    for name, why in manifest["missing"].items():
        click.echo(f"  missing: {name}: {why}")
