"""The slow loop: trims the average power to its target. Down at once, up slowly; the guard still disposes.

`u⁺ = u + K·(r - y)` on a plant that answers d periods late (`y_k = g·u_{k-d}`, in watts). An integrator with delay d
is stable for `0 < K·g < 2·cos(π·d/(2d+1))` (the root of `z^{d+1} - z^d + K·g` that first reaches the unit circle); K·g
is set to a quarter of that bound, so that a gain that is wrong by a factor of three does not oscillate for ever.
"""

import math
from dataclasses import dataclass, replace

GAIN_SHARE = 0.25
"""Of the stability bound."""


def stability_bound(delay_periods: int) -> float:
    """The largest stable loop gain K·g of an integrator with a delay of whole periods. Raises ValueError below 0."""
    if delay_periods < 0:
        raise ValueError("a delay has no negative periods")
    return 2.0 * math.cos(math.pi * delay_periods / (2 * delay_periods + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowConfig:
    """One trimmed part. Watts; gains are ratios."""

    target_watts: float
    """Average to reach, margin taken off."""
    delay_periods: int
    """Sensing and actuation together, in loop periods."""
    plant_gain: float = 1.0
    """Watts of power for one watt of command; the worst (largest) one that is expected."""
    low_watts: float = 0.0
    high_watts: float = math.inf
    """What may be commanded."""
    rise_watts: float = math.inf
    """The most that one period may add; falls are not limited."""

    @property
    def gain(self) -> float:
        """K."""
        return GAIN_SHARE * stability_bound(self.delay_periods) / self.plant_gain


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowState:
    """The command in force."""

    command_watts: float


def trim(config: SlowConfig, state: SlowState, *, average_watts: float, gain: float | None = None) -> SlowState:
    """One period of the slow loop. `gain` replaces K (for the negative controls of its tests).

    An average that is no number commands the lowest: what is not known must not be drawn.
    """
    if not math.isfinite(average_watts):
        return replace(state, command_watts=config.low_watts)
    change = (config.gain if gain is None else gain) * (config.target_watts - average_watts)
    change = min(change, config.rise_watts)
    command = min(config.high_watts, max(config.low_watts, state.command_watts + change))
    return replace(state, command_watts=command)
