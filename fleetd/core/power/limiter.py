"""A vendor's own power limiter, as numbers: what an H200 does by itself, without anything being set.

Two loops, as the measured boost profile shows them: a fast one on filtered power that lets a burst run at the full
clock until the filter has filled and then slides the clock down at a limited pace, and a slow one on the average over
a second (proportional above the limit, plus an integral that gives back faster than it takes), which undershoots once
the first second of a burst has passed and settles within some seconds. `fleetd.sim.limiter` runs them. Watts, hertz,
seconds.
"""

from dataclasses import dataclass

from fleetd.core.power.chip import Chip


@dataclass(frozen=True, slots=True, kw_only=True)
class Limiter:
    """The firmware's loops; fitted, not documented."""

    limit_watts: float
    """What the average over `box_s` is trimmed to."""
    fast_watts: float
    """Filtered power above which the fast loop lowers the clock."""
    filter_s: float
    fast_hertz_per_watt: float
    fall_hertz_per_second: float
    rise_hertz_per_second: float
    box_s: float
    slow_hertz_per_watt: float
    """Integral: what a watt of average above the limit adds to the trim, each period."""
    recover_hertz_per_watt: float
    """The same for a watt below the limit, taken off the trim."""
    over_hertz_per_watt: float
    """Proportional: taken off at once for a watt of average above the limit."""
    slow_hertz: float
    """The most that the integral takes off."""
    period_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRate:
    """Rate of a kind of work over the clock: `1 / (bound / f + rest)`: a part that scales, a part that does not."""

    bound: float
    """Hertz per unit of rate."""
    rest: float
    """Per unit of rate."""
    launch_s: float
    """Lost at the start of each burst after a rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedPart:
    """A chip, its limiter, and the work it does. Activity 1 is the work, `low` what runs between bursts."""

    name: str
    chip: Chip
    limiter: Limiter
    work: WorkRate
    low: float
    step_s: float
