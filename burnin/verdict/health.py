"""Health counters and sensors of one GPU: the words, and what two readings of the counters mean. Pure, torch-free.

None: not supported or not read. `burnin.processes.readers` reads them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What is compared before and after a run."""

    source: str
    """Where the numbers come from; empty when there is nothing to read them with."""
    uncorrectable_total: int | None = None
    correctable_total: int | None = None
    remap_failed: bool | None = None
    """The GPU ran out of spare rows for this bank."""
    pcie_width: int | None = None
    pcie_width_max: int | None = None


QUANTITIES = ("temperature_celsius", "power_watts", "sm_clock_hertz")
"""What is read of a GPU while it computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensors:
    """What a GPU feels at one moment."""

    temperature_celsius: float | None = None
    """Of the core (AMD: its hot spot)."""
    power_watts: float | None = None
    sm_clock_hertz: float | None = None
    limits: tuple[str, ...] = ()
    """What holds the clock back now; empty also where that cannot be read."""
    power_limit_watts: float | None = None
    """The limit in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One quantity over some readings."""

    min: float
    mean: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Felt:
    """What a GPU felt while it computed."""

    temperature_celsius: Spread | None = None
    power_watts: Spread | None = None
    sm_clock_hertz: Spread | None = None
    limits: tuple[str, ...] = ()
    """Everything that held its clock back in any reading."""
    readings: int = 0
    power_limit_watts: float | None = None
    """The lowest limit that was in force in any reading."""

    @property
    def peak_celsius(self) -> float | None:
        """The highest temperature; None: it was not read."""
        return self.temperature_celsius.max if self.temperature_celsius is not None else None


def lowest(values: Iterable[float | None]) -> float | None:
    """The lowest that is known."""
    return min((value for value in values if value is not None), default=None)


def together(felt: Sequence[Felt]) -> Felt:
    """What was felt over several stretches; means are weighted by their readings."""
    spreads: dict[str, Spread | None] = {}
    for name in QUANTITIES:
        known = [(spread, one.readings) for one in felt if (spread := getattr(one, name)) is not None]
        count = sum(readings for _, readings in known)
        spreads[name] = (
            Spread(
                min=min(spread.min for spread, _ in known),
                mean=sum(spread.mean * readings for spread, readings in known) / count,
                max=max(spread.max for spread, _ in known),
            )
            if count
            else None
        )
    limits = tuple(sorted({limit for one in felt for limit in one.limits}))
    return Felt(
        limits=limits,
        readings=sum(one.readings for one in felt),
        power_limit_watts=lowest(one.power_limit_watts for one in felt),
        **spreads,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What belongs into a vote key and is not known to torch."""

    driver: str | None = None
    firmware: str | None = None
    partition: str | None = None
    index: int | None = None
    """Position on this host, whatever `CUDA_VISIBLE_DEVICES` shows of it."""


class ReadingError(RuntimeError):
    """A GPU that could be read does not answer any more, as one that has fallen off the bus; one line."""


class Reader(Protocol):
    """Reads one GPU."""

    def counters(self) -> Counters:
        """Read the counters. Raises ReadingError: what cannot be read must not look like no error."""

    def sensors(self) -> Sensors:
        """Read the sensors; a result that was computed is not lost because they cannot be read."""

    def facts(self) -> Facts:
        """Read what never changes while the driver is loaded."""

    def processes(self) -> tuple[int, ...]:
        """Process ids of others that compute on this GPU; empty when nobody does or it cannot be told."""


def compare(before: Counters | None, after: Counters | None) -> tuple[list[str], list[str]]:
    """Judge two readings of one GPU.

    Returns:
        (why the GPU is bad, what a person should look at): a new uncorrectable error or an exhausted row remapper is
        bad whatever the results were; a narrow PCIe link is only worth a look, because it may be the slot.
    """
    if after is None:
        return [], []
    bad, look = [], []
    had = before.uncorrectable_total if before is not None else None
    if after.uncorrectable_total is not None and had is not None and after.uncorrectable_total > had:
        bad.append(f"{after.uncorrectable_total - had} new uncorrectable memory errors during the run ({after.source})")
    if after.remap_failed:
        bad.append(f"row remapping failed: no spare rows are left ({after.source})")
    if after.pcie_width is not None and after.pcie_width_max is not None and after.pcie_width < after.pcie_width_max:
        look.append(f"PCIe link runs at x{after.pcie_width} of x{after.pcie_width_max}: reseat the GPU or its riser")
    return bad, look
