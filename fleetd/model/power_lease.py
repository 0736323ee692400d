"""Leases of a power budget: what a host asks for, what it is answered, and how the budgets stand.

Such a lease lives for a minute and is the controller's. The power guard's lease of 200 ms on the host is another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetd.model.ids import HostName


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A host's question for power, and what it has in force."""

    host: str
    epoch: int
    """Grows with every start of the host's agent, so that answers to an earlier one are told apart."""
    seq: int
    """Grows with every question of the epoch, from 1."""
    demand_watts: float
    applied_seq: int
    """The newest answer in force, read back from the device; answers before it no longer count. 0: none so far."""
    holds_watts: float
    """The cap in force now."""
    safe_watts: float
    """What the host falls to without a lease."""
    uncapped: str = ""
    """Why the host holds no cap now (its governor only observes, a GPU takes no limit); "": it holds one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The controller's answer: a cap, good for `ttl_s` after the question was asked."""

    host: str
    epoch: int
    seq: int
    """Of the question."""
    watts: float
    ttl_s: float
    max_watts: float
    """The most that this host is ever granted."""
    why: str = ""
    """Why it is less than was asked for; "": it is not."""

    @property
    def whole(self) -> bool:
        """Whether it covers whatever the host can draw."""
        return self.watts >= self.max_watts


@dataclass(frozen=True, slots=True, kw_only=True)
class NoGrant:
    """The controller's other answer: this host gets no lease."""

    why: str
    budgets: bool
    """Whether the controller shares any budget out; if not, there is none that the host could overdraw."""


Answer = Grant | NoGrant


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaUse:
    """An area as it stands, in watts."""

    name: str
    parent: str | None
    budget_watts: float
    reserved_watts: float
    demand_watts: float
    stranded_watts: float
    """Reserved by leases of hosts that do not want it any more and have not yet confirmed to hold less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUse:
    """A host of the tree as it stands."""

    name: HostName
    area: str
    safe_watts: float
    max_watts: float
    reserved_watts: float
    """The most that it may be using."""
    demand_watts: float
    lease_watts: float | None
    """The newest answer that may still count; None: no lease, it is at its safe cap."""
    left_s: float | None
    """Until that answer is not counted any more."""
    uncapped: str = ""
    """Why it is reserved at its maximum; "": it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerUse:
    """A power tree as it stands."""

    areas: Sequence[AreaUse]
    hosts: Sequence[HostUse]
    settles_s: float
    """Until raises are given: what an earlier controller granted has not all lapsed yet. 0: they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """What a host's agent shows of its lease."""

    watts: float
    """The cap of the whole host: that of the lease, else the safe one."""
    safe_watts: float
    gpu_watts: float | None
    """Each governed GPU's part of it; None: no lease, the envelope's safe cap holds."""
    left_s: float
    """0: no lease."""
    demand_watts: float
    in_force_watts: float | None
    """Read back, with everything that is no GPU; None: a GPU does not tell."""
    why: str
    """Why it is less than is wanted, or why there is none; "": all is granted."""
    asked_total: int = 0
    answered_total: int = 0
    lapses_total: int = 0
