"""What the budget tree keeps of one host: its limits, its wish, and every answer that it may have taken."""

import math
from dataclasses import dataclass, field

from fleetd.model.power_lease import Ask

LEASES_KEPT = 32
"""Answers to a host that are not yet settled; beyond it the two oldest are counted as their worse one."""
UNCONFIRMED = 1 << 63
"""Above every number of a question: an answer that only lapses."""
MILLI = 1000
"""Reservations are added up in whole milliwatts: a sum that is kept up for months must not drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPower:
    """A host in the tree: its area and how far its power can go."""

    name: str
    area: str
    safe_watts: float
    """Without a lease; falls to it on its own."""
    max_watts: float
    controlled: bool = True
    """Whether something on the host holds its power to a cap. If not, it is reserved at its maximum for good."""


@dataclass(slots=True, kw_only=True)
class Given:
    """An answer that may be in force."""

    seq: int
    watts: float
    until_s: float


@dataclass(slots=True, kw_only=True)
class Book:
    """One host's page."""

    power: HostPower
    above: tuple[str, ...]
    epoch: int = -1
    seq: int = 0
    demand_watts: float = 0.0
    given: list[Given] = field(default_factory=list)
    target_watts: float = 0.0
    reserved_milliwatts: int = 0
    uncapped: str = ""
    """Why it is taken to draw its maximum."""

    @property
    def floor_watts(self) -> float:
        """What it has without any lease: nobody can take that from it."""
        return self.power.max_watts if self.uncapped else self.power.safe_watts

    @property
    def want_watts(self) -> float:
        """What it would be given if there were enough."""
        return max(self.demand_watts, self.floor_watts)

    def count(self, now_s: float) -> int:
        """Forget what has lapsed; how much more is reserved than was counted last, in milliwatts."""
        self.given = [given for given in self.given if now_s < given.until_s]
        most = max((given.watts for given in self.given), default=0.0)
        before = self.reserved_milliwatts
        # Rounded up, but not for the last bit of a number that is whole: 4096.002 x 1000 is a little above 4096002.
        self.reserved_milliwatts = math.ceil(max(self.floor_watts, most) * MILLI - 1e-6)
        return self.reserved_milliwatts - before

    def hear(self, ask: Ask) -> None:
        """Take down what a question tells."""
        if ask.epoch != self.epoch:
            # It takes no answer to an earlier start any more; but if two agents run under one name, the other one may.
            for given in self.given:
                given.seq = UNCONFIRMED
        self.epoch, self.seq = ask.epoch, ask.seq
        self.given = [given for given in self.given if given.seq >= ask.applied_seq]
        self.demand_watts = min(max(ask.demand_watts, 0.0), self.power.max_watts) if _number(ask.demand_watts) else 0.0
        if self.power.controlled:
            self.uncapped = ask.uncapped

    def renewal(self, ask: Ask) -> float:
        """What it says to hold and no more: that was paid for by whoever granted it."""
        holds = ask.holds_watts if _number(ask.holds_watts) else self.power.safe_watts
        return min(max(holds, self.power.safe_watts), self.power.max_watts)

    def give(self, new: Given) -> None:
        """Count one more answer; what it outlasts and outweighs need not be counted beside it."""
        while self.given and self.given[-1].watts <= new.watts:
            self.given.pop()
        self.given.append(new)
        if len(self.given) > LEASES_KEPT:
            old, second = self.given[0], self.given[1]
            seq = max(old.seq, second.seq)
            self.given[:2] = [Given(seq=seq, watts=max(old.watts, second.watts), until_s=second.until_s)]


def _number(watts: float) -> bool:
    return math.isfinite(watts)
