"""`fleetd automation`, `fleetd budget`, `fleetd incident`: what a human decides for the whole fleet."""

from collections.abc import Callable

import click
import msgspec

from fleetd.cli.connection import ask, connected
from fleetd.cli.failure import BAD, Failure
from fleetd.cli.jsonout import write_json
from fleetd.cli.utc import utc
from fleetd.model.fleet import FleetRecord, Incident
from fleetd.uplink.desk import DeskConfig

Line = Callable[[FleetRecord], list[str]]

_json_option = click.option(
    "--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output."
)
_reason_option = click.option("--reason", required=True, help="Why; it stays in the journal.")


@click.group(name="automation")
def command() -> None:
    """Stop every automatic action at once, and let it go on."""


@command.command("show")
@connected
@_json_option
def show_automation(desk: DeskConfig, json_path: str | None) -> None:
    """Say whether automation is stopped, and by whom."""
    _show(ask(desk, lambda client: client.fleet()), _automation, json_path)


@command.command("stop")
@_reason_option
@connected
@_json_option
def stop(desk: DeskConfig, reason: str, json_path: str | None) -> None:
    """Stop it all (the kill switch): no quarantine, no burn-in until `resume`; operators' own orders go through."""
    _show(ask(desk, lambda client: client.stop_automation(reason)), _automation, json_path)


@command.command("resume")
@_reason_option
@connected
@_json_option
def resume(desk: DeskConfig, reason: str, json_path: str | None) -> None:
    """Let automation go on; each host is judged as it is now."""
    _show(ask(desk, lambda client: client.resume_automation(reason)), _automation, json_path)


@click.group(name="budget")
def budget() -> None:
    """Look at the quarantine budgets that tripped, and re-arm them."""


@budget.command("show")
@connected
@_json_option
def show_budgets(desk: DeskConfig, json_path: str | None) -> None:
    """List the budgets that withhold quarantines."""
    _show(ask(desk, lambda client: client.fleet()), _budgets, json_path)


@budget.command("rearm")
@_reason_option
@connected
@_json_option
def rearm(desk: DeskConfig, reason: str, json_path: str | None) -> None:
    """Let automatic quarantines through again; hosts that are still charged are judged as they are now."""
    _show(ask(desk, lambda client: client.rearm_budget(reason)), _budgets, json_path)


@click.group(name="incident")
def incident() -> None:
    """Look at open incidents and close them."""


@incident.command("list")
@connected
@_json_option
def list_incidents(desk: DeskConfig, json_path: str | None) -> None:
    """List the open incidents."""
    _show(ask(desk, lambda client: client.fleet()), _incidents, json_path)


@incident.command("show")
@click.argument("name", metavar="ID")
@connected
@_json_option
def show_incident(desk: DeskConfig, name: str, json_path: str | None) -> None:
    """Show one open incident, and the hosts that it keeps from being quarantined."""
    record = ask(desk, lambda client: client.fleet())
    found = next((known for known in record.incidents if known.id == name), None)
    if found is None:
        raise Failure(f"no incident `{name}` is open; `fleetd incident list` shows those that are", exit_code=BAD)
    hosts = ask(desk, lambda client: client.hosts())
    charged = [host.name for host in hosts if any(charge.key == found.key for charge in host.charges)]
    if write_json(json_path, {"schema": "fleetd.incident/1", **msgspec.to_builtins(found), "charged": charged}):
        return
    click.echo(_incident(found))
    click.echo(f"hosts in it: {found.hosts_total}; charged and not held: {', '.join(charged) or 'none'}")


@incident.command("close")
@click.argument("name", metavar="ID")
@_reason_option
@click.option("--acquit", is_flag=True, help="Its hosts were not to blame: drop what it charged them with.")
@connected
@_json_option
def close(desk: DeskConfig, name: str, reason: str, json_path: str | None, *, acquit: bool) -> None:
    """Close an incident: its hosts are judged as they are now, or acquitted."""
    _show(ask(desk, lambda client: client.close_incident(name, reason, acquit=acquit)), _incidents, json_path)


def _show(record: FleetRecord, lines: Line, json_path: str | None) -> None:
    if not write_json(json_path, {"schema": "fleetd.fleet/1", **msgspec.to_builtins(record)}):
        for line in lines(record):
            click.echo(line)


def _automation(record: FleetRecord) -> list[str]:
    stopped = record.stopped
    if stopped is None:
        return ["automation is running"]
    return [f"automation is stopped by {stopped.who} since {utc(stopped.at_s)}: {stopped.reason}"]


def _budgets(record: FleetRecord) -> list[str]:
    return [f"{t.key} tripped {utc(t.at_s)}: {t.why}" for t in record.tripped] or ["no budget has tripped"]


def _incidents(record: FleetRecord) -> list[str]:
    return [_incident(i) for i in record.incidents] or ["no incident is open"]


def _incident(incident: Incident) -> str:
    more = " …" if incident.hosts_total > len(incident.hosts) else ""
    return f"{incident.id} since {utc(incident.opened_at_s)}: {incident.why}; {', '.join(incident.hosts)}{more}"
