"""Being asked to stop: SIGTERM and SIGINT end a run within two seconds, with a report of what is known by then."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class StoppedError(Exception):
    """The run was asked to stop: by a signal, at the end of its time, or because somebody else needs the GPUs."""


class Stop:
    """Remembers that a signal came, or that the time is over; a signal breaks into calls that could wait too long.

    Elsewhere the run looks at `asked` several times a second, so that nothing is left half done.
    """

    def __init__(self) -> None:
        self._asked = False
        self.why = ""
        self._breaking = False
        self._late: Callable[[], bool] = lambda: False
        self._late_why = ""

    @property
    def asked(self) -> bool:
        """Whether to stop; `why` says why."""
        if not self._asked and self._late():
            self.ask(self._late_why)
        return self._asked

    @asked.setter
    def asked(self, asked: bool) -> None:
        self._asked = asked

    def ask(self, why: str) -> None:
        """Stop. The first reason is the one that is told."""
        if not self._asked:
            self._asked, self.why = True, why

    def when(self, late: Callable[[], bool], why: str) -> None:
        """Stop once `late` says so; it is asked whenever somebody asks whether to stop."""
        self._late, self._late_why = late, why

    def install(self) -> None:
        """Take over SIGTERM and SIGINT of this process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    @staticmethod
    def done() -> None:
        """All is said: a signal that comes now must not change the exit code, as it would while Python ends."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Inside, a signal raises StoppedError at once. Raises StoppedError when one came before."""
        self._breaking = True
        try:
            if self.asked:
                raise StoppedError
            yield
        finally:
            self._breaking = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.ask(f"stopped by {signal.Signals(number).name}")
        if self._breaking:
            raise StoppedError
