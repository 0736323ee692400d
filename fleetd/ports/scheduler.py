"""What a scheduler of jobs must offer: that orders are carried out, how hosts stand, and which jobs ended."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from fleetd.model.ids import HostName, OrderId
from fleetd.model.job import EndedJob
from fleetd.model.order import FleetOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an actuator says after an attempt at an order that did not fail."""

    order_id: OrderId
    done: bool
    """False: it is under way (jobs are leaving), and has to be looked at again."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a scheduler treats a host at this moment."""

    closed: bool
    """Whether it lets no new work start there, by whosever hand."""
    order_id: OrderId | None
    """The order of fleetd that closed it; None: none did."""
    known: bool = True
    """False: the scheduler has no node of the host; then nothing is closed there."""
    why: str = ""
    """The reason that the order left there, as far as it fitted; empty without an order."""
    other: OrderId | None = None
    """The order of fleetd about a host of another name that closed it: one was renamed, or gave its node up."""


class Actuator(Protocol):
    """Carries out fleet orders on something that schedules jobs."""

    @property
    def name(self) -> str:
        """Key of the actuator in the configuration and in metrics."""

    async def carry_out(self, order: FleetOrder) -> Receipt:
        """Carry the order out; the same order id again has no further effect. Raises ActuatorError (retried)."""

    async def standing(self, hosts: Collection[HostName]) -> Mapping[HostName, Standing]:
        """How these hosts (all that are not retired) stand; left out is who cannot be told. Raises ActuatorError."""


class JobEnds(Protocol):
    """Where the ends of jobs are heard of: the scheduler."""

    async def ended(self, hosts: Collection[HostName]) -> tuple[EndedJob, ...]:
        """Ends on these hosts since a while; the same one may be told again. Raises ActuatorError."""
