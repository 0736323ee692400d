"""How far a helper is in a request for several GPUs, told in memory that it shares with its parent."""

import mmap
import os
import tempfile

_LOW = 0xFFFFFFFF


class Steps:
    """Eight bytes, written at once: the number of the request, and which of its GPUs is being asked.

    A message for each GPU would wake both processes for each of them, which costs more than to read it.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        """Of memory that is at least a word long."""
        self._word = memoryview(memory).cast("Q")

    @classmethod
    def shared(cls) -> tuple["Steps", int]:
        """New ones, and the descriptor by which the helper finds them. Raises OSError."""
        descriptor = _nameless()
        try:
            os.ftruncate(descriptor, mmap.PAGESIZE)
            return cls.at(descriptor), descriptor
        except OSError:
            os.close(descriptor)
            raise

    @classmethod
    def at(cls, descriptor: int) -> "Steps":
        """Those of the other side. Raises OSError."""
        return cls(mmap.mmap(descriptor, mmap.PAGESIZE))

    def begin(self, number: int, step: int) -> None:
        """This GPU of this request is asked now."""
        self._word[0] = (number & _LOW) << 32 | step

    def now(self) -> tuple[int, int]:
        """The request that it is in or was in last (its lower 32 bits; 0: none so far), and how far."""
        word = self._word[0]
        return word >> 32, word & _LOW

    def of(self, number: int) -> int | None:
        """How far it is; None: it has not begun with that request."""
        request, step = self.now()
        return step if request == number & _LOW else None


def _nameless() -> int:
    """A file that nobody else can open. Raises OSError."""
    # Missing in a Python that was built for an old C library (many that are not the distribution's own are), whatever
    # this machine has; refused by an old kernel, or by a container's filter of system calls.
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("fleetd-steps")
        except OSError:
            pass
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
