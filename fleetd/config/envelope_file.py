"""`kind: PowerEnvelope` as people write it; `envelope.py` turns it into the model."""

import re
from dataclasses import dataclass, field
from typing import Literal

Unknown = Literal["unknown"]

WATTS_LOW, WATTS_HIGH = 10.0, 10_000.0
"""No GPU draws less or more: a number outside is in another unit."""
RATIO_HIGH = 10.0
"""No excursion comes near: a number above is a percentage."""
SECONDS_LOW, SECONDS_HIGH = 1e-8, 86_400.0
"""Shorter than any current can rise, longer than anyone provisions for: a slip of the unit or of a digit."""
NONE_OF_A_DRIVER = (2**16 - 1, 2**32 - 1, 2**64 - 1)

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s)")
_PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0}


def seconds(text: str | float, what: str) -> float:
    """Read `20us`, `20ms` or `1s`. Raises ValueError, with what to write instead."""
    found = _DURATION.fullmatch(str(text))
    if found is None:
        if isinstance(text, (int, float)):
            raise ValueError(f"{what}: {text:g} has no unit; write {text:g}us, {text:g}ms or {text:g}s")
        raise ValueError(f"{what}: `{text:.40}` is no duration; write it as 20us, 20ms or 1s")
    value = float(found[1]) / _PER_SECOND[found[2]]
    if value <= 0:
        raise ValueError(f"{what}: a duration of 0")
    if not SECONDS_LOW <= value <= SECONDS_HIGH:
        raise ValueError(f"{what}: {text!s:.40} is no time of a power envelope, from 10 ns to a day")
    return value


def known_seconds(text: str | float, what: str) -> float | None:
    """Read a duration, or `unknown` as None. Raises ValueError."""
    return None if text == "unknown" else seconds(text, what)


def watts(value: float, what: str) -> float:
    """Check a power of one GPU. Raises ValueError, with the unit that it may be in."""
    if value in NONE_OF_A_DRIVER:
        raise ValueError(f"{what}: {value:g} is what a driver says for `no value`; write the limit in watts, or null")
    if value <= 0:
        raise ValueError(f"{what}: {value:g} W is no limit; write the limit in watts, or null if it is unknown")
    if value > WATTS_HIGH:
        unit = "microwatts" if value >= WATTS_LOW * 1e6 else "milliwatts"
        raise ValueError(f"{what}: {value:g} W is no power of one GPU; is it in {unit}, or a node's total?")
    if value < WATTS_LOW:
        raise ValueError(f"{what}: {value:g} W is no power of one GPU; is it in kilowatts?")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Whose envelope it is."""

    name: str
    reason: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which part it is for; the file is of no use for any other."""

    vendor: Literal["amd", "nvidia"]
    sku: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One window."""

    over: str | float
    max_ratio: float | Unknown
    semantics: Literal["window_avg", "dwell"]
    source: str
    supersedes: tuple[str, ...] = ()
    approval: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no row. Raises ValueError."""
        seconds(self.over, "over")
        if isinstance(self.max_ratio, (int, float)):
            if self.max_ratio <= 0:
                raise ValueError(f"max_ratio: {self.max_ratio:g} is no ratio; write it above 0, or unknown")
            if self.max_ratio > RATIO_HIGH:
                raise ValueError(f"max_ratio: {self.max_ratio:g} times the TBP; is it a percentage? 110 % is 1.1")
        if not self.source or "/" in self.source:
            raise ValueError("source: name who says so, without `/`: the row is called SOURCE/WINDOW")
        if self.supersedes and not self.approval:
            raise ValueError("supersedes needs an `approval`: who allowed the row to be replaced, and where it says so")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginFile:
    """What is kept back."""

    sensor_gain: float
    model: float

    def __post_init__(self) -> None:
        """Refuse what is no margin. Raises ValueError."""
        if self.sensor_gain < 0 or self.model < 0 or self.sensor_gain + self.model >= 1:
            raise ValueError("margins are ratios of at least 0 and together below 1: 3 % is 0.03")


@dataclass(frozen=True, slots=True, kw_only=True)
class BandFile:
    """A limit on the oscillating part."""

    low_hertz: float
    high_hertz: float
    max_ac_ratio: float

    def __post_init__(self) -> None:
        """Refuse what is no band. Raises ValueError."""
        if not 0 < self.low_hertz < self.high_hertz or not 0 < self.max_ac_ratio <= 1:
            raise ValueError("a band needs 0 < low_hertz < high_hertz, and max_ac_ratio above 0 and at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerFile:
    """What the feed asks for besides a ceiling."""

    floor_watts: float | None = None
    ramp_up_watts_per_second: float | None = None
    ramp_down_watts_per_second: float | None = None
    band: BandFile | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be kept. Raises ValueError."""
        if self.floor_watts is not None:
            watts(self.floor_watts, "floor_watts")
        for name in ("ramp_up_watts_per_second", "ramp_down_watts_per_second"):
            ramp = getattr(self, name)
            if ramp is not None and ramp <= 0:
                raise ValueError(f"{name}: {ramp:g} W/s is no ramp; write it above 0, or null if there is none")


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdKnobs:
    """`[lowest, highest]` of each limit; null: unknown."""

    ppt0_watts: tuple[float, ...] | None = None
    ppt1_watts: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaKnobs:
    """`[lowest, highest]` of the power limit; null: unknown."""

    limit_watts: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuators:
    """The knobs of the part's vendor."""

    amd: AmdKnobs | None = None
    nvidia: NvidiaKnobs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Time constants of the firmware's filters."""

    ppt0_tau: str | float = "unknown"
    ppt1_tau: str | float = "unknown"
    limit_tau: str | float = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFile:
    """What the host can see and how fast it acts, and who measured it."""

    sensing: str | float = "unknown"
    actuation: str | float = "unknown"
    samples: str | float = "unknown"
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Safe:
    """What holds when no software runs."""

    cap_watts: float

    def __post_init__(self) -> None:
        """Refuse what is no cap. Raises ValueError."""
        watts(self.cap_watts, "cap_watts")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFile:
    """How long a set-point above the safe cap lives without renewal."""

    ttl: str | float
    grace: str | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The envelope."""

    match: Match
    tbp_watts: float
    interpolation: Literal["listed", "loglinear", "step"] = "listed"
    includes: tuple[str, ...] = ()
    """Envelopes whose rows hold as well: names of shipped ones, or paths from this file. They include nothing."""
    windows: tuple[Row, ...]
    margin: MarginFile
    lower: LowerFile = field(default_factory=LowerFile)
    actuators: Actuators = field(default_factory=Actuators)
    firmware_filter: Filters = field(default_factory=Filters)
    loop: LoopFile = field(default_factory=LoopFile)
    safe: Safe
    lease: LeaseFile
    lowest_draw_watts: float | Unknown = "unknown"

    def __post_init__(self) -> None:
        """Refuse what is no power. Raises ValueError."""
        watts(self.tbp_watts, "tbp_watts")
        if isinstance(self.lowest_draw_watts, (int, float)):
            watts(self.lowest_draw_watts, "lowest_draw_watts")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeFile:
    """The file."""

    metadata: Metadata
    spec: Spec
