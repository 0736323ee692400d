"""A host of which the ledger knows nothing: new to the fleet, or known to a ledger that was lost."""

from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName

NUMBERS_BEGIN_S = 1_735_689_600.0
"""Wall time from which order numbers are counted: the beginning of 2025, UTC."""
NUMBER_SECONDS = 60.0
"""A host of which nothing is known begins with a number for each minute since then.

An earlier ledger may have known it. Its agent and the scheduler know the numbers that were given then, and take a new
order of the same number for a repeat: an agent does not run it, and a human is asked about each host. No ledger gives a
host an order a minute, so these numbers are later than all of them. They fit into 32 bits for 8,000 years.
"""


def unknown_host(name: HostName, now_s: float) -> Host:
    """A host of which nothing is known; `now_s`: wall time, seconds since the epoch."""
    return Host(
        name=name,
        state=Lifecycle.NEW,
        why="never heard of before",
        since_s=now_s,
        boot_id=None,
        inventory=(),
        holds=(),
        strikes=(),
        pending=None,
        proof=None,
        orders_issued=max(0, int((now_s - NUMBERS_BEGIN_S) / NUMBER_SECONDS)),
        attempts=0,
        closings_from=1,
    )
