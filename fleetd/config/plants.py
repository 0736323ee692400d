"""`kind: Plants`: the simulated parts of the power tests and of the duty-cycle benchmark, read strictly.

Units are converted here: the file says MHz and microseconds, as data sheets do; everything else says hertz and seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleetd.config.shipped import shipped_dir
from fleetd.config.strict import ConfigError, read
from fleetd.core.power.chip import Chip

KIND = "Plants"
DIRECTORY, FILE = "plants", "standins.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFile:
    """Megahertz."""

    min: float
    base: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UncoreFile:
    """Watts at no and at full activity."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VoltageFile:
    """Volts, megahertz, volts per gigahertz."""

    v_ref: float
    f_ref_mhz: float
    slope_per_ghz: float
    v_min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityFile:
    """Ratios 0 … 1 of the most that the part can toggle: in a kernel, and between two."""

    high: float
    low: float

    def __post_init__(self) -> None:
        """Refuse what is no activity. Raises ValueError."""
        if not 0 <= self.low <= self.high <= 1:
            raise ValueError("an activity needs 0 <= low <= high <= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirmwareFile:
    """Timing of the part's own loop, in microseconds."""

    loop_us: float
    dead_time_us: float


class _ChipFile(Protocol):
    """What the files of simulated parts have in common."""

    @property
    def tbp_watts(self) -> float: ...
    @property
    def clock_mhz(self) -> ClockFile: ...
    @property
    def leak_watts(self) -> float: ...
    @property
    def uncore_watts(self) -> UncoreFile: ...
    @property
    def voltage(self) -> VoltageFile: ...


def chip_of(file: _ChipFile) -> Chip:
    """The part of a file in base units. Raises ValueError."""
    return Chip(
        tbp_watts=file.tbp_watts,
        clock_min_hertz=file.clock_mhz.min * 1e6,
        clock_base_hertz=file.clock_mhz.base * 1e6,
        clock_max_hertz=file.clock_mhz.max * 1e6,
        leak_watts=file.leak_watts,
        uncore_low_watts=file.uncore_watts.low,
        uncore_high_watts=file.uncore_watts.high,
        v_ref=file.voltage.v_ref,
        clock_ref_hertz=file.voltage.f_ref_mhz * 1e6,
        slope_volts_per_hertz=file.voltage.slope_per_ghz * 1e-9,
        v_min=file.voltage.v_min,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantFile:
    """One part."""

    part: str
    """Whose numbers it stands in for, as `sku` of an envelope: under another part's it is not simulated."""
    tbp_watts: float
    clock_mhz: ClockFile
    leak_watts: float
    uncore_watts: UncoreFile
    voltage: VoltageFile
    activity: ActivityFile
    firmware: FirmwareFile
    step_us: float

    def __post_init__(self) -> None:
        """Refuse what is no part. Raises ValueError."""
        self.chip()
        step, loop, dead = self.step_us, self.firmware.loop_us, self.firmware.dead_time_us
        if not 0 < step <= loop or not 0 <= dead <= loop:
            raise ValueError("timing needs 0 < step_us <= loop_us and 0 <= dead_time_us <= loop_us")
        for name, value in (("loop_us", loop), ("dead_time_us", dead)):
            if abs(value / step - round(value / step)) > 1e-9:  # noqa: PLR2004 - rounding only
                raise ValueError(f"{name}: {value:g} is no whole number of steps of {step:g}")

    def chip(self) -> Chip:
        """The part in base units. Raises ValueError."""
        return chip_of(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantsFile:
    """The file."""

    plants: Mapping[str, PlantFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One simulated part, in base units."""

    name: str
    part: str
    """The part that it stands in for."""
    chip: Chip
    activity_high: float
    activity_low: float
    period_s: float
    """Of the part's own loop."""
    dead_s: float
    step_s: float


def plants_path() -> Path:
    """The file that ships with fleetd."""
    return shipped_dir(DIRECTORY) / FILE


def load_plants(path: Path | None = None) -> dict[str, Plant]:
    """Read the parts by name; None: the shipped ones. Raises ConfigError."""
    file = plants_path() if path is None else path
    plants = read(file, PlantsFile, kind=KIND).value.plants
    if not plants:
        raise ConfigError(file, None, "names no part")
    return {
        name: Plant(
            name=name,
            part=plant.part,
            chip=plant.chip(),
            activity_high=plant.activity.high,
            activity_low=plant.activity.low,
            period_s=plant.firmware.loop_us / 1e6,
            dead_s=plant.firmware.dead_time_us / 1e6,
            step_s=plant.step_us / 1e6,
        )
        for name, plant in plants.items()
    }
