"""Whether an order is still meant, and may go out now: what was cancelled is not done late, what was stopped waits.

An order may wait for an agent or a scheduler for hours. What has been decided since then is in its host's state, on
disk: that is asked, not the order.
"""

from typing import assert_never

from fleetd.core.invariants import AUTOMATIC
from fleetd.model.fleet import Stopped
from fleetd.model.host import Host, Lifecycle
from fleetd.model.order import Notify, Order, Quarantine, RecallBurnin, Release, RunBurnin


def void_since(order: Order, host: Host | None) -> str | None:
    """Why an order is not meant any more; None when it is.

    Args:
        order: one that is open.
        host: its host as it is now; None when nobody knows it, which voids nothing that serves its users.
    """
    match order:
        case Notify():
            return None
        case Quarantine():
            if host is None or not host.held:
                return "its host was released since: the quarantine is cancelled"
        case Release():
            if host is not None and host.held:
                return f"its host is held again ({host.holds[0].owner}): the release is cancelled"
        case RunBurnin():
            return _burnin_void(order, host)
        case _:
            assert_never(order)
    return None


def void_without_node(order: Order, host: Host | None) -> str | None:
    """Why an order for the scheduler is not meant any more when it has no node of the host; None when it is.

    A host that is retired is gone, or its node is another's by now: there is nothing to close, and nobody to be told
    of it again and again. What is in service has a node, and somebody has to say which.

    Args:
        order: one that is open and not void.
        host: its host as it is now; None when nobody knows it.
    """
    if isinstance(order, Quarantine) and host is not None and host.state is Lifecycle.RETIRED:
        return "its host is retired, and the scheduler has no node of it: there is nothing to close"
    return None


def held_back(order: Order, host: Host | None, stopped: Stopped | None) -> str | None:
    """Why an order that is still meant has to wait; None when it may go out now.

    The kill switch stops what was decided before it and is not done yet. What a person asked for goes out, and so does
    what gives a host back and what tells a human.

    Args:
        order: one that is open and not void.
        host: its host as it is now; None when nobody knows it.
        stopped: the kill switch; None when automation goes on.
    """
    if stopped is None or isinstance(order, Notify | Release):
        return None
    if isinstance(order, Quarantine):
        ours = host is not None and all(hold.owner in AUTOMATIC for hold in host.holds)
        automatic = ours and host is not None and host.state is Lifecycle.QUARANTINED  # else a person works on it
    else:
        automatic = host is None or host.pending is None or not host.pending.by_operator
    return f"automation is stopped by {stopped.who}: {stopped.reason}" if automatic else None


def recalled(host: Host | None, stopped: Stopped | None) -> RecallBurnin | None:
    """The burn-in that the kill switch takes back from an agent that has it; None when there is none.

    It disturbs nobody to stop a test, and it may be the test that disturbs. One that a person asked for goes on.
    """
    pending = None if host is None else host.pending
    if stopped is None or pending is None or not pending.accepted or pending.by_operator:
        return None
    return RecallBurnin(order_id=pending.order_id, why=f"automation is stopped by {stopped.who}: {stopped.reason}")


def _burnin_void(order: RunBurnin, host: Host | None) -> str | None:
    if host is None or host.boot_id != order.boot_id:
        return "its host has rebooted since: the burn-in is cancelled"
    if host.state in {Lifecycle.REPAIRING, Lifecycle.RETIRED}:
        return f"its host is {host.state}: nothing is run on it"
    if host.pending is None or host.pending.order_id != order.id:
        return "nobody waits for it any more: the burn-in is cancelled"
    return None
