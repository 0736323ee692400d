"""What to do with a numbered finding: take it, drop it as a repetition, and how far to acknowledge.

One inbox exists for each (host, spool) and is nothing but the highest sequence number stored. Two facts make that
enough. A spool hands its findings out in ascending order and never reuses a number. A connection delivers an unbroken
prefix of what was sent on it, and a new connection starts with everything that is not acknowledged: so what is missing
between two arrivals is not on its way. The sender's bounded spool dropped it.
"""

from dataclasses import dataclass
from enum import StrEnum


class Decision(StrEnum):
    """What becomes of an arrival."""

    ACCEPT = "accept"
    """The next one: store it."""
    DUPLICATE = "duplicate"
    """Stored before: drop it, and acknowledge again because the first acknowledgement may have been lost."""
    GAP = "gap"
    """Store it, and count the numbers before it as lost by the sender: they will never come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The decision on one numbered finding."""

    decision: Decision
    acknowledge_seq: int
    """What may be acknowledged once the decision is on disk; it is also the inbox's new highest number stored."""
    lost: int
    """How many findings the sender dropped just before this one."""


def receive(*, stored_seq: int, seq: int) -> Arrival:
    """Decide on the finding numbered `seq` when everything up to `stored_seq` (0: nothing) is dealt with.

    Raises ValueError on a sequence number below 1, which no spool gives out.
    """
    if seq < 1 or stored_seq < 0:
        raise ValueError(f"sequence numbers start at 1: got {seq} after {stored_seq}")
    if seq <= stored_seq:
        return Arrival(decision=Decision.DUPLICATE, acknowledge_seq=stored_seq, lost=0)
    lost = seq - stored_seq - 1
    return Arrival(decision=Decision.GAP if lost else Decision.ACCEPT, acknowledge_seq=seq, lost=lost)
