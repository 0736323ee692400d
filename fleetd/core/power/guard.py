"""The guard: the largest clock that no bucket can regret before the next decision. It disposes; others propose.

One step, robust: every bucket is carried through the command that is still in flight at worst-case activity, then the
new command is granted what keeps every bucket non-negative for one loop period at worst-case activity:
`x_j + (r_j - P(f, 1))·Tc >= 0` for all j. If the lowest clock's worst draw is below every rate (which the compiler
requires), a state with no negative bucket always leads to another one: no window is ever exceeded, whatever the load.
"""

import math
from dataclasses import dataclass, replace

from fleetd.core.power.buckets import Bucket
from fleetd.core.power.chip import Chip


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardConfig:
    """One guarded part. Seconds, ratios."""

    chip: Chip
    buckets: tuple[Bucket, ...]
    """Of the compiled envelope, margins taken off."""
    period_s: float
    """Between two decisions."""
    dead_s: float
    """From a decision until the clock follows; shorter than a period."""

    def __post_init__(self) -> None:
        if not self.buckets:
            raise ValueError("a guard without buckets guards nothing")
        if not 0.0 <= self.dead_s <= self.period_s or self.period_s <= 0.0:
            raise ValueError("a guard needs 0 <= dead_s <= period_s and period_s > 0")
        floor = self.chip.power_watts(self.chip.clock_min_hertz, 1.0)
        slowest = min(bucket.rate_watts for bucket in self.buckets)
        if floor > slowest:
            raise ValueError(
                f"the lowest clock draws {floor:.0f} W, above the {slowest:.0f} W that are granted for ever"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """What the guard knows between two decisions."""

    levels_joules: tuple[float, ...]
    """What is left in each bucket now, in the order of the configuration."""
    clock_hertz: float
    """The clock in force until the next command takes effect."""
    why: str = "full buckets"


def start(config: GuardConfig, *, full: bool = False) -> GuardState:
    """A state to begin with: empty buckets (the past is unknown), or full ones after a known idle second."""
    levels = tuple(bucket.depth_joules if full else 0.0 for bucket in config.buckets)
    return GuardState(levels_joules=levels, clock_hertz=config.chip.clock_min_hertz, why="start")


def spend(config: GuardConfig, state: GuardState, *, power_watts: float, seconds: float) -> GuardState:
    """Carry the buckets through a measured stretch of constant power; a full bucket stays full.

    A reading that is no power (NaN, infinite, nothing or less: a powered part leaks) counts as the most that the part
    can draw: what is not known must not fill a bucket.
    """
    if not (math.isfinite(power_watts) and power_watts > 0):
        power_watts = config.chip.power_watts(config.chip.clock_max_hertz, 1.0)
    levels = tuple(
        min(bucket.depth_joules, level + (bucket.rate_watts - power_watts) * seconds)
        for bucket, level in zip(config.buckets, state.levels_joules, strict=True)
    )
    return replace(state, levels_joules=levels)


def allowance(config: GuardConfig, state: GuardState) -> tuple[float, Bucket]:
    """The power (watts, worst-case activity) that one more period may draw, and the bucket that says so."""
    in_flight = config.chip.power_watts(state.clock_hertz, 1.0)
    best: tuple[float, Bucket] | None = None
    for bucket, level in zip(config.buckets, state.levels_joules, strict=True):
        then = min(bucket.depth_joules, level + (bucket.rate_watts - in_flight) * config.dead_s)
        watts = bucket.rate_watts + then / config.period_s
        if best is None or watts < best[0]:
            best = (watts, bucket)
    assert best is not None  # noqa: S101 - the configuration has a bucket
    return best


def dispose(config: GuardConfig, state: GuardState, *, proposal_hertz: float) -> GuardState:
    """Grant a proposed clock as far as the buckets allow; the state's `why` says what bound it."""
    watts, bucket = allowance(config, state)
    most = config.chip.clock_hertz(watts, 1.0)
    clock = max(config.chip.clock_min_hertz, min(proposal_hertz, most))
    if proposal_hertz <= most:
        why = f"{clock / 1e6:.0f} MHz as proposed; {watts:.0f} W would be allowed"
    else:
        why = f"{clock / 1e6:.0f} MHz: bucket {bucket.name} allows {watts:.0f} W for {config.period_s * 1e3:g} ms"
    return replace(state, clock_hertz=clock, why=why)
