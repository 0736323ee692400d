"""How a command fails: one line on standard error, and the documented exit code."""

import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import IO, Any

import click

BAD = 1
USAGE = 2
CANNOT_JUDGE = 3


class Failure(click.ClickException):
    """A command's one-line failure: what, where, what to do.

    Exit codes: 1 something is bad or was refused; 2 usage or configuration; 3 cannot judge.
    """

    def __init__(self, message: str, *, exit_code: int = USAGE) -> None:
        super().__init__("".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in message))
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it a class variable

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        click.echo(f"fleetd: {self.format_message()}", err=True, file=file)


def surprise(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End after an error that nobody foresaw: Python's own exit code would be 1, which says that something is bad."""
    sys.__excepthook__(kind, error, trace)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader is gone, or it is closed
            stream.flush()
    os._exit(CANNOT_JUDGE)
