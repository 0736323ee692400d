"""What a host waits for, and what happens when it waited long enough: burn-ins, holds that expire, probation.

An agent that is away runs out of nothing: an order that never reached it uses up no attempt, and the result of one that
did is awaited after it came back.
"""

from dataclasses import replace

from burnin.levels import LEVELS
from fleetd.core import gone
from fleetd.core.evidence import advice_for, put_charges_on
from fleetd.core.invariants import FLEETD, SERVING
from fleetd.core.lifecycle import Draft, line
from fleetd.core.policy import Policy, Returns
from fleetd.model.event import Rejudged, TimePassed
from fleetd.model.host import Host, Lifecycle, PendingBurnin
from fleetd.model.ids import OrderId


def next_due_s(host: Host, policy: Policy) -> float | None:
    """The wall time at which `TimePassed` would do something for a host; None: never, as it is now."""
    if host.state is Lifecycle.RETIRED:
        return None
    times = [hold.expires_at_s for hold in host.holds if hold.expires_at_s is not None]
    if host.pending is not None:
        times.append(_overdue_at_s(host.pending, policy))
    if host.due is not None:
        times.append(host.due.not_before_s)
    if host.probation_until_s is not None:
        times.append(host.probation_until_s)
    return min(times, default=None)


def time_passed(draft: Draft, event: TimePassed) -> None:
    """Look at everything that can run out of time."""
    acted = expire_holds(draft)
    if event.connected:
        acted = run_out_of_time(draft) or acted
        due = draft.host.due
        if due is not None and draft.now_s >= due.not_before_s:
            draft.burnin(due.level, due.why)
            acted = True
    until_s = draft.host.probation_until_s
    if draft.host.state is Lifecycle.PROBATION and until_s is not None and draft.now_s >= until_s:
        draft.move(Lifecycle.HEALTHY, "the probation ended without a bad finding")
        acted = True
    if not acted:
        draft.say("nothing is due")


def again(draft: Draft, pending: PendingBurnin, why: str) -> None:
    """A burn-in led to nothing: the next attempt, or a human."""
    draft.say(why)
    draft.burnin_again(pending.level, line(why))


def refused(draft: Draft, order_id: OrderId, why: str) -> None:
    """The agent will not run it."""
    pending = draft.host.pending
    if pending is None or pending.order_id != order_id:
        draft.say(f"the agent refuses {order_id}, for which nobody waits: {why}")
        return
    again(draft, pending, f"the agent refuses {order_id}: {why}")


def accepted(draft: Draft, order_id: OrderId) -> None:
    """The agent has it on its disk: from now on it counts as an attempt."""
    pending = draft.host.pending
    if pending is None or pending.order_id != order_id:
        draft.say(f"the agent accepts {order_id}, for which nobody waits")
        return
    draft.set(pending=replace(pending, accepted=True))
    draft.say(f"the agent has {order_id} on its disk")


def run_out_of_time(draft: Draft) -> bool:
    """Deal with a pending burn-in that is overdue although the agent is there; False when none is."""
    pending = draft.host.pending
    if pending is None or draft.now_s <= _overdue_at_s(pending, draft.policy):
        return False
    if draft.record.stopped is not None and not pending.by_operator and _again_unheard(draft, "automation is stopped"):
        return True
    waited_s = draft.now_s - pending.issued_at_s
    again(draft, pending, f"{pending.order_id} has not ended {waited_s:.0f} seconds after it was ordered")
    return True


def came_back(draft: Draft) -> bool:
    """The agent is there again, same boot: its burn-in goes on, or is ordered again; False when there is nothing."""
    pending, due = draft.host.pending, draft.host.due
    if _again_unheard(draft, "the agent was away"):
        return True
    if pending is not None and pending.accepted and draft.now_s > _overdue_at_s(pending, draft.policy):
        draft.set(pending=replace(pending, awaited_until_s=draft.now_s + draft.policy.qualify.timeout_seconds))
        draft.say(f"the agent was away and is back: the result of {pending.order_id} is awaited")
        return True
    if due is not None:
        draft.burnin(due.level, due.why)
        return True
    return False


def _again_unheard(draft: Draft, reason: str) -> bool:
    """Order a burn-in again whose time ran out before the agent heard of it; False when there is none."""
    pending = draft.host.pending
    if pending is None or pending.accepted or draft.now_s <= pending.not_after_s:
        return False
    draft.set(pending=None)
    draft.say(f"{pending.order_id} never reached the agent, {reason}: no attempt is used up")
    draft.burnin(pending.level, f"again, {reason}: {pending.order_id}", by_operator=pending.by_operator)
    return True


