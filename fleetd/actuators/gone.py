"""What emptying a node is on every scheduler: whether all has left, and until when jobs may stay."""

from dataclasses import dataclass
from datetime import UTC, datetime

from fleetd.model.order import Quarantine


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """Whether all that has to leave has left."""

    done: bool
    why: str


def leave_by_s(order: Quarantine, checkpoint_seconds: float) -> float:
    """Wall time after which jobs are sent away that were told to leave at their next checkpoint."""
    return order.issued_at_s + checkpoint_seconds


def rfc3339(at_s: float) -> str:
    """A wall time as schedulers and their users read it, in UTC and whole seconds."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
