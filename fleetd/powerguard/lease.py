"""The lease on limits above the safe cap: until when it lives. Pure; times are those of one monotonic clock.

A lease counts from when its renewal was *sent*: one that waited in a buffer, while its sender was stopped or the guard
was being replaced, is worth only what is left of it, and none is lost because the guard read it late.
"""

import math
from dataclasses import dataclass, replace

AHEAD_MAX_S = 1.0
"""A renewal from further in the future comes from another clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease as it stands."""

    ttl_s: float
    grace_s: float
    sent_s: float
    """When the newest renewal was sent."""
    hand_over_until_s: float = -math.inf
    """Until then nobody need renew: one agent is being replaced by the next."""

    def __post_init__(self) -> None:
        """Refuse what is no lease. Raises ValueError."""
        if not (0.01 <= self.ttl_s <= 60.0 and 0.0 <= self.grace_s <= 10.0):  # noqa: PLR2004 - the bounds are said here
            raise ValueError(f"a lease of {self.ttl_s:g} s and a grace of {self.grace_s:g} s: 0.01 to 60, and 0 to 10")

    @property
    def until_s(self) -> float:
        """It has lapsed after this."""
        return max(self.sent_s + self.ttl_s + self.grace_s, self.hand_over_until_s)

    def live(self, now_s: float) -> bool:
        """Whether limits above the safe cap may stand."""
        return now_s <= self.until_s

    def renewed(self, now_s: float, sent_s: float) -> "Lease":
        """The lease after a renewal. Raises ValueError when it was sent by another clock."""
        if sent_s > now_s + AHEAD_MAX_S:
            raise ValueError(f"sent {sent_s - now_s:.1f} s in the future: agent and guard need one time namespace")
        return replace(self, sent_s=max(self.sent_s, min(sent_s, now_s)))

    def handed_over(self, now_s: float, seconds: float, *, at_most_s: float) -> "Lease":
        """The lease while its holder is being replaced. Raises ValueError on a time that is none."""
        if not 0 < seconds < math.inf:
            raise ValueError("seconds: must be above 0")
        return replace(self, hand_over_until_s=now_s + min(seconds, at_most_s))