def expire_holds(draft: Draft) -> bool:
    """Take operators' holds off that have expired; False when there are none."""
    over = [h for h in draft.host.holds if h.expires_at_s is not None and draft.now_s >= h.expires_at_s]
    if not over:
        return False
    draft.set(holds=tuple(h for h in draft.host.holds if h not in over))
    said = f"expired: {'; '.join(f'{h.owner}: {h.reason}' for h in over)}"
    if draft.host.held:
        draft.say(said)
        _return_proven(draft, said)
    elif draft.host.state is not Lifecycle.RETIRED:
        give_back(draft, said)
        if draft.host.gone:
            draft.notify(f"{said}; {gone.in_words(draft.host)}", about=f"gone/{','.join(sorted(draft.host.gone))}")
    return True


def give_back(draft: Draft, why: str) -> None:
    """The last hold is gone: give the host back, on probation unless it is proven and the policy asks for none."""
    if draft.before.held:
        draft.release(why)
    proven, watched_s = draft.host.proof is not None and not draft.host.charges, draft.policy.probation_seconds
    if proven and not watched_s:
        draft.move(Lifecycle.HEALTHY, why)
        return
    draft.set(probation_until_s=draft.now_s + watched_s if proven else None)
    # A served host is not disturbed by a burn-in; the next one that passes makes it healthy.
    until = f"for {watched_s:g} seconds" if proven else "until a burn-in passes"
    draft.move(Lifecycle.PROBATION, f"{why}; on probation {until}")


def rejudge(draft: Draft, event: Rejudged) -> None:
    """Judge the host as it is now: what still stands against it, and the burn-in that waits."""
    draft.say(event.why)
    dropped = [c for c in draft.host.charges if c.key is not None and c.key == event.acquitted]
    if dropped:
        draft.set(charges=tuple(c for c in draft.host.charges if c not in dropped))
        draft.say(f"acquitted of {', '.join(dict.fromkeys(c.hold.fault_class for c in dropped))}")
    if put_charges_on(draft):
        return
    _return_proven(draft, event.why)
    due = draft.host.due
    if due is not None:
        draft.burnin(due.level, due.why)
    elif _again_unheard(draft, "it was held back"):
        pass
    elif dropped and not draft.host.charges and draft.host.state is Lifecycle.SUSPECT and draft.host.pending is None:
        draft.burnin_for_proof("acquitted, and nothing proven yet")


def lift_proven(draft: Draft, said: str) -> None:
    """A burn-in has passed that proves everything asked for: charges go, holds may."""
    draft.set(charges=tuple(c for c in draft.host.charges if c.hold.proof_level is None))
    if draft.host.held:
        _proven(draft, said)
    elif draft.host.charges:
        draft.say(f"{said}; an operator decides about the rest: {draft.host.charges[0].hold.reason}")
    elif draft.host.state in SERVING and draft.host.probation_until_s is not None:
        draft.say(f"{said}; still on probation")
    else:
        draft.move(Lifecycle.HEALTHY, said)


def _proven(draft: Draft, said: str) -> None:
    ours = all(hold.owner == FLEETD and hold.proof_level is not None for hold in draft.host.holds)
    exhausted = _attempts_used_up(draft)
    if draft.policy.returns is Returns.AUTOMATIC and ours and not exhausted and draft.record.stopped is None:
        draft.set(holds=())
        give_back(draft, f"{said}: all holds are proven cured")
        return
    reason = f" ({exhausted})" if exhausted else ""
    draft.move(Lifecycle.QUARANTINED, f"{said}: the proof is there, an operator may release the host{reason}")


def _return_proven(draft: Draft, said: str) -> None:
    """What kept a proven host from coming back by itself is gone."""
    proven = draft.host.state is Lifecycle.QUARANTINED and draft.host.proof is not None
    if proven and draft.policy.returns is Returns.AUTOMATIC:
        _proven(draft, said)


def _attempts_used_up(draft: Draft) -> str | None:
    """Why this host does not come back by a proof alone; None when it may."""
    for hold in draft.host.holds:
        advice = advice_for(draft, hold.gpu)
        if hold.owner == FLEETD and advice.final:
            return advice.why
    return None


def _overdue_at_s(pending: PendingBurnin, policy: Policy) -> float:
    """When a burn-in should have ended: a level that is longer than the policy waits has the time that it may take."""
    wait_s, level = policy.qualify.timeout_seconds, LEVELS.get(pending.level)
    if level is not None and level.seconds > wait_s:
        wait_s = level.patience_seconds
    return max(pending.not_after_s + wait_s, pending.awaited_until_s or 0.0)
