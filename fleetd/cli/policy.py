"""`fleetd policy`: look at a policy before a fleet runs on it."""

from pathlib import Path

import click

from burnin.tests import LEVELS
from fleetd.cli.failure import BAD, USAGE
from fleetd.cli.jsonout import write_json
from fleetd.config import ConfigError, load_policy, read_policy, read_policy_test
from fleetd.config.faults import load_catalogue
from fleetd.config.shipped import policy_path
from fleetd.core.accuse import CARRIED_OUT
from fleetd.core.play import play
from fleetd.core.policycheck import check
from fleetd.model.finding import SILENCES
from fleetd.uplink.config import UplinkConfig

SCHEMA = "fleetd.policy.check/1"
TEST_SCHEMA = "fleetd.policy.test/1"


@click.group()
def command() -> None:
    """Look at a policy before a fleet runs on it."""


@command.command(name="check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--catalogue",
    "site",
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR",
    help="A site's own catalogue files: rules may name their codes too.",
)
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@click.pass_context
def check_command(ctx: click.Context, file: Path, site: Path | None, json_path: str | None) -> None:
    """Check FILE for mistakes: keys and types, rules that never act, quarantines without an exit, dead budgets.

    Exit codes: 0 nothing found, 1 the policy is well-formed and has problems, 2 it cannot be read.
    Each finding is one line `file:line: message` on standard error.
    """
    try:
        catalogue = load_catalogue(site)
        document = read_policy(file)
    except ConfigError as error:
        click.echo(str(error), err=True)
        _report(json_path, file, [{"path": "", "line": error.line, "message": error.message}], exit_code=USAGE)
        ctx.exit(USAGE)
    found = check(
        document.value,
        levels=LEVELS,
        actuator_actions=CARRIED_OUT,
        catalogue=catalogue,
        other_codes=tuple(sorted(SILENCES)),
        # As agents are by default; how their line is secured changes no time.
        slowest_return_s=UplinkConfig(insecure=True).slowest_return_seconds,
    )
    problems = [{"path": p.path, "line": document.line_of(p.path), "message": p.message} for p in found]
    for problem in problems:
        click.echo(f"{file}:{problem['line']}: {problem['message']}", err=True)
    exit_code = BAD if problems else 0
    _report(json_path, file, problems, exit_code=exit_code)
    if not problems and json_path != "-":
        click.echo(f"{file}: {len(document.value.rules)} rules, no problems")
    ctx.exit(exit_code)


def _report(json_path: str | None, file: Path, problems: list[dict[str, object]], *, exit_code: int) -> None:
    write_json(json_path, {"schema": SCHEMA, "file": str(file), "exit_code": exit_code, "problems": problems})


@command.command(name="test")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--policy", metavar="FILE", help="Play all tests on this policy instead of the one that each names.")
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@click.pass_context
def test_command(ctx: click.Context, folder: Path, policy: str | None, json_path: str | None) -> None:
    """Play the timelines (`*.yaml`, kind `PolicyTest`) in DIR, or one file, and compare with what they expect.

    Exit codes: 0 all as expected, 1 something is not, 2 a test or a policy cannot be read, or there is none.
    Each finding is one line `file:line: message` on standard error.
    """
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else [folder]
    results: list[dict[str, object]] = []
    worst = 0 if files else USAGE
    if not files:
        click.echo(f"{folder}: no *.yaml in it; a test of a policy is a file of kind PolicyTest", err=True)
    for file in files:
        try:
            failed = _play(file, policy)
            results += [{"file": str(file), "line": line, "message": message} for line, message in failed]
            worst = max(worst, BAD if failed else 0)
        except ConfigError as error:
            results.append({"file": str(error.path), "line": error.line, "message": error.message})
            worst = USAGE
    for result in results:
        line = "" if result["line"] is None else f":{result['line']}"
        click.echo(f"{result['file']}{line}: {result['message']}", err=True)
    body = {"schema": TEST_SCHEMA, "tests": len(files), "exit_code": worst, "problems": results}
    if not write_json(json_path, body) and not worst:
        click.echo(f"{len(files)} tests as expected")
    ctx.exit(worst)


def _play(file: Path, policy: str | None) -> list[tuple[int, str]]:
    """Line and message of everything in one test that is not as expected. Raises ConfigError."""
    document = read_policy_test(file)
    named = policy_path(policy if policy is not None else document.value.policy)
    if policy is None and not named.is_absolute() and str(named) == document.value.policy:
        named = file.parent / named
    failed = play(document.value, load_policy(named))
    return [(document.line_of(f"timeline[{f.number}]"), f.message) for f in failed]
