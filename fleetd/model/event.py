"""Events: everything that can change what the controller thinks of a host. The journal is a sequence of them."""

from dataclasses import dataclass

from fleetd.model.finding import Finding
from fleetd.model.host import Hello
from fleetd.model.ids import HostName, OrderId


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConnected:
    """An agent said hello."""

    host: HostName
    hello: Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingReceived:
    """A finding arrived for the first time."""

    host: HostName
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class BurninRefused:
    """The agent will not run a burn-in that was ordered."""

    host: HostName
    order_id: OrderId
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorQuarantined:
    """An operator put a hold on the host."""

    host: HostName
    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReleased:
    """An operator asks for the host back."""

    host: HostName
    who: str
    reason: str
    override: bool
    """Lift the holds although the proof that they ask for is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """Nothing happened, but time did: pending work may have run out of it."""

    host: HostName


Event = AgentConnected | FindingReceived | BurninRefused | OperatorQuarantined | OperatorReleased | TimePassed
