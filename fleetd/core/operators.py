"""What operators ask for: hold, release, burn in, repair, swap, retire. A reason is part of every request."""

from fleetd.core.gone import in_words
from fleetd.core.invariants import AUTOMATIC, MAX_HOLDS, OUT_OF_SERVICE, SERVING
from fleetd.core.lifecycle import Draft, line
from fleetd.core.policy import covers, strongest
from fleetd.core.step import Step
from fleetd.core.waiting import give_back
from fleetd.model.event import (
    GpuSwapped,
    LedgerRestored,
    OperatorBurnin,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepaired,
    OperatorRepairs,
    OperatorRetires,
)
from fleetd.model.finding import FaultClass
from fleetd.model.host import Hold, Host, Lifecycle
from fleetd.model.order import Drain


def quarantines(draft: Draft, event: OperatorQuarantined) -> Step[Host]:
    """Put the operator's hold on the host."""
    if event.expires_at_s is not None and event.expires_at_s <= draft.now_s:
        return draft.refusal("the hold would expire before it begins")
    refusal = _take(draft, event.who, event.reason, expires_at_s=event.expires_at_s, drain=event.drain)
    if refusal is not None:
        return draft.refusal(refusal)
    owner, reason = f"operator:{line(event.who)}", line(event.reason)
    if draft.before.held:
        draft.say(f"{owner} holds the host too: {reason}")
    else:
        draft.move(Lifecycle.QUARANTINED, f"{owner} holds the host: {reason}")
    return draft.step()


def releases(draft: Draft, event: OperatorReleased) -> Step[Host]:
    """Lift all holds or none; a host that is not held can be declared fit by an override."""
    host, owner = draft.host, f"operator:{line(event.who)}"
    if host.state in SERVING:
        return draft.refusal(f"the host is {host.state}: there is nothing to release")
    if host.state is Lifecycle.RETIRED:
        if not event.override:
            return draft.refusal("the host is retired; an override with a reason takes it back, to be proven")
        draft.move(Lifecycle.REPAIRING, f"{owner} takes the host back into the fleet: {line(event.reason)}")
        return draft.step()
    missing = [why for hold in host.holds if (why := _missing(hold, host, owner))]
    missing += [f"it is charged: {charge.hold.reason}" for charge in host.charges]
    if not host.held:
        missing = [f"no hold is on it; it is {host.state} ({host.why}) and needs a passing burn-in", *missing]
    if host.gone:
        missing.append(in_words(host))
    if missing and not event.override:
        return draft.refusal(f"not released: {'; '.join(missing)}; an override with a reason lifts it all the same")
    said = f"{owner} releases the host{', overriding' if missing else ''}: {line(event.reason)}"
    if missing:
        said = f"{said} (missing: {'; '.join(missing)})"
    # Whoever overrides takes the host as it is: what is gone is not awaited any more.
    draft.set(holds=(), charges=(), gone=())
    give_back(draft, said)
    return draft.step()


def burnin(draft: Draft, event: OperatorBurnin) -> Step[Host]:
    """Run a burn-in now; also what proves a repaired part without a reboot, and what ends a repair."""
    host, owner = draft.host, f"operator:{line(event.who)}"
    level = event.level if event.level is not None else strongest(draft.asked_levels())
    if host.boot_id is None:
        return draft.refusal("its agent has never said hello: there is nobody to run a burn-in")
    if host.pending is not None and covers(host.pending.level, level):
        return draft.refusal(f"burn-in {host.pending.order_id} (`{host.pending.level}`) is under way")
    said = f"{owner} orders a burn-in: {line(event.reason)}"
    draft.set(attempts=0)
    if host.state in OUT_OF_SERVICE and (objection := draft.objection_to_proof(level)):
        draft.say(f"{said}; it will prove nothing: {objection}")
    elif host.state is Lifecycle.REPAIRING:
        draft.move(Lifecycle.QUALIFYING, f"{said}; repaired, to be proven")
    else:
        draft.say(said)
    if draft.host.state is Lifecycle.REPAIRING:
        draft.move(Lifecycle.QUARANTINED, "the repair is over")
    draft.burnin(level, said, by_operator=True)
    return draft.step()


def repairs(draft: Draft, event: OperatorRepairs) -> Step[Host]:
    """Leave the host to a person: nothing is run on it, its holds stay."""
    if draft.host.state is Lifecycle.REPAIRING:
        return draft.refusal(f"it is under repair already: {draft.host.why}")
    if not draft.host.held:
        refusal = _take(draft, event.who, event.reason, expires_at_s=None)
        if refusal is not None:
            return draft.refusal(refusal)
    draft.set(pending=None, due=None, attempts=0)
    draft.move(Lifecycle.REPAIRING, f"operator:{line(event.who)} repairs it: {line(event.reason)}")
    return draft.step()


