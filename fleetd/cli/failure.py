"""How a command fails: one line on standard error, and the documented exit code."""

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
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it a class variable

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        click.echo(f"fleetd: {self.format_message()}", err=True, file=file)
