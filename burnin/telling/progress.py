"""What a run says while it runs, on standard error: bars on a terminal, JSON lines on a pipe. Torch-free.

Standard output is left to the result.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import IO, Any, Protocol

from burnin.spec import Device
from burnin.tests import Effort
from burnin.verdict.evidence import Cast

LINE_EVERY_S = 1.0
"""JSON lines about ballots come no more often than this, so that a log does not drown."""

DUMB = {"", "dumb", "unknown"}
"""Values of TERM of a terminal on which bars would be repeated line after line."""


class Progress(Protocol):
    """Hears what a run does."""

    def devices(self, devices: tuple[Device, ...]) -> None:
        """The run has found its devices."""

    def test(self, test: str, effort: Effort) -> None:
        """A test begins."""

    def cast(self, cast: Cast) -> None:
        """A ballot came in."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def close(self) -> None:
        """The run has ended."""


class Lines:
    """JSON lines: `{"event": …}`."""

    def __init__(self, out: IO[str], *, monotonic: Callable[[], float]) -> None:
        self._out = out
        self._monotonic = monotonic
        self._said_s: float | None = None
        self._launches: Counter[str] = Counter()
        self._unsteady: Counter[str] = Counter()

    def devices(self, devices: tuple[Device, ...]) -> None:
        """Say who takes part."""
        self._say({"event": "devices", "gpus": [{"gpu": d.gpu, "index": d.index, "sku": d.sku} for d in devices]})

    def test(self, test: str, effort: Effort) -> None:
        """Say which test begins."""
        self._launches.clear()
        self._unsteady.clear()
        self._say({"event": "test", "test": test, "launches": effort.launches, "rounds": effort.rounds})

    def cast(self, cast: Cast) -> None:
        """Count, and say the counts now and then."""
        self._launches[cast.gpu] += cast.ballot.launches
        self._unsteady[cast.gpu] += len(cast.ballot.fingerprints) - 1
        now_s = self._monotonic()
        if self._said_s is None or now_s - self._said_s >= LINE_EVERY_S:
            self._said_s = now_s
            counts = {"launches": dict(self._launches), "unsteady": {g: n for g, n in self._unsteady.items() if n}}
            self._say({"event": "progress", "test": cast.test, "iteration": cast.ballot.iteration, **counts})

    def note(self, text: str) -> None:
        """Say it."""
        self._say({"event": "note", "text": text})

    def close(self) -> None:
        """Nothing is kept open."""

    def _say(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), file=self._out, flush=True)


def open_progress(out: IO[str], *, monotonic: Callable[[], float], seconds: float | None = None) -> Progress:
    """Bars on a terminal, lines elsewhere and on a terminal that cannot move its cursor.

    Args:
        out: where to say it.
        monotonic: clock, in seconds.
        seconds: how long the run is to take; None: nobody can say.
    """
    if not out.isatty() or os.environ.get("TERM", "") in DUMB:
        return Lines(out, monotonic=monotonic)
    bars: Progress = import_module("burnin.telling.bars").Bars(out, monotonic=monotonic, seconds=seconds)
    return bars
