"""`kind: LimitedPlant`: a simulated part under its vendor's own power limiter, read strictly."""

from dataclasses import dataclass
from pathlib import Path

from fleetd.config.plants import DIRECTORY, ActivityFile, ClockFile, UncoreFile, VoltageFile, chip_of
from fleetd.config.shipped import shipped_dir
from fleetd.config.strict import load
from fleetd.core.power.limiter import LimitedPart, Limiter, WorkRate

KIND = "LimitedPlant"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterFile:
    """Watts, megahertz, milliseconds; as `fleetd.core.power.limiter.Limiter`."""

    limit_watts: float
    fast_watts: float
    filter_ms: float
    fast_mhz_per_watt: float
    fall_mhz_per_ms: float
    rise_mhz_per_ms: float
    box_ms: float
    slow_mhz_per_watt: float
    recover_mhz_per_watt: float
    over_mhz_per_watt: float
    slow_mhz: float
    period_ms: float

    def __post_init__(self) -> None:
        """Refuse what is no limiter. Raises ValueError."""
        if min(self.filter_ms, self.box_ms, self.period_ms, self.limit_watts, self.fast_watts) <= 0:
            raise ValueError("filter_ms, box_ms, period_ms, limit_watts and fast_watts must be above 0")
        gains = (self.fast_mhz_per_watt, self.slow_mhz_per_watt, self.recover_mhz_per_watt, self.over_mhz_per_watt)
        if min(*gains, self.slow_mhz) < 0 or min(self.fall_mhz_per_ms, self.rise_mhz_per_ms) <= 0:
            raise ValueError("a limiter's gains and slow_mhz must be 0 or above, fall_ and rise_mhz_per_ms above 0")

    def limiter(self) -> Limiter:
        """In base units."""
        return Limiter(
            limit_watts=self.limit_watts,
            fast_watts=self.fast_watts,
            filter_s=self.filter_ms / 1e3,
            fast_hertz_per_watt=self.fast_mhz_per_watt * 1e6,
            fall_hertz_per_second=self.fall_mhz_per_ms * 1e9,
            rise_hertz_per_second=self.rise_mhz_per_ms * 1e9,
            box_s=self.box_ms / 1e3,
            slow_hertz_per_watt=self.slow_mhz_per_watt * 1e6,
            recover_hertz_per_watt=self.recover_mhz_per_watt * 1e6,
            over_hertz_per_watt=self.over_mhz_per_watt * 1e6,
            slow_hertz=self.slow_mhz * 1e6,
            period_s=self.period_ms / 1e3,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFile:
    """A rate at the highest clock, and how it falls with the clock."""

    top_rate: float
    rest_share: float
    launch_us: float

    def __post_init__(self) -> None:
        """Refuse what is no rate. Raises ValueError."""
        if self.top_rate <= 0 or not 0 <= self.rest_share < 1 or self.launch_us < 0:
            raise ValueError("work needs top_rate > 0, 0 <= rest_share < 1 and launch_us >= 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedFile:
    """The file."""

    name: str
    tbp_watts: float
    clock_mhz: ClockFile
    leak_watts: float
    uncore_watts: UncoreFile
    voltage: VoltageFile
    activity: ActivityFile
    step_us: float
    limiter: LimiterFile
    work: WorkFile

    def __post_init__(self) -> None:
        """Refuse what is no part. Raises ValueError."""
        chip_of(self)
        steps = self.limiter.period_ms * 1e3 / self.step_us if self.step_us > 0 else 0.0
        if steps < 1 or abs(steps - round(steps)) > 1e-9:  # noqa: PLR2004 - rounding only
            raise ValueError("period_ms must be a whole number of steps of step_us")


def load_limited(path: Path | None = None) -> LimitedPart:
    """Read a part; None: the shipped H200. Raises ConfigError."""
    file = load(shipped_dir(DIRECTORY) / "h200.yaml" if path is None else path, LimitedFile, kind=KIND)
    chip = chip_of(file)
    work = WorkRate(
        bound=(1.0 - file.work.rest_share) / file.work.top_rate * chip.clock_max_hertz,
        rest=file.work.rest_share / file.work.top_rate,
        launch_s=file.work.launch_us / 1e6,
    )
    return LimitedPart(
        name=file.name,
        chip=chip,
        limiter=file.limiter.limiter(),
        work=work,
        low=file.activity.low,
        step_s=file.step_us / 1e6,
    )
