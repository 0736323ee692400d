"""`fleetd power`: look at a power envelope, and at power under it."""

from importlib import import_module
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fleetd.cli.failure import BAD, USAGE
from fleetd.cli.jsonout import write_json
from fleetd.config import ConfigError
from fleetd.config.envelope import EnvelopeDocument, envelope_path, read_envelope, shipped_envelopes
from fleetd.core.power.buckets import Buckets
from fleetd.core.power.checker import TOLERANCE, check_buckets, log_spaced
from fleetd.core.power.compiler import Infeasible, compile_envelope
from fleetd.core.power.keeping import keeping
from fleetd.core.power.ladder import Rung, Sight, ladder

SCHEMA = "fleetd.power.check/1"

WINDOWS = 1000
"""Log-spaced windows at which what was compiled is compared with the envelope."""
BAR = 16
"""Characters of the longest bar."""
COLOURS = {Sight.CERTIFIED: "green", Sight.AUDITED: "yellow", Sight.UNOBSERVABLE: "red"}

LATER = {
    "bench": "fleetd.cli.power_bench:bench_command",
    "restore": "fleetd.cli.power_guard:restore_command",
    "simulate": "fleetd.cli.power_simulate:simulate_command",
    "status": "fleetd.cli.power_guard:status_command",
    "tree": "fleetd.cli.power_tree:tree_command",
    "tune": "fleetd.cli.power_tune:tune_command",
}
"""Command → "module:attribute"; imported when it is used, since some need packages that an agent's host lacks."""


