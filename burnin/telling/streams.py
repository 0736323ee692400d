"""Standard streams that are closed, full or narrow. What is said there must never change a verdict or an exit code."""

import io
import os
import sys
from typing import IO, TextIO, cast


def mend() -> None:
    """Make file descriptors 0 to 2 and `sys.stdout`, `sys.stderr` usable, whatever this process was started with.

    A descriptor that is closed would be given to the next file or socket, and text for people would land there. The
    stand-in is opened for reading only, so that a report sent to it fails to be written, and is not taken for written.
    Characters that a stream's encoding lacks are escaped.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # the lowest free descriptor is this one
    # A standard stream of a closed descriptor is None, whatever its declared type says.
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def forgiving(stream: TextIO) -> IO[str]:
    """A stream for people: what cannot be written (nobody reads, no space) is dropped, and so is all that follows."""
    return cast("IO[str]", _Forgiving(stream))


class _Forgiving(io.TextIOBase):
    """See `forgiving`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Write and flush; on a failure this and everything later goes nowhere."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            divert(self._stream)
        return len(text)

    def isatty(self) -> bool:
        """Whether a person looks on."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor beneath; rich asks it for the width of the terminal."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only at run time, too
        """What characters can be shown; rich chooses its drawings by it."""
        return self._stream.encoding


def divert(stream: TextIO) -> None:
    """Send a stream's descriptor to the null device: what is left in its buffer would fail again when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
