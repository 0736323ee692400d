"""Being asked to stop: SIGTERM and SIGINT end a run within two seconds, with a report of what is known by then."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StoppedError(Exception):
    """A signal asked the run to stop."""


class Stop:
    """Remembers that a signal came; breaks into calls that could wait too long.

    Elsewhere the run looks at `asked` several times a second, so that nothing is left half done.
    """

    def __init__(self) -> None:
        self.asked = False
        self.why = ""
        self._breaking = False

    def install(self) -> None:
        """Take over SIGTERM and SIGINT of this process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

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
        self.asked = True
        self.why = f"stopped by {signal.Signals(number).name}"
        if self._breaking:
            raise StoppedError
