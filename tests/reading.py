"""Reading what another process may write, replace or take away at this moment."""

from pathlib import Path


def text_of(path: Path) -> str:
    """What a file holds, or nothing when it is not there (asking first whether it is would be a race)."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def lines_of(path: Path) -> list[str]:
    """The lines of a file that are written to their ends."""
    return [line.rstrip("\n") for line in text_of(path).splitlines(keepends=True) if line.endswith("\n")]
