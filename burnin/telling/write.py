"""Files that appear whole or not at all: written beside their target and renamed. Torch-free."""

import os
import tempfile
from pathlib import Path


def check_writable(path: Path) -> None:
    """Find out before a run whether its report can be written. Raises OSError.

    The target itself is not touched; a temporary file beside it is made and removed.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
    if path.exists() and not path.is_file():  # renaming over a device would replace it
        raise FileExistsError(f"{path} is no regular file")
    path = Path(os.path.realpath(path))  # `resolve` raises RuntimeError for a link to itself
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    Path(name).unlink()


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all: beside its target (a link's target), to the disk, renamed. Raises OSError."""
    path = Path(os.path.realpath(path))
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
