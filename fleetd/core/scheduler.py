"""What the scheduler does with a host, held against what was ordered: people are told, and what differs is put right.

The ledger decides, not the scheduler: a host that is held is closed there, one that is not held is not closed by us.
What others closed is theirs. A person who wants a held host back releases it here, where the reason is kept. Only what
the ledger never knew is taken from the scheduler: see `earlier`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from fleetd.core import earlier
from fleetd.core.lifecycle import Draft
from fleetd.model.event import OrderObstructed, SchedulerDiffers
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName, OrderId


class Stands(Protocol):
    """How a scheduler treats a host."""

    @property
    def closed(self) -> bool:
        """Whether it lets no new work start there, by whosever hand."""

    @property
    def order_id(self) -> OrderId | None:
        """The order of fleetd that closed it."""

    @property
    def why(self) -> str:
        """The reason that order left there."""

    @property
    def other(self) -> OrderId | None:
        """The order about a host of another name that closed it."""

    @property
    def known(self) -> bool:
        """Whether the scheduler has a node of the host."""


def differences(
    hosts: Iterable[Host], standing: Mapping[HostName, Stands], busy: Collection[HostName], *, close_at_most: int
) -> tuple[SchedulerDiffers, ...]:
    """Hosts that their scheduler treats otherwise than was ordered.

    Args:
        hosts: as they are now, in the ledger.
        standing: as the scheduler has them; of one that is left out nothing can be told.
        busy: hosts with an open order, which is about to change this.
        close_at_most: so many held hosts that are open are told at once, the first by name. When very many are (the
            scheduler has lost its state, or a dry run is over), a human has the time to see it and to stop it.
    """
    found: list[SchedulerDiffers] = []
    to_close: list[SchedulerDiffers] = []
    lost: list[SchedulerDiffers] = []
    for host in hosts:
        stands = standing.get(host.name)
        if stands is None or host.name in busy or host.state is Lifecycle.RETIRED:
            continue
        # Who repairs a host may let work start on it to see whether it runs; it is looked at when he has ended that.
        if host.held and not stands.closed and host.state is not Lifecycle.REPAIRING:
            (to_close if stands.known else lost).append(
                SchedulerDiffers(host=host.name, closed=False, known=stands.known)
            )
        elif stands.closed and (by := stands.order_id) is not None and not (host.held and earlier.knows(host, by)):
            found.append(SchedulerDiffers(host=host.name, closed=True, order_id=by, why=stands.why))
        elif stands.closed and stands.other is not None and not host.held:
            found.append(SchedulerDiffers(host=host.name, closed=True, order_id=stands.other, why=stands.why))
    return (*found, *sorted(to_close, key=lambda differs: differs.host)[:close_at_most], *lost)


def obstructed(draft: Draft, event: OrderObstructed) -> None:
    """Tell a human that an order is not carried out, and why; it stays open."""
    kind = event.order_id.rpartition("/")[2]
    draft.notify(f"{event.order_id} is not carried out yet: {event.why}", about=f"order/{kind}")
    draft.say(f"{event.order_id} is obstructed: {event.why}")


def differs(draft: Draft, event: SchedulerDiffers) -> None:
    """Order again what the scheduler has lost, or what somebody has undone there; adopt what the ledger has lost."""
    if event.order_id is not None and not earlier.about(draft.host, event.order_id):
        earlier.other(draft, event.order_id, event.why)
        return
    if event.order_id is not None and not earlier.knows(draft.host, event.order_id):
        earlier.adopt(draft, event.order_id, event.why)
        return
    if event.closed is draft.host.held:
        draft.say("the scheduler and the ledger agree again")
        return
    if event.closed:
        draft.release("the scheduler still keeps work from the host for an order of fleetd, and no hold is on it")
        draft.say("no hold is on the host, and the scheduler is told so again")
        return
    if not event.known:
        # No order: there is nothing to close. Should the node come back open, that is a difference of its own.
        said = "the scheduler knows no node of the host, which is held: whatever it was renamed to may be given work"
        draft.say(said)
        draft.notify(
            f"{said}; name it in `actuator: hosts: nodes`, or say that it is gone (`fleetd host repair` or `retire`)",
            about="scheduler/lost",
        )
        return
    reasons = "; ".join(dict.fromkeys(hold.reason for hold in draft.host.holds))
    said = "the scheduler lets work start on the host although it is held"
    draft.say(f"{said}: it is closed again")
    draft.issue(draft.quarantine_order(f"{said}: {reasons}"))
    draft.notify(
        f"{said}: it is closed again; to have it back, release it here (`fleetd host release`), not there",
        about="scheduler",
    )
