"""One thread a GPU that writes its limits, so that a GPU whose driver fails or hangs keeps none of the others waiting.

A thread has one job at a time and at most one that waits; a newer one takes the place of the one that waits. So a fall
is never queued behind raises, and nothing that was asked before a fall is written after it.
"""

import os
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from fleetd.powerguard.plan import Gpu
from fleetd.powerguard.vendors import CannotWrite, Vendor

_STACK_BYTES = 1 << 20
"""Of each thread, in place of the usual 8 MiB: all memory is locked (`machine.become_realtime`), so every byte of every
stack is resident, and 16 GPUs' stacks alone would be all that the service may take (`MemoryMax=128M`)."""
Clock = tuple[float | None] | tuple[()]
"""A clock to lock in hertz, (None,): to unlock it; empty: it is left as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The end of one job."""

    job: int
    gpu: str
    error: str
    """"" when every limit was written."""


class _Hand:
    """The thread of one GPU."""

    def __init__(self, gpu: Gpu, vendor: Vendor, tell: "Hands") -> None:
        self._name = gpu.gpu
        self._vendor = vendor
        self._tell = tell
        self._wake = threading.Condition()
        self._next: tuple[int, Gpu, Mapping[str, float], Clock] | None = None
        self.busy = False
        usual = threading.stack_size(_STACK_BYTES)
        threading.Thread(target=self._run, name=f"write-{gpu.gpu}", daemon=True).start()
        threading.stack_size(usual)

    def give(self, job: int, gpu: Gpu, limits: Mapping[str, float], clock: Clock) -> None:
        """Have limits of this GPU, at the place where it is now, written in their order, and the clock."""
        with self._wake:
            if self._next is not None:
                self._tell.done(Done(job=self._next[0], gpu=self._name, error="overtaken by a newer order"))
            self._next, self.busy = (job, gpu, limits, clock), True
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._next is None:
                    self._wake.wait()
                (job, gpu, limits, clock), self._next = self._next, None
            errors = self._carry_out(gpu, limits, clock)
            with self._wake:
                self.busy = self._next is not None
            self._tell.done(Done(job=job, gpu=self._name, error="; ".join(errors)))

    def _carry_out(self, gpu: Gpu, limits: Mapping[str, float], clock: Clock) -> list[str]:
        """A clock is locked before a limit goes up, and unlocked after it went down; what failed ends it there."""
        errors: list[str] = []
        lock = partial(self._vendor.lock_clock, gpu.gpu, gpu.pci)
        if clock and clock[0] is not None:
            self._try(errors, "clock", partial(lock, clock[0]))
        for knob, watts in limits.items() if not errors else ():
            self._try(errors, knob, partial(self._vendor.write, gpu.gpu, gpu.pci, knob, watts))
        if clock and clock[0] is None and not errors:
            self._try(errors, "clock", partial(lock, None))
        return errors

    @staticmethod
    def _try(errors: list[str], what: str, write: Callable[[], None]) -> None:
        try:
            write()
        except CannotWrite as error:
            errors.append(f"{what}: {error}")


class Hands:
    """The threads of all GPUs."""

    def __init__(self, vendors: Mapping[str, Vendor]) -> None:
        self._vendors = vendors
        self._hands: dict[str, _Hand] = {}
        self._finished: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self.ready_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when `finished` has something to tell."""

    def done(self, one: Done) -> None:
        """Called by the threads."""
        self._finished.put(one)
        os.eventfd_write(self.ready_fd, 1)

    def write(self, job: int, gpu: Gpu, limits: Mapping[str, float], clock: Clock = ()) -> None:
        """Have the limits and the clock of a GPU written; the end is told by `finished`."""
        hand = self._hands.get(gpu.gpu)
        if hand is None:
            hand = self._hands[gpu.gpu] = _Hand(gpu, self._vendors[gpu.vendor], self)
        hand.give(job, gpu, limits, clock)  # one thread, wherever it moved: a second could raise after a fall

    def finished(self) -> list[Done]:
        """What has ended since the last call."""
        try:
            os.eventfd_read(self.ready_fd)
        except BlockingIOError:
            return []
        found = []
        while not self._finished.empty():
            found.append(self._finished.get())
        return found

    def let_go(self) -> None:
        """Close the vendors' libraries; only while no thread is busy."""
        for vendor in self._vendors.values():
            vendor.close()

    @property
    def busy(self) -> tuple[str, ...]:
        """GPUs whose thread is inside the driver, or has something to do."""
        return tuple(name for name, hand in self._hands.items() if hand.busy)
