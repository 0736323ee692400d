"""`fleetd policy`: look at a policy before a fleet runs on it."""

import json
from pathlib import Path

import click

from fleetd.cli.failure import BAD, USAGE, Failure
from fleetd.config import ConfigError, read_policy
from fleetd.core.evidence import CARRIED_OUT
from fleetd.core.policycheck import check

LEVELS = ("self", "smoke")
"""The levels that `burnin` has; a test compares them with its own table."""

SCHEMA = "fleetd.policy.check/1"


@click.group()
def command() -> None:
    """Look at a policy before a fleet runs on it."""


@command.command(name="check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@click.pass_context
def check_command(ctx: click.Context, file: Path, json_path: str | None) -> None:
    """Check FILE for mistakes: keys and types, unreachable rules, quarantines without an exit, dead budgets.

    Exit codes: 0 nothing found, 1 the policy is well-formed and has problems, 2 it cannot be read.
    Each finding is one line `file:line: message` on standard error.
    """
    try:
        document = read_policy(file)
    except ConfigError as error:
        click.echo(str(error), err=True)
        _report(json_path, file, [{"path": "", "line": error.line, "message": error.message}], exit_code=USAGE)
        ctx.exit(USAGE)
    problems = [
        {"path": p.path, "line": document.line_of(p.path), "message": p.message}
        for p in check(document.value, levels=LEVELS, actuator_actions=CARRIED_OUT)
    ]
    for problem in problems:
        click.echo(f"{file}:{problem['line']}: {problem['message']}", err=True)
    exit_code = BAD if problems else 0
    _report(json_path, file, problems, exit_code=exit_code)
    if not problems and json_path != "-":
        click.echo(f"{file}: {len(document.value.rules)} rules, no problems")
    ctx.exit(exit_code)


def _report(json_path: str | None, file: Path, problems: list[dict[str, object]], *, exit_code: int) -> None:
    if json_path is None:
        return
    body = {"schema": SCHEMA, "file": str(file), "exit_code": exit_code, "problems": problems}
    text = json.dumps(body, indent=2) + "\n"
    if json_path == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(json_path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write {json_path}: {error.strerror}; give --json a path that can be written") from None
