"""`fleetd hold`: what keeps hosts from their users, and who put it there."""

import click
import msgspec

from fleetd.cli.connection import ask, connected
from fleetd.cli.failure import BAD, Failure
from fleetd.cli.host import leaves_by, quarantine, release
from fleetd.cli.jsonout import write_json
from fleetd.cli.tables import show, table
from fleetd.cli.utc import utc
from fleetd.uplink.desk import DeskConfig


@click.group(name="hold")
def command() -> None:
    """List holds, place one, release a host."""


@command.command("list")
@click.option("--host", help="Only of this host.")
@click.option("--owner", help="Only of this owner: `fleetd`, `fleetd:earlier` or `operator:NAME`.")
@connected
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
def list_holds(desk: DeskConfig, host: str | None, owner: str | None, json_path: str | None) -> None:
    """List all holds, and the charges that would be holds if nothing kept them back."""
    hosts = [known for known in ask(desk, lambda client: client.hosts()) if host in {None, known.name}]
    if host is not None and not hosts:
        raise Failure(
            f"hold list: no host {host!r}; `fleetd host list` shows the hosts that ever reported", exit_code=BAD
        )
    holds = [(h.name, hold, "") for h in hosts for hold in h.holds]
    holds += [(h.name, charge.hold, charge.withheld) for h in hosts for charge in h.charges]
    holds = [row for row in holds if owner in {None, row[1].owner}]
    rows = [{"host": name, "withheld": withheld or None, **msgspec.to_builtins(hold)} for name, hold, withheld in holds]
    if write_json(json_path, {"schema": "fleetd.holds/1", "holds": rows}):
        return
    rows_shown = table("host", "owner", "since", "gpu", "class", "leaves by", "reason", "evidence")
    for name, hold, withheld in holds:
        reason = f"{hold.reason} (kept back: {withheld})" if withheld else hold.reason
        evidence = ", ".join(hold.evidence)
        owner_of = f"{hold.owner}, not put on" if withheld else hold.owner
        kind = hold.fault_class.value
        rows_shown.add_row(name, owner_of, utc(hold.at_s), hold.gpu or "", kind, leaves_by(hold), reason, evidence)
    of_whom = f" of {owner}" if owner is not None else ""
    show(rows_shown if holds else f"no hold{of_whom} is on {'any host' if host is None else host}")


command.add_command(quarantine, "place")
command.add_command(release, "release")
