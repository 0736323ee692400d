"""`fleetd report`: what a fleet was worth over some time, by vendor, SKU and pool."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from fleetd.cli.connection import ask, connected
from fleetd.cli.duration import seconds
from fleetd.cli.failure import CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json
from fleetd.cli.place import LedgerAt
from fleetd.cli.report_page import page
from fleetd.cli.report_words import columns, heading
from fleetd.cli.tables import show, table
from fleetd.core.report import report
from fleetd.core.sums import DAY_S, DEFINITIONS, DIVISIONS, MAX_DAYS, Division, Report, Sums, rates
from fleetd.model.fact import Fact, FactQuery
from fleetd.ports import Store, StoreError
from fleetd.stores.place import PgPlace
from fleetd.system import RealClock
from fleetd.uplink.desk import DeskConfig

SCHEMA = "fleetd.report/1"
_PAGE = 1000
_MOST = 100_000_000


@click.command(name="report")
@click.option("--last", default="30d", show_default=True, metavar="AGE", help="The window, up to now: 90d, 12h, 4w.")
@click.option("--by", type=click.Choice(DIVISIONS), default="sku", show_default=True, help="What the table is by.")
@click.option(
    "--objective",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="False quarantines that are acceptable, per 10,000 host days.",
)
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Write one page with pictures to a file.")
@click.option(
    "--ledger",
    type=LedgerAt(),
    help="Read a ledger (`fleet.db` or a copy, the URL of a PostgreSQL database) instead of asking.",
)
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@connected
def command(
    *,
    desk: DeskConfig,
    last: str,
    by: Division,
    objective: float,
    html_path: Path | None,
    ledger: Path | PgPlace | None,
    json_path: str | None,
) -> None:
    """Say how reliable the fleet was: availability, failures, swaps, false quarantines, times to detect and return.

    Exit codes: 0 reported, whatever it says; 2 usage, or no such ledger; 3 the controller or the ledger cannot answer.
    """
    until_s = RealClock().wall_s()
    window_s = seconds(last)
    if not 0 < window_s <= MAX_DAYS * DAY_S:
        raise Failure(f"report: --last {last} is no window: more than nothing, and at most {MAX_DAYS}d")
    if not math.isfinite(objective):
        raise Failure(f"report: --objective {objective:g} is no number of quarantines")
    if html_path == Path("-"):
        raise Failure("report: --html wants the path of a file, such as report.html")
    facts = _of_ledger(ledger) if ledger is not None else _of_controller(desk)
    found = report(facts, since_s=until_s - window_s, until_s=until_s)
    if html_path is not None:
        _write(html_path, page(found, by=by, objective=objective))
    if not write_json(json_path, as_json(found, objective=objective)):
        _show(found, by, objective)


def as_json(found: Report, *, objective: float) -> dict[str, Any]:
    """The report as plain values: sums and rates of the whole and of each group, and what each figure counts."""
    return {
        "schema": SCHEMA,
        "since_s": found.since_s,
        "until_s": found.until_s,
        "known_from_s": found.known_from_s,
        "false_quarantine_objective": objective,
        "false_quarantine_objective_met": meets(found.whole, objective),
        "whole": _figures(found.whole),
        "groups": [{**msgspec.to_builtins(kind), **_figures(sums)} for kind, sums in found.groups],
        "by": {
            division: [{"name": name, **_figures(sums)} for name, sums in found.by(division)] for division in DIVISIONS
        },
        "days": [msgspec.to_builtins(day) for day in found.days],
        "definitions": DEFINITIONS,
    }


def meets(sums: Sums, objective: float) -> bool | None:
    """Whether there were as few false quarantines as asked for; None: there were no hosts."""
    rate = rates(sums).false_quarantines_per_10000_host_days
    return None if rate is None else rate <= objective


def _figures(sums: Sums) -> dict[str, Any]:
    return {"sums": msgspec.to_builtins(sums), "rates": msgspec.to_builtins(rates(sums))}


def _of_controller(desk: DeskConfig) -> tuple[Fact, ...]:
    return ask(desk, lambda client: client.facts(FactQuery(limit=_MOST, notable=True)))


def _of_ledger(at: Path | PgPlace) -> tuple[Fact, ...]:
    if isinstance(at, Path) and not at.is_file():
        raise Failure(f"{at}: there is no such file; --ledger names a controller's `fleet.db` or a copy of one")
    try:
        from fleetd.compose.ledger import ledger as open_ledger  # noqa: PLC0415 - see below
    except ModuleNotFoundError as error:  # operators ask a controller, and need no database
        raise Failure(f"report: --ledger needs `{error.name}`: pip install 'fleetd[controller]'") from error
    try:
        with open_ledger(at) as store:
            return tuple(_pages(store))
    except StoreError as error:
        raise Failure(str(error), exit_code=CANNOT_JUDGE) from error


def _pages(store: Store) -> Iterator[Fact]:
    after = 0
    while found := store.facts(FactQuery(after=after, limit=_PAGE, notable=True)):
        yield from found
        after = max(found[-1].position, after + 1)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}; give --html a path that can be written") from None


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(found: Report, by: Division, objective: float) -> None:
    figures = table(by, *(name for name, _ in columns(Sums())))
    for name, sums in found.by(by):
        figures.add_row(name or "(not known)", *(value for _, value in columns(sums)))
    figures.add_row("all", *(value for _, value in columns(found.whole)))
    show(*heading(found, objective), figures)
