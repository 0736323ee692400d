"""`fleetd rehearse`: what a journal would have looked like under another policy."""

from pathlib import Path

import click
import msgspec

from fleetd.cli.failure import CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json
from fleetd.cli.place import LedgerAt, shown
from fleetd.cli.utc import utc
from fleetd.compose.ledger import journal, ledger
from fleetd.config import ConfigError, load_policy
from fleetd.config.shipped import policy_path
from fleetd.core.chain import BrokenJournal, unbroken
from fleetd.core.policy import Policy
from fleetd.core.rehearse import Difference, Outcome, Rehearsal, rehearse
from fleetd.ports import Store, StoreError
from fleetd.stores.place import PgPlace

SCHEMA = "fleetd.rehearsal/1"
MAX_SAID = 200
"""Characters of what the database says that are repeated."""


@click.command(name="rehearse")
@click.option("--policy", required=True, metavar="FILE", help="A policy file, or the name of a shipped policy.")
@click.option(
    "--journal",
    "path",
    required=True,
    type=LedgerAt(),
    help="A controller's ledger (`fleet.db`, the URL of a PostgreSQL database) or a copy of one; it is only read.",
)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(0, 100_000), help="Differences to show.")
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
def command(policy: str, path: Path | PgPlace, limit: int, json_path: str | None) -> None:
    """Decide a journal's events anew under another policy, and say what would have differed.

    Exit codes: 0 rehearsed, whatever differs; 2 the policy cannot be read, or there is no ledger; 3 the journal is
    damaged, or entries of it are missing or out of order: nothing can be said about it.
    """
    try:
        other = load_policy(policy_path(policy))
        with ledger(path) as store:
            found = _rehearsed(store, path, other, limit)
    except ConfigError as error:
        raise Failure(str(error)) from error
    except StoreError as error:
        said = _said(error, path)
        raise Failure(f"{shown(path)}: {said}; --journal names a controller's ledger or a copy of one") from error
    body = {"schema": SCHEMA, "policy": policy, "journal": shown(path), **msgspec.to_builtins(found)}
    if not write_json(json_path, body):
        _show(found)


def _rehearsed(store: Store, path: Path | PgPlace, policy: Policy, limit: int) -> Rehearsal:
    """Rehearse a ledger that could be opened; what is wrong with it from here on is damage."""
    try:
        image, beginning = store.load(), store.beginning()
        entries = unbroken(journal(store), image.hosts, image.fleet, beginning)
        return rehearse(entries, policy, limit=limit, beginning=beginning)
    except (StoreError, BrokenJournal) as error:
        why = f"{shown(path)}: {_said(error, path)}; nothing can be said about it: rehearse an older copy"
        raise Failure(why, exit_code=CANNOT_JUDGE) from error


def _said(error: Exception, path: Path | PgPlace) -> str:
    """One short line: a damaged ledger may quote pages of itself."""
    return "".join(c if c.isprintable() else " " for c in str(error).removeprefix(f"{shown(path)}: "))[:MAX_SAID]


def _show(found: Rehearsal) -> None:
    click.echo(f"{found.entries} entries, {found.differences_total} would have led to something else")
    for kind in sorted({*found.orders_were, *found.orders_would}):
        click.echo(f"  {kind}: {found.orders_were.get(kind, 0)} ordered, {found.orders_would.get(kind, 0)} would be")
    if found.burnins_unknown:
        click.echo(f"  {found.burnins_unknown} burn-ins would have been ordered whose end nobody knows")
    for difference in found.differences:
        _show_difference(difference)
    if found.differences_total > len(found.differences):
        click.echo(f"… and {found.differences_total - len(found.differences)} more (--limit)")
    for name, was, would in found.hosts:
        click.echo(f"{name}: ends as {would} instead of {was}")


def _show_difference(difference: Difference) -> None:
    at = utc(difference.at_s)
    click.echo(f"{at} {difference.host or 'the fleet'} on {difference.event}")
    click.echo(f"  was:   {_outcome(difference.was)}")
    click.echo(f"  would: {_outcome(difference.would)}")


def _outcome(outcome: Outcome) -> str:
    parts = [str(outcome.state)] if outcome.state is not None else []
    parts += [f"ordered {', '.join(outcome.orders)}"] if outcome.orders else []
    parts += [f"withheld {', '.join(outcome.withheld)}"] if outcome.withheld else []
    return f"{'; '.join(parts) or 'nothing'} ({outcome.why})"
