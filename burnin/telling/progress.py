"""What a run says while it runs, on standard error: bars on a terminal, JSON lines on a pipe. Torch-free.

Standard output is left to the result.
"""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import IO, Any, Protocol

from burnin.spec import Device
from burnin.tests import Effort
from burnin.verdict.evidence import Cast

LINE_EVERY_S = 1.0
"""JSON lines about ballots come no more often than this, so that a log does not drown."""


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


class Bars:
    """One bar for each GPU: rounds of the test, rate, watts, temperature, launches that differ among themselves."""

    def __init__(self, out: IO[str]) -> None:
        console = import_module("rich.console").Console(file=out, stderr=True)
        rich = import_module("rich.progress")
        columns = (
            rich.TextColumn("{task.description}"),
            rich.BarColumn(bar_width=24),
            rich.TextColumn("{task.fields[state]}"),
            rich.TimeElapsedColumn(),
        )
        self._console = console
        self._bars: Any = rich.Progress(*columns, console=console)
        self._context: AbstractContextManager[Any] = self._bars
        self._tasks: dict[str, Any] = {}
        self._index: dict[str, int] = {}
        self._rounds = 1
        self._unsteady: Counter[str] = Counter()

    def devices(self, devices: tuple[Device, ...]) -> None:
        """Draw a bar for each."""
        self._bars.start()
        for device in devices:
            self._index[device.gpu] = device.index
            self._tasks[device.gpu] = self._bars.add_task(f"GPU {device.index}", total=1, state=device.sku)

    def test(self, test: str, effort: Effort) -> None:
        """Begin all bars anew."""
        self._rounds = effort.rounds
        self._unsteady.clear()
        for gpu, task in self._tasks.items():
            self._bars.reset(task, total=effort.rounds, description=f"GPU {self._index[gpu]} {test}", state="")

    def cast(self, cast: Cast) -> None:
        """Move one bar."""
        ballot, sensors = cast.ballot, cast.felt
        self._unsteady[cast.gpu] += len(ballot.fingerprints) - 1
        rate = f"{ballot.flops / ballot.elapsed_s / 1e12:.3g} TFLOP/s" if ballot.flops and ballot.elapsed_s else ""
        felt = ""
        if sensors is not None and sensors.power_watts is not None:
            felt = f" {sensors.power_watts.mean:.0f} W"
        if sensors is not None and sensors.temperature_celsius is not None:
            felt += f" {sensors.temperature_celsius.max:.0f} °C"
        differ = self._unsteady[cast.gpu]
        state = f"{rate}{felt} {ballot.case}" + (f" [red]{differ} differ[/red]" if differ else "")
        self._bars.update(self._tasks[cast.gpu], completed=min(ballot.iteration + 1, self._rounds), state=state)

    def note(self, text: str) -> None:
        """Print it above the bars."""
        self._console.print(text, markup=False)

    def close(self) -> None:
        """Take the bars down."""
        self._bars.stop()


def open_progress(out: IO[str], *, monotonic: Callable[[], float]) -> Progress:
    """Bars on a terminal, lines elsewhere."""
    return Bars(out) if out.isatty() else Lines(out, monotonic=monotonic)
