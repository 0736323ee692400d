"""What takes seconds to make and is only read: made once, for all processes that share out the tests of one run."""

import fcntl
import os
from collections.abc import Callable

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[], str]) -> str:
    """The text that `make` returns; whoever asks for it first makes it, while the others wait.

    Args:
        factory: of the run's temporary folders.
        name: of what is made, as a file may be called.
        make: makes it; when it fails, the next one tries.
    """
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each process has a folder of its own inside that of the run
        folder = folder.parent
    path = folder / f"once-{name}"
    with (folder / f"once-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            fresh = path.with_suffix(".part")
            fresh.write_text(make(), encoding="utf-8")
            fresh.replace(path)
    return path.read_text(encoding="utf-8")
