"""`fleetd guard`: hands over to `python -m burnin.guard`, which runs alone and needs torch; this process does not."""

import os
import sys

import click

_FORWARD = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@click.command(name="guard", context_settings=_FORWARD, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Compare training runs, find the operation that differs (`fleetd guard --help` lists the commands)."""
    # -P: what lies in the current directory must not shadow a library; `bisect` adds it by itself, at the end.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "burnin.guard", *arguments])  # noqa: S606 - our own program
