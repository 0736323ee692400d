"""Where a daemon keeps its state."""

import os
from pathlib import Path

from fleetd.ports import StoreError


def state_dir(path: Path) -> Path:
    """Return the directory. Raises StoreError unless it is there and this user can write it."""
    if not path.is_dir():
        raise StoreError(f"state_dir {path}: no such directory; make it, owned by this service")
    if not os.access(path, os.W_OK | os.X_OK):
        raise StoreError(f"state_dir {path}: this user cannot write it")
    return path
