"""The power envelope: how much a part may draw on average over every window length, and what enforces it.

A row says that the energy of any window of `over_s` stays within `max_ratio · tbp · over_s`. The rows of a part
come from its data sheet and from who feeds it; a number that nobody published is None, is shown, and is never guessed.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Semantics(StrEnum):
    """What a row promises. Compiled alike, because the average implies the dwell; the checker tells them apart."""

    WINDOW_AVG = "window_avg"
    """The average over every window of this length is at most the ratio."""
    DWELL = "dwell"
    """Power does not stay above the ratio for this long without a break."""


class Interpolation(StrEnum):
    """What holds between two rows."""

    LISTED = "listed"
    """Only the rows bind; between them their energies are joined by straight lines."""
    LOGLINEAR = "loglinear"
    """The ratio falls evenly with the logarithm of the window."""
    STEP = "step"
    """Each window takes the ratio of the next longer row: the safest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One row of an envelope."""

    over_s: float
    max_ratio: float | None
    """Of the TBP; None: nobody published it. Such a row is shown, not enforced."""
    semantics: Semantics
    source: str
    """Who says so. `source/label` names the row."""
    label: str
    """The window as it was written, such as `20ms`."""
    superseded_by: str | None = None
    """Name of the row that replaces this one, with its approval; such a row is shown, not enforced."""

    @property
    def name(self) -> str:
        """SOURCE/WINDOW."""
        return f"{self.source}/{self.label}"

    @property
    def enforced(self) -> bool:
        """Whether the row binds."""
        return self.max_ratio is not None and self.superseded_by is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """What is kept back, as ratios of every allowance."""

    sensor_gain: float = 0.0
    """Most that the sensor may read too little."""
    model: float = 0.0
    """Most that the power model may predict too little."""

    @property
    def total(self) -> float:
        """The sum: a little more than both errors together cost, `1 - a - b <= (1 - a)(1 - b)`."""
        return self.sensor_gain + self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A limit on the oscillating part of the power: its ratio to the mean inside a frequency band."""

    low_hertz: float
    high_hertz: float
    max_ac_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lower:
    """What the feed asks for besides a ceiling; None: nothing."""

    floor_watts: float | None = None
    ramp_up_watts_per_second: float | None = None
    ramp_down_watts_per_second: float | None = None
    band: Band | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One limit that a part takes, and the values that it accepts."""

    name: Literal["ppt0", "ppt1", "limit"]
    """`ppt0` lower limit on filtered power, `ppt1` higher limit on raw power (AMD); `limit` power limit (NVIDIA)."""
    low_watts: float
    high_watts: float
    tau_s: float | None = None
    """Time constant of the firmware's filter on it; None: unknown, so that it is audited and not certified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What a host can see and how fast it can act; None: nobody measured it."""

    sensing_s: float | None = None
    """Age that a power reading can have."""
    actuation_s: float | None = None
    """From a decision to its effect on the power."""
    samples_s: float | None = None
    """Spacing of the finest power samples that can be read afterwards."""

    @property
    def latency_s(self) -> float | None:
        """Sensing plus actuation: no host loop certifies a window shorter than this."""
        if self.sensing_s is None or self.actuation_s is None:
            return None
        return self.sensing_s + self.actuation_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """How long a set-point above the safe cap lives without its renewal."""

    ttl_s: float
    grace_s: float


_OTHER_BOARDS = frozenset({"NVL", "PCIE", "VF"})
"""By these words vendors tell a board of the same chip that bears less power, and a share of a GPU (AMD's virtual
functions), from the module: `NVIDIA H200 NVL`, `NVIDIA H100 PCIe`, `AMD Instinct MI300X VF`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A part's power envelope."""

    name: str
    reason: str
    owner: str
    vendor: Literal["amd", "nvidia"]
    part: str
    tbp_watts: float
    """Board power that may be drawn for ever."""
    interpolation: Interpolation = Interpolation.LISTED
    windows: tuple[Window, ...]
    """Shortest first."""
    margin: Margin = field(default_factory=Margin)
    lower: Lower = field(default_factory=Lower)
    knobs: tuple[Knob, ...] = ()
    loop: Loop = field(default_factory=Loop)
    safe_cap_watts: float
    """What the guard writes when the agent is gone."""
    lease: Lease
    lowest_draw_watts: float | None = None
    """Draw at the lowest clock, full activity and the highest temperature: no software can go below; None: unknown."""

    @property
    def enforced(self) -> tuple[Window, ...]:
        """The rows that bind, shortest first."""
        return tuple(w for w in self.windows if w.enforced)

    def is_for(self, vendor: str, sku: str) -> bool:
        """Whether it is for a GPU of this name: of the part, and of the board that the part's numbers are of."""
        words = sku.upper().replace("-", " ").split()
        return vendor == self.vendor and self.part.upper() in words and _OTHER_BOARDS.isdisjoint(words)


_SCALES = ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (math.inf, 1.0, "s"))


def window_text(seconds: float) -> str:
    """Write a window as people do: `20us`, `50ms`, `1s`."""
    per_second, unit = next((n, u) for below, n, u in _SCALES if seconds < below)
    return f"{seconds * per_second:.4g}{unit}"
