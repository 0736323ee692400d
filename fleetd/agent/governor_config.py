"""Configuration of the governor; apart, since the configuration's readers need nothing else of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SOCKET = Path("/run/fleetd-power/guard.sock")


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernorConfig:
    """What the agent may do about power. By default it changes nothing."""

    mode: Literal["observe", "safe", "boost"] = "observe"
    """The highest mode. `observe`: limits are read and drift is told; `safe`: the envelope's safe cap is kept;
    `boost`: the tuned set-point, while everything is known to be good."""
    envelope: str | None = None
    """A shipped envelope or the path of one; needed above `observe`. None: power is not looked at at all."""
    set_point: Path | None = None
    """What `fleetd power tune` stored; without one that holds there is no boost."""
    guard: Path = SOCKET
    """Where the power guard listens, which alone writes limits."""
    interval_seconds: float = 0.4
    """Between two looks at all limits. A change is seen within one, and the time that the driver takes."""
    settle_seconds: float = 10.0
    """Everything good for so long before boost."""
    temperature_max_celsius: float = 90.0
    """No boost above it."""
    hand_over_seconds: float = 0.0
    """On a stop, the limits are kept this long for the next agent; 0: they fall to the safe cap at once. Set it on
    hosts whose service manager restarts the agent after an upgrade; the guard has a bound of its own."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.mode != "observe" and self.envelope is None:
            raise ValueError(f"mode: {self.mode} needs an envelope; name a shipped one (`fleetd power check -h`)")
        for name in ("interval_seconds", "settle_seconds", "temperature_max_celsius"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")
        if not self.hand_over_seconds >= 0:
            raise ValueError(f"hand_over_seconds: {self.hand_over_seconds} is below 0")
