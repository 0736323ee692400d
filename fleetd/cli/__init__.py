"""The command line: arguments → config → compose. One file a noun, no logic.

What belongs here: click commands. Each noun is imported when it is called, so that `fleetd --version` stays fast.
Always true: a user's mistake ends in one line on standard error and a documented exit code, never in a traceback.
"""

from importlib import import_module

import click

from fleetd import __version__

COMMANDS = {
    "agent": "fleetd.cli.agent:command",
    "burnin": "fleetd.cli.burnin:command",
    "controller": "fleetd.cli.controller:command",
    "demo": "fleetd.cli.demo:command",
    "host": "fleetd.cli.host:command",
    "pki": "fleetd.cli.pki:command",
    "policy": "fleetd.cli.policy:command",
}
"""Noun → "module:attribute" of its click command."""


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
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - the table above is ours
        return command


@click.command(cls=_Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fleetd")
def main() -> None:
    """Find bad GPUs, keep power inside its envelope, and take bad hosts out of a training fleet."""
