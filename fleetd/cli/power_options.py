"""What the options of the power commands share: numbers that are numbers, and outputs that can be written.

Outputs are looked at before the work: a search or a benchmark of minutes must not end in a file name with a typo.
"""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import click

from fleetd.cli.failure import Failure
from fleetd.config.plants import Plant
from fleetd.model.envelope import Envelope


class Number(click.FloatRange):
    """A range without NaN, which no comparison holds back and which would run through to the result."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read one number. Fails as click does."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def writable(option: str, path: Path | str | None, *, replaced: bool = False) -> None:
    """Refuse a path that could not be written in the end. None and `-` are no paths.

    Nothing is left behind, whatever happens meanwhile: the file that tries the folder never has a name.

    Args:
        option: Which one it was given to.
        path: What was given.
        replaced: A new file takes its place, instead of its content: then it must be no pipe and no device.

    Raises:
        Failure: What is wrong with the path.
    """
    if path is None or (str(path) == "-" and not replaced):
        return
    target, why = Path(path), None
    try:
        if target.is_dir():
            why = "Is a directory"
        elif target.exists() and replaced and not target.is_file():
            why = "Not a regular file"
        elif target.exists() and not replaced:
            why = None if os.access(target, os.W_OK) else "Permission denied"
        else:
            with tempfile.TemporaryFile(dir=target.parent):
                pass
    except OSError as error:
        why = error.strerror
    except ValueError:
        why = "Not a file name"  # a NUL in it
    if why is not None:
        raise Failure(f"cannot write {path}: {why}; give {option} a path that can be written")


def same_part(plant: Plant, limits: Envelope) -> None:
    """Refuse to try one part under the envelope of another: the figures would be those of neither. Raises Failure."""
    if plant.part != limits.part:
        raise Failure(f"--part {plant.name}: it stands in for {plant.part}, {limits.name} is for {limits.part}")
    if plant.chip.tbp_watts != limits.tbp_watts:
        raise Failure(
            f"--part {plant.name}: it has a TBP of {plant.chip.tbp_watts:g} W, "
            f"{limits.name} is for {limits.tbp_watts:g} W"
        )