class _Commands(click.Group):
    """A group that imports some commands only when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all commands in alphabetical order."""
        return sorted({*super().list_commands(ctx), *LATER})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; None when there is no such command."""
        if cmd_name not in LATER:
            return super().get_command(ctx, cmd_name)
        module, attribute = LATER[cmd_name].split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - the table above is ours
        return command


@click.group(cls=_Commands)
def command() -> None:
    """Look at power envelopes, at power under them, and at what holds the power of a host."""


@command.command(name="check")
@click.argument("envelope", metavar="ENVELOPE")
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@click.pass_context
def check_command(ctx: click.Context, envelope: str, json_path: str | None) -> None:
    """Compile ENVELOPE, a shipped one's name or a file, and say of each window how well it is kept.

    certified: something is fast enough to hold it; audited: a violation is seen afterwards; unobservable: not that.

    Exit codes: 0 sound, 1 unsound or infeasible, 2 it cannot be read. `unknown` rows are shown, not enforced.
    Each finding is one line `file:line: message` on standard error.
    """
    path = envelope_path(envelope)
    try:
        document = read_envelope(path)
    except ConfigError as error:
        hint = "" if path.exists() else f"; shipped envelopes: {', '.join(shipped_envelopes())}"
        click.echo(f"{error}{hint}", err=True)
        problem: dict[str, object] = {"file": str(error.path), "line": error.line, "message": error.message}
        write_json(json_path, _body(path, USAGE, [problem]))
        ctx.exit(USAGE)
    problems: list[dict[str, object]] = []
    try:
        buckets = compile_envelope(document.envelope)
        problems = _unsound(document, buckets)
    except Infeasible as error:
        file, line = document.place(error.row)
        problems.append({"file": str(file), "line": line, "message": str(error)})
        _say(problems)
        write_json(json_path, _body(path, BAD, problems))
        ctx.exit(BAD)
    _say(problems)
    exit_code = BAD if problems else 0
    rungs = ladder(document.envelope, buckets)
    if not write_json(json_path, _body(path, exit_code, problems) | _result(document, buckets, rungs)):
        show(document, buckets, rungs)
    ctx.exit(exit_code)


def _unsound(document: EnvelopeDocument, buckets: Buckets) -> list[dict[str, object]]:
    """What the checker, which shares no code with the compiler, finds in what was compiled."""
    rows = document.envelope.enforced
    windows = [*log_spaced(rows[0].over_s / 10, rows[-1].over_s * 100, WINDOWS), *(row.over_s for row in rows)]
    worst = check_buckets(document.envelope, buckets, windows)
    if worst.ratio <= 1 + TOLERANCE:
        return []
    message = f"unsound: the buckets let {worst.ratio:.4f} of the allowance through over {worst.window_s:.3g} s"
    return [{"file": str(document.path), "line": document.safe_line, "message": message}]


def _say(problems: list[dict[str, object]]) -> None:
    for problem in problems:
        click.echo(f"{problem['file']}:{problem['line']}: {problem['message']}", err=True)


def _body(path: Path, exit_code: int, problems: list[dict[str, object]]) -> dict[str, Any]:
    return {"schema": SCHEMA, "file": str(path), "exit_code": exit_code, "problems": problems}


def _result(document: EnvelopeDocument, buckets: Buckets, rungs: list[Rung]) -> dict[str, Any]:
    envelope = document.envelope
    return {
        "envelope": envelope.name,
        "part": envelope.part,
        "tbp_watts": envelope.tbp_watts,
        "margin_ratio": envelope.margin.total,
        "safe_cap_watts": envelope.safe_cap_watts,
        "lowest_draw_watts": envelope.lowest_draw_watts,
        "sustained_watts": buckets.sustained_watts,
        "unenforceable": keeping(envelope).why,
        "buckets": [
            {"name": b.name, "rate_watts": b.rate_watts, "depth_joules": b.depth_joules} for b in buckets.buckets
        ],
        "windows": [
            {
                "window_s": rung.window_s,
                "label": rung.label,
                "row": rung.row and rung.row.name,
                "max_ratio": rung.row and rung.row.max_ratio,
                "semantics": rung.row and rung.row.semantics.value,
                "superseded_by": rung.row and rung.row.superseded_by,
                "allowed_watts": rung.allowed_watts,
                "compiled_watts": rung.compiled_watts,
                "status": rung.sight.value,
                "why": rung.why,
            }
            for rung in rungs
        ],
    }


# ── for people ──────────────────────────────────────────────────────────────────────────────────────────────────────

_ENDS = 4
"""Buckets shown of each end; a log-linear envelope has dozens."""


def show(document: EnvelopeDocument, buckets: Buckets, rungs: list[Rung]) -> None:
    """Draw the ladder and list the buckets."""
    envelope, console = document.envelope, Console(highlight=False)
    console.print(
        f"{envelope.name}: {envelope.part}, {envelope.tbp_watts:g} W, {envelope.interpolation.value}, "
        f"margin {envelope.margin.total:.1%}\n{envelope.reason} ({envelope.owner})\n"
    )
    reasons = list(dict.fromkeys(rung.why for rung in rungs))
    console.print(_ladder(rungs, reasons))
    for number, reason in enumerate(reasons, start=1):
        console.print(Text(f"{number}: {reason}", style="dim"))
    console.print()
    console.print(_buckets(buckets))
    lowest = envelope.lowest_draw_watts
    says = "unknown, not checked" if lowest is None else f"{lowest:g} W, within every bucket"
    console.print(
        f"\nfor ever: {buckets.sustained_watts:.1f} W, {buckets.sustained_watts / envelope.tbp_watts:.3f} of the TBP"
        f"\nsafe cap: {envelope.safe_cap_watts:g} W, within every bucket with no software running"
        f"\ndraw at the lowest clock: {says}"
    )
    if why := keeping(envelope).why:
        console.print(Text(f"`power: {{mode: observe}}` only: {why}", style="bold"))


def _ladder(rungs: list[Rung], reasons: list[str]) -> Table:
    table = Table("window", "row", "allowed W", "", "kept", "why", box=None, pad_edge=False)
    most = max(rung.allowed_watts or 0.0 for rung in rungs)
    for rung in rungs:
        row, colour = rung.row, COLOURS[rung.sight]
        of = "" if row is None else "unknown" if row.max_ratio is None else f"{row.max_ratio:g}x {row.semantics.value}"
        bar = "" if rung.allowed_watts is None else "█" * max(1, round(BAR * rung.allowed_watts / most))
        table.add_row(
            Text(rung.label, style="bold" if row else "dim"),
            Text(f"{row.source} {of}" if row else ""),
            Text("-" if rung.allowed_watts is None else f"{rung.allowed_watts:.0f}"),
            Text(bar, style=colour),
            Text(rung.sight.value, style=colour),
            Text(str(reasons.index(rung.why) + 1)),
        )
    return table


def _buckets(buckets: Buckets) -> Table:
    table = Table("bucket for windows", "rate W", "depth J", box=None, pad_edge=False)
    hidden = len(buckets.buckets) - 2 * _ENDS
    for number, bucket in enumerate(buckets.buckets):
        if number < _ENDS or number >= _ENDS + hidden:
            table.add_row(bucket.name, f"{bucket.rate_watts:.1f}", f"{bucket.depth_joules:.4g}")
        elif number == _ENDS:
            table.add_row(f"… {hidden} more (--json)", "", "")
    return table
