"""`fleetd config`: a complete example of a configuration, and whether a file is one."""

import re
from pathlib import Path

import click

from fleetd.cli.failure import BAD, USAGE
from fleetd.cli.jsonout import write_json
from fleetd.compose.here import problems_here
from fleetd.config import ConfigError
from fleetd.config.example import KINDS, example
from fleetd.config.files import AgentConfig, ControllerConfig, load_agent, load_controller

SCHEMA = "fleetd.config.check/1"
_KIND = re.compile(rb"""^kind:[ \t]*["']?(\w+)""", re.MULTILINE)
_HEAD_BYTES = 64 * 1024


@click.group(name="config")
def command() -> None:
    """Write and check the files that the agent and the controller are started with."""


@command.command(name="example")
@click.argument("kind", type=click.Choice([kind.lower() for kind in KINDS]))
def example_command(kind: str) -> None:
    """Print a complete configuration: every key with its default, and what it means."""
    click.echo(example(kind.capitalize()), nl=False)


@command.command(name="check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--here", is_flag=True, help="Also whether what it names is on this machine, and usable by this user.")
@click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON; `-` is standard output.")
@click.pass_context
def check_command(ctx: click.Context, file: Path, here: bool, json_path: str | None) -> None:
    """Check FILE, of `kind: Agent` or `kind: Controller`, without starting anything.

    With --here run it as the service's user, there: it opens the directory, certificates, policy, envelope and keys
    that the file names. Exit codes: 0 it can be used, 1 something that it names cannot, 2 the file itself cannot.
    Each finding is one line on standard error.
    """
    problems: tuple[str, ...] = ()
    config: AgentConfig | ControllerConfig | None = None
    try:
        config = _load(file)
    except ConfigError as error:
        problems, code = (str(error),), USAGE
    else:
        if here:
            problems = tuple(f"{file}: {problem}" for problem in problems_here(config))
        code = BAD if problems else 0
    for problem in problems:
        click.echo(problem, err=True)
    taken = write_json(json_path, {"schema": SCHEMA, "file": str(file), "exit_code": code, "problems": [*problems]})
    if config is not None and not problems and not taken:
        click.echo(f"{file}: a configuration of the {'agent' if isinstance(config, AgentConfig) else 'controller'}")
    ctx.exit(code)


def _load(file: Path) -> AgentConfig | ControllerConfig:
    """Read a file as what it says it is. Raises ConfigError, also of a kind that is checked elsewhere."""
    try:
        with file.open("rb") as stream:
            said = _KIND.search(stream.read(_HEAD_BYTES))
    except OSError:
        said = None  # the reader says what is wrong
    kind = said[1].decode() if said is not None else "Agent"
    if kind == "Controller":
        return load_controller(file)
    if kind in {"Policy", "PolicyTest"}:
        raise ConfigError(file, None, f"is a {kind}: see `fleetd policy --help`")
    return load_agent(file)
