"""What a file and its name have to go through to outlive a loss of power: synced, renamed, the folder synced.

The power guard does the same by itself: it imports nothing but the standard library.
"""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk: a rename is not there before. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def settle(part: Path, to: Path) -> None:
    """Put a file that has been written and closed in its place, on the same file system.

    Whoever opens `to`, even after a crash, meets the old one or the new one, whole.

    Raises:
        OSError: what was there is still there, unless only its folder could not be synced.
    """
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(to)
    sync_folder(to.parent)