def repaired(draft: Draft, event: OperatorRepaired) -> Step[Host]:
    """A repair is over: the burn-in that proves the host, or why there is none yet."""
    host = draft.host
    if host.state is not Lifecycle.REPAIRING:
        return draft.refusal(f"the host is {host.state}, not under repair: `repair` begins one")
    if host.boot_id is None:
        return draft.refusal("its agent has never said hello: there is nobody to run a burn-in")
    return burnin(draft, OperatorBurnin(host=event.host, who=event.who, reason=f"repaired: {event.reason}", level=None))


def swapped(draft: Draft, event: GpuSwapped) -> Step[Host]:
    """Take note of an exchanged GPU. What the old one is accused of stays with its serial, and the hold until a proof.

    The host is believed over the operator: an agent that still lists the old GPU, and was heard since, refutes him.
    """
    old, new = line(event.old), line(event.new)
    if old == new:
        return draft.refusal(f"gpu {old} cannot replace itself")
    if draft.host.state in SERVING:
        return draft.refusal(f"the host is {draft.host.state}: take it out of service before GPUs are swapped")
    others = [name for name in draft.fleet.claims(event.new) if name != draft.host.name]
    if others:
        return draft.refusal(f"gpu {new} is in {', '.join(others)}, as its agent says")
    listed = {gpu.gpu for gpu in draft.host.inventory}
    if not {event.old, event.new} & listed and not any(mark.gpu == event.old for mark in draft.host.marks):
        return draft.refusal(f"neither gpu {old} nor gpu {new} was ever seen in this host")
    accused = draft.fleet.open_holds(event.new, elsewhere_than=draft.host.name)
    draft.set(proof=None)
    draft.say(f"operator:{line(event.who)} swapped gpu {old} for {new}: {line(event.reason)}")
    if accused:
        draft.say(f"the new one is accused elsewhere: {accused[0].reason}")
    return draft.step()


def restored(draft: Draft, event: LedgerRestored) -> Step[Host]:
    """Leave out the numbers of orders that were given after the backup and are forgotten since."""
    given = draft.host.orders_issued
    # What closes the host by one of the numbers left out is not known here, and is adopted (`core.earlier`).
    draft.set(orders_issued=given + max(event.orders_skipped, 0), closings_from=draft.host.closings_from or given + 1)
    draft.say(f"operator:{line(event.who)} put the ledger back from a backup: {line(event.reason)}")
    return draft.step()


def retires(draft: Draft, event: OperatorRetires) -> Step[Host]:
    """Take the host out for good; the hold keeps the scheduler from giving it work."""
    refusal = _take(draft, event.who, event.reason, expires_at_s=None)
    if refusal is not None:
        return draft.refusal(refusal)
    draft.set(pending=None, due=None, attempts=0, charges=(), ballots=(), silent=None, probation_until_s=None)
    draft.move(Lifecycle.RETIRED, f"operator:{line(event.who)} retires it: {line(event.reason)}")
    return draft.step()


def _take(draft: Draft, who: str, reason: str, *, expires_at_s: float | None, drain: Drain | None = None) -> str | None:
    """Put a hold of this operator on the host, in place of his last one; returns why that is not possible."""
    owner, reason = f"operator:{line(who)}", line(reason)
    others = tuple(hold for hold in draft.host.holds if hold.owner != owner)
    if len(others) >= MAX_HOLDS:
        return f"{MAX_HOLDS} holds are on the host already; it is out of service"
    hold = Hold(
        owner=owner,
        reason=reason,
        evidence=(),
        gpu=None,
        fault_class=FaultClass.NONE,
        boot_id=draft.host.boot_id,
        at_s=draft.now_s,
        proof_level=None,
        expires_at_s=expires_at_s,
    )
    if not draft.host.held or drain is not None:  # a host that is closed already: its jobs are to leave otherwise
        draft.issue(draft.quarantine_order(f"{owner}: {reason}", drain))
    draft.set(holds=(*others, hold), probation_until_s=None)
    return None


def _missing(hold: Hold, host: Host, owner: str) -> str | None:
    """What this hold still asks for when this operator wants the host back."""
    if hold.owner in AUTOMATIC:
        if hold.proof_level is None or host.proof is not None:
            return None
        after = " after a reboot" if hold.after_reboot else ""
        return f"a passing `{hold.proof_level}` burn-in of this boot{after} ({hold.reason})"
    return None if hold.owner == owner else f"{hold.owner} holds it: {hold.reason}"
