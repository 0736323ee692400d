"""How far a helper is in a request for several GPUs, told in memory that it shares with its parent."""

import mmap
import os

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
        descriptor = os.memfd_create("fleetd-steps")
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return cls.at(descriptor), descriptor

    @classmethod
    def at(cls, descriptor: int) -> "Steps":
        """Those of the other side. Raises OSError."""
        return cls(mmap.mmap(descriptor, mmap.PAGESIZE))

    def begin(self, number: int, step: int) -> None:
        """This GPU of this request is asked now."""
        self._word[0] = (number & _LOW) << 32 | step

    def of(self, number: int) -> int | None:
        """How far it is; None: it has not begun with that request."""
        word = self._word[0]
        return word & _LOW if word >> 32 == number & _LOW else None
