"""Leaky buckets: what an envelope compiles to, and all that a guard has to know of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """At most `rate_watts·W + depth_joules` joules in any window of W seconds."""

    name: str
    """The windows that it stands for, for people: `50ms … 1s`."""
    rate_watts: float
    depth_joules: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """A compiled envelope, margin already taken: who keeps to every bucket keeps to every window at every offset."""

    buckets: tuple[Bucket, ...]
    """Rates fall and depths grow: the first bounds the instantaneous power (depth 0), the last holds for ever."""
    sustained_watts: float
    """Rate of the last bucket, which is the lowest: constant power up to it never empties a bucket."""

    def energy_joules(self, window_s: float) -> float:
        """Most energy that the buckets let through in any window of this length (their arrival curve)."""
        return min(b.depth_joules + b.rate_watts * window_s for b in self.buckets)
