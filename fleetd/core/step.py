"""A step: what a decision answers with. A decision without a reason cannot be built."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from fleetd.model.event import Event
from fleetd.model.fleet import FleetRecord
from fleetd.model.journal import WithheldOrder
from fleetd.model.order import Order

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[S]):
    """The state after a decision, the orders that follow from it, and why."""

    state: S
    """The very same object as before when the decision changed nothing."""
    orders: tuple[Order, ...] = ()
    """To be carried out, in this order, after the step is on disk."""
    withheld: tuple[WithheldOrder, ...] = ()
    """Decided and recorded, but kept back by a budget or by the stage of the rule; never carried out later."""
    why: str
    """One line for an operator; ends up in the journal, the scheduler's reason and `fleetd host explain`."""
    refused: bool = False
    """The request was not granted and nothing changed; `why` says what is missing."""
    fleet: FleetRecord | None = None
    """The fleet's record after the decision, where it changes: a budget tripped, an incident opened, …"""
    followups: tuple[Event, ...] = ()
    """What the decision means for other hosts; judged next, each an entry of the journal of its own."""

    def __post_init__(self) -> None:
        if not self.why.strip():
            raise ValueError("a step needs a why")
