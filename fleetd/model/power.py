"""Power limits of GPUs as they are read, who changed them, and what the governor makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleetd.model.ids import GpuId


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
