"""What a GPU feels while it computes: the port, a simulated GPU's model, and the readings of one ballot. Torch-free.

Real sensors are read by `readers` and `burnin.load.sensors`; a CPU has none. A simulated GPU has a clock of its own,
moved by what it is told to have done and never by real time, so that a run on it can be repeated.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from burnin.load.sensors import Sensors as Ring
from burnin.verdict.health import QUANTITIES, Felt, Reader, Sensors, Spread, lowest

READ_EVERY_S = 0.1
"""Between two readings: what a driver updates several times, at a cost of some microseconds a reading (an H200)."""
COOL_CELSIUS, HOT_CELSIUS = 30.0, 80.0
"""Between these a simulated GPU moves: an H200 idles near 30 °C; 80 °C is a hot one under load."""
WARMING_S = 20.0
"""Time constant of a simulated GPU's temperature, in its own seconds."""
IDLE_WATTS, BUSY_WATTS = 75.0, 700.0
IDLE_HERTZ, BUSY_HERTZ = 345e6, 1.4e9
"""Of a simulated GPU: about those of an H200."""
SAMPLES_MAX = 256
"""Power samples that a simulated GPU keeps; the oldest are lost, as a driver's are."""


class Senses(Protocol):
    """One GPU's feelings, as a workload may use them."""

    def read(self) -> Sensors:
        """Read the sensors now."""

    def power_samples(self) -> tuple[float, ...]:
        """Watts since the last call, as finely as can be had; empty where there is nothing finer than `read`."""

    def passed(self, seconds: float, *, busy: bool) -> None:
        """Tell a simulated GPU what it did for how long; a real one knows."""


class Unfelt:
    """A device without sensors."""

    def read(self) -> Sensors:
        """Nothing."""
        return Sensors()

    def power_samples(self) -> tuple[float, ...]:
        """None."""
        return ()

    def passed(self, seconds: float, *, busy: bool) -> None:
        """Nothing is simulated."""


class Real(Unfelt):
    """A real GPU."""

    def __init__(self, reader: Reader, gpu: str) -> None:
        """`gpu`: its UUID."""
        self._reader = reader
        self._gpu = gpu
        self._ring: Ring | None = None

    def read(self) -> Sensors:
        """Read the vendor's sensors."""
        return self._reader.sensors()

    def power_samples(self) -> tuple[float, ...]:
        """The driver's ring of samples, 20 ms apart on an H200; it keeps 2.4 s."""
        if self._ring is None:
            self._ring = Ring(self._gpu)
        return tuple(watts for _, watts in self._ring.ring())


class Simulated:
    """A GPU that warms under load and cools without, towards either end with one time constant."""

    def __init__(self) -> None:
        """Cold and idle."""
        self._celsius = COOL_CELSIUS
        self._busy = False
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)

    def read(self) -> Sensors:
        """Where the model stands."""
        return Sensors(
            temperature_celsius=self._celsius,
            power_watts=BUSY_WATTS if self._busy else IDLE_WATTS,
            sm_clock_hertz=BUSY_HERTZ if self._busy else IDLE_HERTZ,
        )

    def power_samples(self) -> tuple[float, ...]:
        """One for each stretch that passed."""
        samples = tuple(self._samples)
        self._samples.clear()
        return samples

    def passed(self, seconds: float, *, busy: bool) -> None:
        """Move the model on."""
        target = HOT_CELSIUS if busy else COOL_CELSIUS
        self._celsius = target + (self._celsius - target) * math.exp(-seconds / WARMING_S)
        self._busy = busy
        self._samples.append(BUSY_WATTS if busy else IDLE_WATTS)


def open_senses(backend: str, gpu: str, reader: Reader) -> Senses:
    """The senses of one GPU (`gpu`: its UUID)."""
    if backend == "sim":
        return Simulated()
    return Real(reader, gpu) if backend == "cuda" else Unfelt()


def heats(backend: str, test: str) -> bool:
    """Whether a test can make a GPU hot where this can be felt: a simulated GPU's clock stands still in most."""
    return backend == "cuda" or (backend == "sim" and test == "thermal")


class Watch:
    """Readings of one stretch of work, added up as they come: memory does not grow with it."""

    def __init__(self, read: Callable[[], Sensors], *, clock: Callable[[], float]) -> None:
        """Nothing is read yet.

        Args:
            read: one reading.
            clock: in seconds; only differences count.
        """
        self._read = read
        self._clock = clock
        self._next_s = -math.inf
        self._sums: dict[str, tuple[float, float, float, int]] = {}
        self._limits: set[str] = set()
        self._power_limit_watts: float | None = None
        self._readings = 0

    def look(self) -> None:
        """Read, unless the last reading is younger than `READ_EVERY_S`."""
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + READ_EVERY_S
            self._take(self._read())

    def end(self) -> Felt:
        """Read once more, and say what was felt."""
        self._take(self._read())
        spreads = {
            name: Spread(min=low, mean=total / count, max=high)
            for name, (low, total, high, count) in self._sums.items()
        }
        return Felt(
            temperature_celsius=spreads.get("temperature_celsius"),
            power_watts=spreads.get("power_watts"),
            sm_clock_hertz=spreads.get("sm_clock_hertz"),
            limits=tuple(sorted(self._limits)),
            readings=self._readings,
            power_limit_watts=self._power_limit_watts,
        )

    def _take(self, now: Sensors) -> None:
        self._readings += 1
        self._limits.update(now.limits)
        self._power_limit_watts = lowest((self._power_limit_watts, now.power_limit_watts))
        for name in QUANTITIES:
            value: float | None = getattr(now, name)
            if value is not None:
                low, total, high, count = self._sums.get(name, (value, 0.0, value, 0))
                self._sums[name] = (min(low, value), total + value, max(high, value), count + 1)
