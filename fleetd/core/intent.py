"""Whether an order is still meant, asked right before it is carried out: what was cancelled is not done late.

An order may wait for an agent or a scheduler for hours. What has been decided since then is in its host's state, on
disk: that is asked, not the order.
"""

from typing import assert_never

from fleetd.model.host import Host, Lifecycle
from fleetd.model.order import Notify, Order, Quarantine, Release, RunBurnin


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


def _burnin_void(order: RunBurnin, host: Host | None) -> str | None:
    if host is None or host.boot_id != order.boot_id:
        return "its host has rebooted since: the burn-in is cancelled"
    if host.state in {Lifecycle.REPAIRING, Lifecycle.RETIRED}:
        return f"its host is {host.state}: nothing is run on it"
    if host.pending is None or host.pending.order_id != order.id:
        return "nobody waits for it any more: the burn-in is cancelled"
    return None
