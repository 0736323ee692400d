"""Where the policies that ship with fleetd are: inside the wheel, or beside the package in a checkout."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_NAME_CHARS_MAX = 64
_PLACES = (_PACKAGE / "data" / "policies", _PACKAGE.parent / "policies")


def policy_path(name_or_path: str) -> Path:
    """Return the file of a shipped policy, or the path as it is when no shipped policy has this name."""
    if name_or_path.isidentifier() and len(name_or_path) <= _NAME_CHARS_MAX:
        for place in _PLACES:
            path = place / f"{name_or_path}.yaml"
            if path.is_file():
                return path
    return Path(name_or_path)


FAULTS = "faults"
"""The directory of the fault catalogue below the policies."""


def shipped_dir(name: str) -> Path:
    """Return a directory of shipped files below the policies; the wheel's place when there is none."""
    return next((place / name for place in _PLACES if (place / name).is_dir()), _PLACES[0] / name)
