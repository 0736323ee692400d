"""The shaper: what the feed asks for besides a ceiling, as a corridor that power may not leave until the next loop.

Power is held between a floor (idle cycles are filled) and a ceiling (the clock gives way). The corridor is the
strictest of three wishes: the ramps leave the last power by no more than a period's worth; the declared floor; and the
band, whose corridor is a fixed share of the recent peak. Training in step is what makes it needed: thousands of parts
draw and release power together, once a step.

The band's corridor is a proof, not a tuning: power that stays within [m·(1 - rho), m·(1 + rho)] has, whatever its
shape, a standard deviation of at most `rho/√(1 - rho²)` of its mean (variance is at most (high - mean)·(mean - low):
Bhatia and Davis, 2000), so that √2 times it bounds the amplitude of all oscillation together, in any band. Solved for
`√2·rho/√(1 - rho²) = max_ac_ratio`: `rho = r/√(2 + r²)`.
"""

import math
from dataclasses import dataclass, replace

from fleetd.model.envelope import Lower

SAME_PEAK = 0.98
"""Power from this share of the peak on renews it: noise does not make a peak look old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShaperConfig:
    """One shaped part. Watts, seconds."""

    lower: Lower
    ceiling_watts: float
    """Never above it: the set-point that the envelope leaves."""
    fill_watts: float
    """Most that filling idle cycles can draw; a floor above it cannot be held, nor a ramp down from above it."""
    period_s: float
    """Of the loop."""

    def __post_init__(self) -> None:
        """Refuse what cannot be shaped. Raises ValueError."""
        if not 0 < self.fill_watts <= self.ceiling_watts or self.period_s <= 0:
            raise ValueError("a shaper needs 0 < fill_watts <= ceiling_watts and period_s > 0")
        if self.lower.floor_watts is not None and self.lower.floor_watts > self.fill_watts:
            raise ValueError(
                f"a floor of {self.lower.floor_watts:g} W cannot be held: filling draws {self.fill_watts:g} W at most"
            )

    @property
    def highest_watts(self) -> float:
        """What is ever let through: with a ramp down no more than filling can hold when the work ends at once."""
        return self.ceiling_watts if self.lower.ramp_down_watts_per_second is None else self.fill_watts

    @property
    def corridor_ratio(self) -> float:
        """Lowest power of the band's corridor to its highest: (1 - rho)/(1 + rho); 0 without a band."""
        if self.lower.band is None:
            return 0.0
        rho = self.lower.band.max_ac_ratio / math.sqrt(2 + self.lower.band.max_ac_ratio**2)
        return (1 - rho) / (1 + rho)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShaperState:
    """The corridor in force, and the peak that it hangs from."""

    floor_watts: float
    ceiling_watts: float
    peak_watts: float
    """Highest recent power."""
    peak_age_s: float
    """Since power was last near the peak."""
    why: str


def start(config: ShaperConfig, *, power_watts: float) -> ShaperState:
    """Begin with a part that draws this much: the corridor of one period from there."""
    fresh = ShaperState(floor_watts=0.0, ceiling_watts=0.0, peak_watts=0.0, peak_age_s=0.0, why="start")
    return shape(config, fresh, power_watts=power_watts)


def shape(config: ShaperConfig, state: ShaperState, *, power_watts: float) -> ShaperState:
    """Draw the corridor of the next period, from the power of the one that ended.

    Once no power comes near the peak for the longest period of the band, the load has gone: the peak then falls as fast
    as power may, and filling ends with it. What swings more slowly than the band is nobody's concern.
    """
    lower, period = config.lower, config.period_s
    down = _step(lower.ramp_down_watts_per_second, period)
    ceiling = min(config.highest_watts, power_watts + _step(lower.ramp_up_watts_per_second, period))
    state = _peak(config, state, power_watts, down)
    wishes = (
        (power_watts - down, "the ramp down"),
        (lower.floor_watts or 0.0, "the declared floor"),
        (config.corridor_ratio * state.peak_watts, "the band below the recent peak"),
    )
    floor, why = max(wishes)
    # The ramp up binds the floor too: filling must not rise faster than work may.
    for most, because in ((config.fill_watts, "all that filling can draw"), (ceiling, "the ceiling")):
        if floor > most:
            floor, why = most, f"{because}, where {why} would ask for {floor:.0f} W"
    return replace(
        state,
        floor_watts=max(0.0, floor),
        ceiling_watts=ceiling,
        why=f"{max(0.0, floor):.0f} to {ceiling:.0f} W; the floor is {why}",
    )


def _step(ramp_watts_per_second: float | None, period_s: float) -> float:
    return math.inf if ramp_watts_per_second is None else ramp_watts_per_second * period_s


def _peak(config: ShaperConfig, state: ShaperState, power_watts: float, down_watts: float) -> ShaperState:
    if config.lower.band is None or power_watts >= SAME_PEAK * state.peak_watts:
        return replace(state, peak_watts=max(power_watts, state.peak_watts), peak_age_s=0.0)
    age, peak = state.peak_age_s + config.period_s, state.peak_watts
    if age > 1 / config.lower.band.low_hertz:
        peak = max(power_watts, peak - down_watts)
    return replace(state, peak_watts=peak, peak_age_s=age)
