"""`fleetd store`: look after a controller's ledger: check, back up, restore, prune, upgrade."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import click

from fleetd.cli.duration import seconds
from fleetd.cli.failure import BAD, CANNOT_JUDGE, Failure
from fleetd.cli.jsonout import write_json
from fleetd.cli.place import LedgerAt, shown, there
from fleetd.cli.utc import utc
from fleetd.compose import keeping, shared
from fleetd.compose.keeping import Checked
from fleetd.core.chain import BrokenJournal
from fleetd.ports import OtherSchema, StoreError
from fleetd.stores.keep import copy, prune
from fleetd.stores.place import PgPlace
from fleetd.stores.retention import KEEP_MIN_S
from fleetd.system import RealClock, setup_logging, user_name

_ledger_option = click.option(
    "--ledger",
    required=True,
    type=LedgerAt(),
    help="The controller's ledger: `fleet.db` in its state_dir, or the URL of its PostgreSQL database.",
)
_json_option = click.option(
    "--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output."
)


@click.group(name="store")
def command() -> None:
    """Check, back up, restore, prune and upgrade a controller's ledger, on its machine or in its database."""


@command.command("check")
@_ledger_option
@_json_option
def check(ledger: Path | PgPlace, json_path: str | None) -> None:
    """Read a ledger from end to end, also while a controller writes it.

    Exit codes: 0 it is whole; 1 it is damaged, or entries of its journal are missing; 2 there is no ledger; 3 another
    version of fleetd wrote it.
    """
    there(ledger)
    with _failures(other_schema=CANNOT_JUDGE):
        found = keeping.check(ledger)
    if not write_json(json_path, _body(ledger, found)):
        click.echo(f"{shown(ledger)}: whole; {_said(found)}")


@command.command("backup")
@click.argument("path", type=click.Path(path_type=Path))
@_ledger_option
@_json_option
def backup(path: Path, ledger: Path | PgPlace, json_path: str | None) -> None:
    """Copy a ledger to PATH as it is at one moment, also while a controller writes it, and check the copy.

    One in PostgreSQL is backed up by PostgreSQL's own tools: this says how.
    """
    if isinstance(ledger, PgPlace):
        raise Failure(
            f"store backup: {ledger.where} is backed up by PostgreSQL: pg_dump --format=custom "
            f"--file={quote(str(path))} {quote(ledger.url)}; the dump is of one moment, and controllers may run"
        )
    there(ledger)
    with _failures():
        copy(ledger, path)
        found = keeping.check(path)
    if not write_json(json_path, {**_body(path, found), "bytes": path.stat().st_size}):
        click.echo(f"{path}: {path.stat().st_size} bytes; {_said(found)}")


@command.command("restore")
@click.argument("path", type=click.Path(path_type=Path))
@_ledger_option
@click.option("--reason", required=True, help="Why; it stays in the journal of every host.")
@_json_option
def restore(path: Path, ledger: Path | PgPlace, reason: str, json_path: str | None) -> None:
    """Put the backup PATH in the place of a ledger, after it was read from end to end; the controller must be stopped.

    The ledger that was there is kept beside it. Findings that hosts have delivered since the backup are gone: the
    controller says how many when they reconnect. One in PostgreSQL is put back by pg_restore: this says how.
    """
    if isinstance(ledger, PgPlace):
        raise Failure(
            f"store restore: {ledger.where} is put back by PostgreSQL: stop every controller, "
            f"pg_restore --clean --if-exists --dbname={quote(ledger.url)} {quote(str(path))}, and then tell the ledger "
            "by `fleetd store restored`"
        )
    there(path)
    with _failures():
        clock = RealClock()
        found = keeping.restore(path, ledger, who=_me(), reason=_reason(reason), clock=clock)
    body = {**_body(ledger, found.checked), "kept": None if found.kept is None else str(found.kept)}
    if not write_json(json_path, body):
        click.echo(f"{ledger}: restored from {path}; {_said(found.checked)}")
        if found.kept is not None:
            click.echo(f"what was there before: {found.kept}")


