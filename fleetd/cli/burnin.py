"""`fleetd burnin`: hands over to `python -m burnin`, which runs alone and needs torch; this process does not."""

import os
import sys
from importlib.util import find_spec

import click

_FORWARD = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@click.command(name="burnin", context_settings=_FORWARD, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Burn GPUs in: run tests, vote, name the bad GPU (`fleetd burnin --help` lists the commands)."""
    assert find_spec("burnin") is not None  # noqa: S101 - shipped in the same distribution
    # -P: whoever burns in as root must not import what lies in the directory where they happen to stand.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "burnin", *arguments])  # noqa: S606 - our own program, no shell
