"""Where the fake libraries are built, and with what: gcc, once, into a cache of the user's own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SOURCES = Path(__file__).parent
_GCC_SECONDS = 60.0
_OTHERS_MAY_WRITE = 0o022
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


class NoFakeLibrary(Exception):  # noqa: N818 - it says what there is not
    """There is no fake library on this machine; one line: why, and what to do."""


def cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder in which the libraries are kept from one use to the next (XDG base directories).

    Raises:
        NoFakeLibrary: the user has no home.
    """
    base = Path(environ.get("XDG_CACHE_HOME") or "")
    try:
        return (base if base.is_absolute() else Path.home() / ".cache") / "fleetd" / "vendorlibs"
    except RuntimeError as error:
        raise NoFakeLibrary("this user has no home directory; name a folder of yours in XDG_CACHE_HOME") from error


def private(folder: Path) -> Path:
    """Make a folder for programs that will be loaded: nobody else may put one there. Raises NoFakeLibrary."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise NoFakeLibrary(f"{folder}: {error.strerror}; name a folder of yours in XDG_CACHE_HOME") from error
    if found.st_uid != os.getuid() or found.st_mode & _OTHERS_MAY_WRITE:
        raise NoFakeLibrary(f"{folder}: others may write there; remove it, or name another in XDG_CACHE_HOME")
    return folder


def compile_library(source: Path, library: Path, *options: str) -> None:
    """Compile one C file to a shared library, and see that it can be loaded. Raises NoFakeLibrary."""
    gcc = shutil.which("gcc")
    if gcc is None:
        raise NoFakeLibrary("gcc, which builds them, is not installed; install gcc and libc6-dev")
    command = [gcc, "-shared", "-fPIC", "-O1", f"-I{SOURCES}", *options, str(source), "-o", str(library), "-lm"]
    run("gcc", command)
    # A folder on a file system that may hold no programs (noexec) is found out here, and not by a puzzled agent.
    run(f"loading {library}", [sys.executable, "-I", "-S", "-c", _LOAD, str(library)])


def run(what: str, command: list[str], *, environ: Mapping[str, str] | None = None) -> str:
    """Run one step of a build; returns what it prints. Raises NoFakeLibrary with the last line of its complaint."""
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=_GCC_SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoFakeLibrary(f"{what} did not work: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        # Of a compiler the first error counts, of an interpreter the last line.
        line = next((line for line in said if "error:" in line), said[-1])
        raise NoFakeLibrary(f"{what} did not work: {line.strip():.300}")
    return done.stdout
