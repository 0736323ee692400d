"""Configuration of the governor; apart, since the configuration's readers need nothing else of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SOCKET = Path("/run/fleetd-power/guard.sock")
INTERVAL_S, OBSERVE_INTERVAL_S = 0.4, 1.0
"""Whoever writes has to see within 500 ms what others wrote; whoever only watches has to cost nothing."""
BUDGET_INTERVAL_MAX_S = 0.5
"""A lapsed lease of a power budget is seen in the next turn, and a hung loop five turns later by the power guard: both
within the least grace that a power tree may give."""
STALE_INTERVALS = 1.5
"""Between one and two: the turn after a renewal may be early, the second one without must not be believed."""


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
    interval_seconds: float | None = None
    """Between two looks at all limits. A change is seen within one, and the time that the driver takes. None: 0.4, and
    1.0 while nothing may be written."""
    stale_seconds: float | None = None
    """A power reading that has not been renewed for so long is none; None: one interval and a half, so that a sensor
    that stands still is found in the second turn."""
    settle_seconds: float = 10.0
    """Everything good for so long before boost."""
    temperature_max_celsius: float = 90.0
    """No boost above it."""
    host_base_watts: float | None = None
    """The most that this host draws beside its governed GPUs. With it the agent asks the controller for leases of the
    fleet's power budgets, and boosts no further than they let it; null: it takes part in none."""
    hand_over_seconds: float = 0.0
    """On a stop, the limits are kept this long for the next agent; 0: they fall to the safe cap at once. Set it on
    hosts whose service manager restarts the agent after an upgrade; the guard has a bound of its own."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.mode != "observe" and self.envelope is None:
            raise ValueError(f"mode: {self.mode} needs an envelope; name a shipped one (`fleetd power check -h`)")
        for name in ("interval_seconds", "stale_seconds", "settle_seconds", "temperature_max_celsius"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")
        if self.host_base_watts is not None:
            if self.envelope is None:
                raise ValueError("host_base_watts: without an envelope nothing is governed that a budget could bind")
            if not self.host_base_watts >= 0:
                raise ValueError(f"host_base_watts: {self.host_base_watts} is below 0")
            if self.mode != "observe" and self.interval_s > BUDGET_INTERVAL_MAX_S:
                raise ValueError(
                    f"interval_seconds: {self.interval_s:g} is too slow for host_base_watts, which allows "
                    f"{BUDGET_INTERVAL_MAX_S:g} s: a lapsed lease would be seen too late"
                )
        if not self.hand_over_seconds >= 0:
            raise ValueError(f"hand_over_seconds: {self.hand_over_seconds} is below 0")

    @property
    def stale_s(self) -> float:
        """How old a power reading may be."""
        return STALE_INTERVALS * self.interval_s if self.stale_seconds is None else self.stale_seconds

    @property
    def interval_s(self) -> float:
        """Between two looks."""
        if self.interval_seconds is not None:
            return self.interval_seconds
        return OBSERVE_INTERVAL_S if self.mode == "observe" else INTERVAL_S
