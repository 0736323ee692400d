"""Orders: what the controller wants done, each with an idempotency key.

No order is carried out because it was once issued: each is held against its host's state in the ledger right before
each attempt (`core.intent`). One to an agent besides carries its epoch (the boot) and a time after which it is void,
because the agent must be able to refuse it while nobody can be asked.
"""

from dataclasses import dataclass
from enum import StrEnum

from fleetd.model.ids import BootId, HostName, OrderId


class Drain(StrEnum):
    """How the work that is on a host leaves it, from the mildest to the most urgent. New work never comes in."""

    JOB_END = "job_end"
    """What runs may run to its end."""
    CHECKPOINT = "checkpoint"
    """Its jobs are told to leave after their next checkpoint; those that are still there after a time are sent away."""
    NOW = "now"
    """Its jobs are sent away, to start again elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Take the host away from its users (an actuator carries it out)."""

    id: OrderId
    host: HostName
    issued_at_s: float
    why: str
    drain: Drain = Drain.JOB_END


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Give the host back to its users, as far as fleetd's own hold goes (an actuator carries it out)."""

    id: OrderId
    host: HostName
    issued_at_s: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBurnin:
    """Run a burn-in level on the host (its agent carries it out)."""

    id: OrderId
    host: HostName
    issued_at_s: float
    why: str
    level: str
    boot_id: BootId
    """Epoch: the agent refuses an order that was issued for another boot."""
    not_after_s: float
    """Wall time after which the agent must not begin it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Tell a human (page, log, webhook)."""

    id: OrderId
    host: HostName
    issued_at_s: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallBurnin:
    """Stop a burn-in that an agent has accepted. Never in the ledger: it follows from the host and the kill switch."""

    order_id: OrderId
    why: str


Order = Quarantine | Release | RunBurnin | Notify
AgentOrder = RunBurnin | RecallBurnin
"""What an agent is told."""
FleetOrder = Quarantine | Release | Notify
"""Orders that the controller's actuators carry out; the rest go to the host's agent."""
