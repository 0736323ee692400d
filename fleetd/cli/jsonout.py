"""`--json PATH`: the machine-readable result of a command; `-` is standard output.

Every result is one object, and its first key is `schema`: `fleetd.NOUN[.VERB]/NUMBER`, whose number grows when what a
key means changes, or one goes. Who reads it looks there before anything else.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from fleetd.cli.failure import Failure
from fleetd.durable import settle


def write_json(path: str | None, body: Mapping[str, Any]) -> bool:
    """Write JSON if it was asked for; returns whether standard output is taken by it.

    A file is there whole or not at all: whoever reads it while a command runs, or after it was killed or the machine
    lost its power, finds the result before or this one.

    Args:
        path: as the option gives it; None: nothing is written.
        body: the result, with its `schema`.

    Raises:
        Failure: the file cannot be written.
        KeyError: there is no `schema`.
    """
    if path is None:
        return False
    text = json.dumps({"schema": body["schema"], **body}, indent=2) + "\n"
    if path == "-":
        click.echo(text, nl=False)
        return True
    target = Path(path)
    try:
        if target.exists() and not target.is_file():  # a pipe, or /dev/stderr: there is nothing to put in its place
            target.write_text(text, encoding="utf-8")
        else:
            _replace(Path(os.path.realpath(target)), text)  # of a link: what it leads to; `resolve` fails in a circle
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}; give --json a path that can be written") from None
    return False


def _replace(path: Path, text: str) -> None:
    """Write beside it, have it on disk, put it in its place. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, _mode(path))
            file.write(text)
        settle(Path(name), path)
    except OSError:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _mode(path: Path) -> int:
    """The mode that the file has, else the one that a new file gets here."""
    with suppress(FileNotFoundError):
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
