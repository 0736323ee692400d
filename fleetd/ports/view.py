"""What the controller offers to whoever watches the fleet: that something changed, and what was read lately."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleetd.model.fleet import AreaKey
from fleetd.model.host import Host
from fleetd.model.ids import GpuId, HostName
from fleetd.model.journal import JournalEntry
from fleetd.model.telemetry import VITALS

WINDOW_METRICS = VITALS
"""Of the metric catalogue: what a short window is kept of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed since a position."""

    position: str
    """Where it ends; opaque. The same one is never given twice for different states of the fleet."""
    hosts: tuple[HostName, ...] = ()
    """Hosts that are not as they were, by name; also whose agent came or went."""
    fleet: bool = False
    """Whether the fleet's record is another one: budgets, kill switch, incidents."""
    everything: bool = False
    """The position is not remembered (too old, or another controller's): all has to be looked at anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The last readings of a host's GPUs. All series are as long as `at_s`, oldest first."""

    at_s: tuple[float, ...]
    """Wall times of the readings."""
    series: Mapping[GpuId, Mapping[str, Sequence[float | None]]]
    """GPU → metric of `WINDOW_METRICS` → readings in the metric's unit; None: not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """A rule of the policy, in words."""

    name: str
    stage: str
    """`observe`, `recommend` or `enforce`."""
    when: str
    then: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """A quarantine budget of one area, and what of it is spent."""

    key: AreaKey
    hosts: int
    """Of the area, without those that are retired."""
    held: int
    """Of them, out of service now."""
    held_max: int
    recent: int
    """Quarantines ordered within the window."""
    recent_max: int
    window_seconds: float
    tripped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """The policy in force, as far as people want to see it."""

    name: str
    rules: tuple[RuleState, ...]
    budgets: tuple[BudgetState, ...]
    """The fleet's first, then those of areas of which something is spent, the fullest first; bounded."""
    burnins: int
    """Hosts that served users and are being burnt in."""
    burnins_max: int | None
    """None: as many as may be."""


class FleetView(Protocol):
    """What a page about the fleet needs beside the `DeskDoor`.

    Everything but `unready` may raise StoreError: at a controller that does not judge now. `changed` raises it when it
    ceases to.
    """

    @property
    def position(self) -> str:
        """Changes whenever a host or the fleet's record does; opaque."""

    def since(self, position: str) -> Changes:
        """What changed since a position that was given before."""

    async def changed(self, position: str) -> None:
        """Return as soon as the present position is another one."""

    def hosts(self) -> tuple[Host, ...]:
        """All hosts, by name."""

    def host(self, name: HostName) -> Host:
        """One host. Raises Unknown."""

    def connected(self) -> frozenset[HostName]:
        """Hosts whose agent is connected."""

    def window(self, name: HostName) -> Window:
        """The last readings of a host; empty when it has sent none."""

    async def history(self, name: HostName) -> tuple[JournalEntry, ...]:
        """The newest entries of the journal about a host, newest first, at most 200. Raises Unknown, StoreError."""

    def policy(self) -> PolicyState:
        """The policy, and what is spent of its budgets."""

    def unready(self) -> str:
        """Why this controller cannot be relied on now, in one line; "": it can."""
