"""Power limits of GPUs as they are read, who changed them, and what the governor makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleetd.model.ids import GpuId
from fleetd.model.power_lease import LeaseStatus


class Writer(StrEnum):
    """Whose doing a limit is. A closed set: it is a label of a metric."""

    GUARD = "guard"
    """The power guard's fall to the safe cap."""
    FOREIGN = "foreign"
    """Another program on this host, through the driver."""
    OUT_OF_BAND = "out_of_band"
    """Past the driver: the board management controller, or the rack's."""
    DRIVER_RELOAD = "driver_reload"
    """The driver was loaded anew, and with it the default came back."""
    NOT_TAKEN = "not_taken"
    """What was written reads back different: the driver or the firmware did not take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobReading:
    """One limit of a GPU. Watts; None: not told."""

    knob: str
    """As in `fleetd.model.envelope.Knob`."""
    set_watts: float | None
    low_watts: float | None
    high_watts: float | None
    default_watts: float | None = None
    """In force after the driver was loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReading:
    """What a driver tells of one GPU's power. None: not told."""

    gpu: GpuId
    at_s: float
    """Monotonic time of the reading."""
    knobs: tuple[KnobReading, ...]
    enforced_watts: float | None
    """The lowest of all limits, those that were set past the driver, too."""
    power_watts: float | None
    temperature_celsius: float | None
    brake: bool
    """The hardware's power brake is on."""
    locked: str = ""
    """Why the limits of this GPU cannot be written, as far as that can be told before; "": they may."""
    energy_joules: float | None = None
    """Since the driver was loaded; only when it was asked for: it costs milliseconds."""
    clock_hertz: float | None = None
    """Of the cores, now; of a part whose clock can be locked."""
    mark: float | None = None
    """Changes whenever the sensor renews its value, so that one that stands still shows; None: it does not tell."""
    samples: Sequence[tuple[float, float]] = ()
    """New entries of the part's own ring of power samples, oldest first: (seconds on the driver's clock, watts). Only
    when they were asked for, and of a part that has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A limit that is not what was written."""

    writer: Writer
    knob: str
    """"" when it is the enforced one."""
    from_watts: float
    to_watts: float

    @property
    def raised(self) -> bool:
        """Whether more is allowed than was."""
        return self.to_watts > self.from_watts

    def __str__(self) -> str:
        """One line for an operator."""
        who = {
            Writer.GUARD: "the power guard fell to the safe cap",
            Writer.FOREIGN: "another program on this host",
            Writer.OUT_OF_BAND: "something past the driver (out of band)",
            Writer.DRIVER_RELOAD: "a reload of the driver",
            Writer.NOT_TAKEN: "the write was not taken",
        }[self.writer]
        return f"{self.knob or 'enforced'} limit {self.from_watts:g} W is {self.to_watts:g} W: {who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSeen:
    """One GPU's power in the last minute, from the finest samples that are read. None: they are not fine enough.

    A minute, since nobody scrapes more rarely: nothing happens between two scrapes that neither of them shows.
    """

    spacing_s: float
    """Of the samples."""
    windows_watts: Mapping[str, float]
    """Highest average over any window of each of the envelope's lengths, by the row's label."""
    swing_watts: float
    """Highest sample less lowest."""
    ramp_up_watts_per_second: float | None
    """Steepest rise within 100 ms."""
    ramp_down_watts_per_second: float | None
    """Steepest fall within 100 ms, as a positive number."""
    band_ratio: float | None
    """Amplitude of all oscillation inside the envelope's band together, to the mean; None, too: it declares none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowShown:
    """One row of the envelope as it is shown beside what was seen."""

    label: str
    over_s: float
    allowed_ratio: float | None
    """Of the TBP, margin taken; None: nobody published it, or another row replaces it."""
    certified: bool
    """Something is fast enough to hold it, by proof; else whether it is audited depends on the samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPower:
    """One GPU under the governor."""

    gpu: GpuId
    mode: str
    why: str
    targets_watts: Mapping[str, float]
    """What the governor wants in force, by knob; empty while it only observes."""
    set_watts: Mapping[str, float]
    enforced_watts: float | None
    power_watts: float | None
    writer: str = ""
    """Who moved a limit that is not ours now; "": nobody."""
    defaults_watts: Mapping[str, float] = field(default_factory=dict)
    """In force after the driver was loaded, by knob."""
    clock_limit_hertz: float | None = None
    """Highest clock that the guard has locked; None: none."""
    smoothing_lost: bool | None = None
    """Whether the part's power-smoothing hardware has dropped out; None: it has not spoken of it."""
    seen: PowerSeen | None = None
    sights: Mapping[str, str] = field(default_factory=dict)
    """How well each of the envelope's windows is kept, by label: `certified`, `audited` or `unobservable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerStatus:
    """The governor as a whole."""

    allowed: str
    envelope: str
    set_point: str
    """Why the tuned set-point is in use or is not."""
    lease_live: bool
    lease_why: str
    renewed_total: int = 0
    program_replaced: bool = False
    """The guard's program on disk is not the one that runs."""
    gpus: Sequence[GpuPower] = ()
    writes_total: int = 0
    write_errors_total: int = 0
    drift_total: Mapping[str, int] = field(default_factory=dict)
    """By writer."""
    tbp_watts: float = 0.0
    unenforceable: str = ""
    """Why the envelope can only be looked at, so that `safe` and `boost` are refused; "": it can be kept."""
    budget: LeaseStatus | None = None
    """The host's part of the fleet's power budgets; None: it takes part in none."""
    windows: Sequence[WindowShown] = ()
    """Shortest first."""
