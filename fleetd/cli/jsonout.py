"""`--json PATH`: the machine-readable result of a command; `-` is standard output."""

import json
from pathlib import Path
from typing import Any

import click

from fleetd.cli.failure import Failure


def write_json(path: str | None, body: Any) -> bool:
    """Write JSON if it was asked for; returns whether standard output is taken by it. Raises Failure."""
    if path is None:
        return False
    text = json.dumps(body, indent=2) + "\n"
    if path == "-":
        click.echo(text, nl=False)
        return True
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}; give --json a path that can be written") from None
    return False
