"""The command line: arguments → config → compose. One file a noun, no logic.

What belongs here: click commands. Each noun is imported when it is called, so that `fleetd --version` stays fast.
Always true: a user's mistake ends in one line on standard error and a documented exit code, never in a traceback.
"""

import errno
import io
import os
import sys
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from fleetd import __version__
from fleetd.cli.failure import CANNOT_JUDGE, Failure, surprise

COMMANDS = {
    "agent": "fleetd.cli.agent:command",
    "audit": "fleetd.cli.audit:command",
    "automation": "fleetd.cli.fleetwide:command",
    "budget": "fleetd.cli.fleetwide:budget",
    "bundle": "fleetd.cli.bundle:command",
    "burnin": "fleetd.cli.burnin:command",
    "check": "fleetd.cli.check:command",
    "completion": "fleetd.cli.completion:command",
    "config": "fleetd.cli.config:command",
    "controller": "fleetd.cli.controller:command",
    "demo": "fleetd.cli.demo:command",
    "faults": "fleetd.cli.faults:command",
    "guard": "fleetd.cli.guard:command",
    "hold": "fleetd.cli.hold:command",
    "hook": "fleetd.cli.hook:command",
    "host": "fleetd.cli.host:command",
    "incident": "fleetd.cli.fleetwide:incident",
    "job": "fleetd.cli.job:command",
    "pki": "fleetd.cli.pki:command",
    "policy": "fleetd.cli.policy:command",
    "power": "fleetd.cli.power:command",
    "rehearse": "fleetd.cli.rehearse:command",
    "report": "fleetd.cli.report:command",
    "store": "fleetd.cli.store:command",
    "token": "fleetd.cli.token:command",
}
"""Noun → "module:attribute" of its click command."""


EXTRAS = {
    "alembic": "controller",
    "cryptography": "controller",
    "numpy": "burnin",
    "sqlalchemy": "controller",
    "torch": "burnin",
}
"""Top-level package → the extra that brings it. An agent's installation has none of them."""


class _Nouns(click.Group):
    """A group that imports a noun's module only when the noun is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the nouns in alphabetical order."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one noun; None when there is no such noun."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        try:
            command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in EXTRAS:
                raise
            return _lacking(cmd_name, package)
        assert isinstance(command, click.Command)  # noqa: S101 - the table above is ours
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the nouns by name: importing them all for a line of help each would take seconds."""
        nouns = [CompletionItem(noun) for noun in self.list_commands(ctx) if noun.startswith(incomplete)]
        return [*nouns, *click.Command.shell_complete(self, ctx, incomplete)]

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the words before the noun; a mistake in them is one line."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _usage(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the noun. What is no verdict, as standard output on a full disk, has exit code 3, not Python's 1."""
        sys.excepthook = surprise
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a reason may hold what the terminal's encoding has no sign for
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Failure("stopped", exit_code=CANNOT_JUDGE) from error
        except click.UsageError as error:
            raise _usage(error) from error
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EIO, errno.EBADF} or error.filename is not None:
                raise
            why = f"standard output cannot be written: {error.strerror}; make room, or send it elsewhere"
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in its buffer goes there
            raise Failure(why, exit_code=CANNOT_JUDGE) from error


def _usage(error: click.UsageError) -> click.ClickException:
    """A mistake on the command line as one line: what, where, what to do. No words at all still show the help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    words = error.ctx.command_path if error.ctx is not None else "fleetd"
    said = " ".join(error.format_message().split()).rstrip(".")
    where = f"{words.removeprefix('fleetd ')}: " if " " in words else ""
    return Failure(f"{where}{said}; see `{words} --help`")


def _lacking(noun: str, package: str) -> click.Command:
    """Stand in for a noun whose extra is not installed: it is listed, and says what to install when it is used."""
    says = f"{noun} needs `{package}`: pip install 'fleetd[{EXTRAS[package]}]'"

    def fail(words: tuple[str, ...]) -> None:
        del words
        raise Failure(says)

    anything = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)
    settings: dict[str, Any] = {"ignore_unknown_options": True, "help_option_names": []}
    help_text = f"(Not installed: {says.partition(': ')[2]}.)"
    return click.Command(noun, callback=fail, params=[anything], context_settings=settings, help=help_text)


@click.command(cls=_Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fleetd")
def main() -> None:
    """Find bad GPUs, keep power inside its envelope, and take bad hosts out of a training fleet.

    Exit codes of every command: 0 good, or done; 1 something is bad, or was refused; 2 usage or configuration;
    3 cannot judge: nothing ran, nobody answered, the input is unreadable.
    """
