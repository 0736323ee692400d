"""What the scheduler keeps closed for an order that this ledger does not have: adopted, never opened.

Its ledger is lost, or this one was put back from a backup that is older than the order. Why the host was closed stands
in no journal any more, only, cut short, beside the mark in the scheduler; what had to be proven does not. So the host
is held, for the hardest proof that the policy asks of any fault, and does not come back by itself: whoever closed it
may have been a person.
"""

from fleetd.core import storm
from fleetd.core.invariants import EARLIER, MAX_CLOSINGS, MAX_HOLDS
from fleetd.core.lifecycle import Draft, line
from fleetd.core.policy import Policy, Proof, strongest
from fleetd.model.finding import FaultClass
from fleetd.model.fleet import IncidentKind
from fleetd.model.host import Hold, Host, Lifecycle
from fleetd.model.ids import OrderId


def knows(host: Host, order_id: OrderId) -> bool:
    """Whether an order that closed the host is one of this ledger.

    The number alone does not say so: an earlier ledger gave lower ones, and one that was put back leaves numbers out.
    """
    number = int(order_id.split("/")[1])
    listed = order_id in host.closings or number < host.closings_from or not host.closings_from
    return listed and number <= host.orders_issued


def adopt(draft: Draft, order_id: OrderId, why: str) -> None:
    """Hold a host for an order that this ledger does not have. Nothing is ordered: it is closed already.

    It counts as held in the budgets, as it did when it was closed, and uses up none of what may be ordered. A human is
    told once, of all such hosts together.
    """
    host = draft.host
    reason = why or "no reason is there"
    said = f"closed in the scheduler by {order_id}, an order of fleetd that this ledger does not have: {reason}"
    old = next((hold for hold in host.holds if hold.owner == EARLIER), None)
    others = tuple(hold for hold in host.holds if hold.owner != EARLIER)
    if len(others) < MAX_HOLDS:
        proof = hardest_proof(draft.policy)
        new = Hold(
            owner=EARLIER,
            reason=line(said if old is None else f"{said}; {old.reason}"),
            evidence=(),
            gpu=None,
            fault_class=FaultClass.NONE,
            boot_id=host.boot_id,
            at_s=draft.now_s,
            proof_level=proof.level,
            after_reboot=proof.after_reboot,
        )
        draft.set(holds=(*others, new))
    draft.set(
        closings=(*host.closings, order_id)[-MAX_CLOSINGS:],
        closings_from=host.closings_from or host.orders_issued + 1,
        # A release must have a later number than what it takes back.
        orders_issued=max(host.orders_issued, int(order_id.split("/")[1])),
        proof=None,  # it may be older than the reason
        probation_until_s=None,
    )
    if host.held:
        draft.say(f"already {host.state}: {said}")
    else:
        draft.move(Lifecycle.QUARANTINED, said)
    _tell(
        draft,
        "ledger",
        what="are closed in the scheduler by a fleetd whose orders this ledger does not have",
        do=f"Was a ledger lost or put back? They are held, not opened: `fleetd hold list --owner {EARLIER}`",
    )


def hardest_proof(policy: Policy) -> Proof:
    """What proves a host cured of whatever the policy knows a proof for."""
    asked = [proof for fault_class in FaultClass if (proof := policy.proof_of(fault_class)) is not None]
    return Proof(
        level=strongest((policy.qualify.level, *(proof.level for proof in asked))),
        after_reboot=any(proof.after_reboot for proof in asked),
    )


def about(host: Host, order_id: OrderId) -> bool:
    """Whether an order is about this host."""
    return order_id.partition("/")[0] == host.name


def other(draft: Draft, order_id: OrderId, why: str) -> None:
    """Tell a human of a node that was closed for a host of another name: nobody here may say that it is this one."""
    draft.say(f"the scheduler keeps its node closed by {order_id}, an order about a host of another name: {why}")
    _tell(
        draft,
        "renamed",
        what="have a node that fleetd closed for a host of another name",
        do="Were they renamed? Deal with the reason, then open the node in the scheduler: no order of theirs does",
    )


def _tell(draft: Draft, key: str, *, what: str, do: str) -> None:
    """One incident for all hosts with this trouble."""
    weather = storm.look(
        draft.record,
        now_s=draft.now_s,
        kind=IncidentKind.EARLIER,
        key=key,
        hosts=(),
        host=draft.host.name,
        at_least=1,
        tell_again_s=draft.policy.tell_again_seconds,
        what=what,
    )
    draft.record = weather.record
    if weather.tell and weather.incident is not None:
        draft.page(f"incident {weather.incident.id}: {weather.incident.why}. {do}")
