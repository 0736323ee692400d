"""`fleetd faults follow`: tell the faults of a kernel log as they come."""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import click

from fleetd.cli.failure import CANNOT_JUDGE, Failure
from fleetd.compose.follow import Blind, Follower, Heartbeat, Told
from fleetd.compose.kernel_log import kernel_log
from fleetd.config import ConfigError
from fleetd.config.faults import load_catalogue
from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.live import LiveScan
from fleetd.ports import StoreError
from fleetd.system import RealClock, boot_id, stop_on_signals

SCHEMA = "fleetd.faults.follow/1"


@click.command()
@click.option(
    "--source",
    default="kmsg",
    show_default=True,
    metavar="kmsg|journal|PATH",
    help="The kernel's ring, the journal, or a log file that grows.",
)
@click.option(
    "--cursor",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep in this file how far the log was read, and go on from there.",
)
@click.option(
    "--catalogue",
    "site",
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR",
    help="A site's own catalogue files, which win over the shipped ones.",
)
@click.option(
    "--heartbeat",
    "heartbeat_s",
    type=click.FloatRange(min=0.1, max=3600.0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to say that the log is still being read.",
)
@click.option("--json", "json_path", metavar="PATH", help="Append one JSON object a line; `-` is standard output.")
def follow(source: str, cursor: Path | None, site: Path | None, heartbeat_s: float, json_path: str | None) -> None:
    """Follow a kernel log until SIGTERM or SIGINT, and tell every fault once, and again when it changes.

    Exit codes: 0 stopped, 2 usage, 3 the log cannot be read.
    """
    try:
        catalogue = load_catalogue(site)
    except ConfigError as error:
        raise Failure(str(error)) from None
    if source not in ("kmsg", "journal") and not Path(source).exists():
        raise Failure(f"--source {source}: there is no such file; give `kmsg`, `journal` or a file's path")
    if json_path is None or json_path == "-":
        _run(source, cursor, catalogue, heartbeat_s, _Teller(sys.stdout if json_path else None))
        return
    try:
        with Path(json_path).open("a", encoding="utf-8") as stream:
            _run(source, cursor, catalogue, heartbeat_s, _Teller(stream))
    except OSError as error:
        raise Failure(f"cannot write {json_path}: {error.strerror}; give --json a path that can be written") from None


def _run(source: str, cursor: Path | None, catalogue: Catalogue, heartbeat_s: float, teller: "_Teller") -> None:
    async def run() -> None:
        clock = RealClock()
        log = kernel_log(source, cursor=cursor, boot_id=boot_id(), clock=clock)
        follower = Follower(log, LiveScan(catalogue), clock, teller.tell)
        await follower.run(stop_on_signals(), heartbeat_s=heartbeat_s)

    try:
        asyncio.run(run())
    except StoreError as error:
        raise Failure(str(error)) from None
    except Blind as error:
        hint = "; read it as root, or follow `--source journal`" if source == "kmsg" else ""
        raise Failure(f"{source}: {error}{hint}", exit_code=CANNOT_JUDGE) from None


class _Teller:
    """Writes what is told: JSON lines to a stream, or lines for a person."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._lost = 0

    def tell(self, told: Told | Heartbeat) -> None:
        """Write one thing, at once."""
        if self._stream is not None:
            self._stream.write(json.dumps({"schema": SCHEMA, **_fields(told)}) + "\n")
            self._stream.flush()
        elif isinstance(told, Told):
            finding = told.finding
            follow_on = "  (follow-on)" if finding.role == "victim" else ""
            where = finding.device or finding.scope.value
            click.echo(f"{finding.action.value:<12}{finding.alias}  {where}{follow_on}  {finding.why}")
        elif told.trouble is not None:
            click.echo(f"fleetd: blind: {told.trouble}", err=True)
        elif told.lost_total > self._lost:
            click.echo(f"fleetd: {told.lost_total - self._lost} records were dropped by the kernel", err=True)
            self._lost = told.lost_total


def _fields(told: Told | Heartbeat) -> dict[str, object]:
    if isinstance(told, Heartbeat):
        return {"event": "heartbeat", **asdict(told)}
    finding = asdict(told.finding)
    finding.update(
        scope=told.finding.scope.value,
        severity=told.finding.severity.name.lower(),
        action=told.finding.action.value,
    )
    return {"event": "finding", "boot_id": told.boot_id, "seq": told.seq, **finding}
