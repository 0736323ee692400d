"""`fleetd power tree`: how the power budgets of the fleet stand."""

from collections.abc import Iterator, Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fleetd.cli.connection import ask, connected
from fleetd.cli.jsonout import write_json
from fleetd.model.power_lease import AreaUse, HostUse, PowerUse
from fleetd.uplink.desk import DeskConfig

SCHEMA = "fleetd.power.tree/1"
BAR, BAR_HOST = 16, 8
"""Characters of a bar."""
NEARLY = 0.95
"""Of a budget: from here on it is shown as nearly used up."""


@click.command(name="tree")
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@connected
def tree_command(desk: DeskConfig, json_path: str | None) -> None:
    """Show the power budgets: what is reserved in each area, and each host's lease.

    reserved: the most that the hosts may be using; stranded: the part of it that nobody wants and that has not been
    confirmed to be free. A host without a lease is at its safe cap; one that holds no cap is reserved at its maximum.

    Exit codes: 0, 1 the controller shares no budget out, 2 usage, 3 it does not answer.
    """
    use = ask(desk, lambda client: client.power())
    if not write_json(json_path, {"schema": SCHEMA, **msgspec.to_builtins(use)}):
        show(use, Console(highlight=False))


def show(use: PowerUse, console: Console) -> None:
    """Draw areas and hosts."""
    if use.settles_s > 0:
        console.print(f"the controller has just started: nobody is raised for another {use.settles_s:.0f} s\n")
    areas = Table("area", "reserved W", "of W", "", "demand W", "stranded W", box=None, pad_edge=False)
    for area, depth in _ordered(use.areas):
        areas.add_row(
            Text("  " * depth + area.name),
            f"{area.reserved_watts:.0f}",
            f"{area.budget_watts:.0f}",
            _bar(area.reserved_watts, area.budget_watts),
            f"{area.demand_watts:.0f}",
            f"{area.stranded_watts:.0f}",
        )
    console.print(areas)
    columns = ("host", "area", "reserved W", "of W", "", "demand W", "lease W", "left s", "")
    hosts = Table(*columns, box=None, pad_edge=False)
    for host in use.hosts:
        hosts.add_row(
            Text(host.name),
            Text(host.area),
            f"{host.reserved_watts:.0f}",
            f"{host.max_watts:.0f}",
            _bar(host.reserved_watts, host.max_watts, width=BAR_HOST),
            f"{host.demand_watts:.0f}",
            "-" if host.lease_watts is None else f"{host.lease_watts:.0f}",
            "-" if host.left_s is None else f"{host.left_s:.0f}",
            Text(_word(host)),
        )
    console.print()
    console.print(hosts)
    for host in use.hosts:
        if host.uncapped:
            console.print(Text(f"{host.name}: reserved at its maximum: {host.uncapped}"), soft_wrap=True)


def _word(host: HostUse) -> str:
    if host.uncapped:
        return "no cap"
    return "safe cap" if host.lease_watts is None else ""


def _ordered(areas: Sequence[AreaUse]) -> Iterator[tuple[AreaUse, int]]:
    """Every area below its parent, with its depth."""
    below: dict[str | None, list[AreaUse]] = {}
    for area in areas:
        below.setdefault(area.parent, []).append(area)
    waiting = [(area, 0) for area in reversed(below.get(None, []))]
    while waiting:
        area, depth = waiting.pop()
        yield area, depth
        waiting += [(child, depth + 1) for child in reversed(below.get(area.name, []))]


def _bar(watts: float, most: float, *, width: int = BAR) -> Text:
    """A share of something; only of a budget (`BAR` wide) it is told when it is nearly used up."""
    share = watts / most if most > 0 else 0.0
    colour = "green" if width != BAR or share <= NEARLY else "yellow" if share <= 1.0 else "red"
    return Text("█" * min(width, round(width * share)), style=colour)