@command.command("prune")
@_ledger_option
@click.option("--keep", required=True, metavar="AGE", help="What is younger stays: a number and s, m, h, d or w (90d).")
@_json_option
def prune_old(ledger: Path | PgPlace, keep: str, json_path: str | None) -> None:
    """Take old journal entries, findings and finished orders away, also while a controller runs.

    What is open stays, however old it is: hosts as they are, holds, charges and incidents with what they rest on, open
    orders. The file does not shrink; the room is used again.
    """
    there(ledger)
    keep_s = seconds(keep)
    if keep_s < KEEP_MIN_S:
        raise Failure(f"store prune: --keep {keep} is less than a day, which decisions still look back to; keep more")
    with _failures():
        before_s = RealClock().wall_s() - keep_s
        if isinstance(ledger, PgPlace):
            gone = shared.prune(ledger, before_s=before_s)
        else:
            gone = prune(ledger, before_s=before_s)
    body = {"schema": "fleetd.prune/1", "ledger": shown(ledger), "entries": gone.entries, "findings": gone.findings}
    if not write_json(json_path, {**body, "orders": gone.orders, "kept": gone.kept}):
        click.echo(
            f"{shown(ledger)}: {gone.entries} entries, {gone.findings} findings and {gone.orders} orders are gone; "
            f"{gone.kept} older entries stay, something open rests on them"
        )


@command.command("upgrade")
@_ledger_option
def upgrade(ledger: Path | PgPlace) -> None:
    """Bring a ledger to this version's schema, as a starting controller does; it cannot be taken back.

    It is one transaction: it needs about as much free room as the ledger has, for as long as it takes.
    """
    there(ledger)
    setup_logging()
    with _failures():
        if isinstance(ledger, PgPlace):
            shared.upgrade(ledger)
        else:
            keeping.upgrade(ledger)
    click.echo(f"{shown(ledger)}: up to date")


@command.command("restored")
@_ledger_option
@click.option("--reason", required=True, help="Why; it stays in the journal of every host.")
@_json_option
def restored(ledger: Path | PgPlace, reason: str, json_path: str | None) -> None:
    """Tell a ledger in PostgreSQL that it was put back from a dump, before any controller is started on it.

    It is read from end to end first. Then every host's journal says so, and order numbers are left out: whoever
    carries orders out knows those that were given after the dump, and would take new ones for repeats.
    """
    if not isinstance(ledger, PgPlace):
        raise Failure("store restored: --ledger is a file: `fleetd store restore` puts it in place and tells it")
    with _failures():
        found = keeping.tell_restored(ledger, who=_me(), reason=_reason(reason), clock=RealClock())
    if not write_json(json_path, _body(ledger, found)):
        click.echo(f"{ledger.where}: its hosts know of the restore; {_said(found)}")


@contextmanager
def _failures(*, other_schema: int = BAD) -> Iterator[None]:
    """Say what fails in one line; `other_schema`: the exit code for a ledger of another version."""
    try:
        yield
    except (StoreError, BrokenJournal) as error:
        exit_code = other_schema if isinstance(error, OtherSchema) else BAD
        raise Failure("".join(c if c.isprintable() else " " for c in str(error))[:400], exit_code=exit_code) from error


def _me() -> str:
    return user_name(os.getuid()) or str(os.getuid())


def _reason(text: str) -> str:
    reason = " ".join(text.split())
    if not reason:
        raise Failure("store: --reason is empty; say why")
    return reason


def _body(at: Path | PgPlace, found: Checked) -> dict[str, object]:
    return {
        "schema": "fleetd.ledger/1",
        "ledger": shown(at),
        "hosts": found.hosts,
        "entries": found.entries,
        "begins_behind": found.begins_at,
        "newest_at_s": found.newest_at_s,
    }


def _said(found: Checked) -> str:
    newest = "no entry" if found.newest_at_s is None else f"the newest of {utc(found.newest_at_s)}"
    begins = f" from entry {found.begins_at + 1} on" if found.begins_at else ""
    return f"{found.hosts} hosts, {found.entries} entries{begins}, {newest}"
