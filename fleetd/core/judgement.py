"""The judgement on one host: event in, step out. Every change of a host's lifecycle is decided here or in `evidence`.

    new ─hello→ qualifying ─pass→ healthy            a bad finding makes any of them suspect, a pass healthy again
    any of these ─quarantine→ quarantined ─release with proof→ healthy
                                          ─release without→ probation ─pass→ healthy

What is always true is asserted in `lifecycle.check`; what a bad finding does is in `evidence`.
"""

from typing import assert_never

from fleetd.core import evidence
from fleetd.core.budget import OUT_OF_SERVICE, FleetView
from fleetd.core.lifecycle import FLEETD, MAX_HOLDS, SERVING, Draft, line, unknown_host
from fleetd.core.policy import Policy
from fleetd.core.step import Step
from fleetd.model.event import (
    AgentConnected,
    BurninRefused,
    Event,
    FindingReceived,
    OperatorQuarantined,
    OperatorReleased,
    TimePassed,
)
from fleetd.model.finding import BurninEnded, FaultClass, Finding, Verdict
from fleetd.model.host import Hello, Hold, Host, Lifecycle, PendingBurnin
from fleetd.model.ids import OrderId


def judge(*, now_s: float, host: Host | None, event: Event, fleet: FleetView, policy: Policy) -> Step[Host]:
    """Decide what an event means for a host.

    Pure: the same arguments give the same step, down to the ids of the orders.

    Args:
        now_s: wall time of the controller, seconds since the epoch.
        host: the host as it was left by the last step; None when it is unknown.
        event: what happened to the host.
        fleet: the counts for the budget, without this event.
        policy: the site's policy.

    Returns:
        The step. Its state is the same object as `host` when nothing changed; a refused step must not be stored for
        a host that was unknown.

    Raises:
        ValueError: the event is about another host; the caller mixed them up.
    """
    if host is not None and host.name != event.host:
        raise ValueError(f"an event of {event.host} was handed to the judgement on {host.name}")
    draft = Draft(host if host is not None else unknown_host(event.host, now_s), now_s=now_s, policy=policy)
    objection = _inadmissible(host, event)
    if objection is not None:
        return draft.refusal(objection)
    match event:
        case AgentConnected():
            _connected(draft, event.hello)
        case FindingReceived():
            _found(draft, event.finding, fleet)
        case BurninRefused():
            _burnin_refused(draft, event.order_id, event.why)
        case OperatorQuarantined():
            return _operator_quarantines(draft, event)
        case OperatorReleased():
            return _operator_releases(draft, event)
        case TimePassed():
            if not _ran_out_of_time(draft):
                draft.say("nothing is due")
        case _:
            assert_never(event)
    return draft.step()


def _inadmissible(host: Host | None, event: Event) -> str | None:
    """Why an event is recorded and changes nothing, whatever the policy says."""
    if host is None and not isinstance(event, AgentConnected | FindingReceived):
        return f"no host `{event.host}` is known: its agent must connect once"
    if host is not None and host.state is Lifecycle.RETIRED:
        return "the host is retired: the event is recorded and changes nothing"
    if isinstance(event, FindingReceived) and event.finding.host != event.host:
        return f"a finding about {event.finding.host} came from {event.host}: it counts for neither"
    return None


# ── the agent says hello ────────────────────────────────────────────────────────────────────────────────────────────


def _connected(draft: Draft, hello: Hello) -> None:
    before = draft.host
    known, found = {g.gpu for g in before.inventory}, {g.gpu for g in hello.inventory}
    if before.boot_id != hello.boot_id or before.inventory != hello.inventory:
        draft.set(boot_id=hello.boot_id, inventory=hello.inventory)
    if before.state is Lifecycle.NEW:
        draft.move(Lifecycle.QUALIFYING, f"first contact: {len(found)} GPUs, nothing proven yet")
        draft.burnin_for_proof("a new host must qualify")
        return
    if before.boot_id == hello.boot_id and known == found:
        if not _ran_out_of_time(draft):
            draft.say("connected again: same boot, same GPUs, nothing new")
        return
    # What passed or runs belongs to another boot or to other GPUs.
    draft.set(proof=None, pending=None, attempts=0)
    changes = ["it has rebooted" if before.boot_id else "its first hello"] if before.boot_id != hello.boot_id else []
    lost, new = sorted(known - found), sorted(found - known)
    changes += [f"GPUs are gone: {', '.join(lost)}"] if lost else []
    changes += [f"GPUs are new: {', '.join(new)}"] if new and known else []
    said = line(" and ".join(changes) or "its inventory is known now")
    if lost and before.state not in OUT_OF_SERVICE:
        draft.notify(f"{said}: fewer GPUs must not pass for a healthy host")
    _start_again(draft, said, gpus_changed=known != found)


def _start_again(draft: Draft, said: str, *, gpus_changed: bool) -> None:
    """Ask for the proof that a new boot or other GPUs make necessary. A reboot cures nothing by itself."""
    state = draft.host.state
    if state in SERVING:
        if not gpus_changed and not draft.policy.requalify_after_reboot:
            draft.say(f"{said}: still {state}, the policy asks for no requalification after a reboot")
            return
        draft.move(Lifecycle.QUALIFYING, f"{said}: must qualify again")
        draft.burnin_for_proof(said)
    elif state not in OUT_OF_SERVICE:
        draft.say(f"{said}: still {state} until it has proven itself")
        draft.burnin_for_proof(said)
    elif any(hold.proof_level is not None for hold in draft.host.holds):
        draft.say(f"{said}: still {state}, its holds ask for proof")
        draft.burnin_for_proof(said)
    else:
        draft.say(f"{said}: still {state}, an operator decides")


# ── findings ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _found(draft: Draft, finding: Finding, fleet: FleetView) -> None:
    if not isinstance(finding, BurninEnded):
        evidence.weigh(draft, finding, fleet, ordered=False)
        return
    pending = draft.host.pending
    ordered = pending is not None and (pending.order_id, draft.host.boot_id) == (finding.order_id, finding.boot_id)
    if finding.verdict is Verdict.FAIL:
        if ordered:
            draft.set(pending=None)
        evidence.weigh(draft, finding, fleet, ordered=ordered)
        if ordered and draft.host.pending is None and draft.host.attempts:
            draft.set(attempts=0)
        return
    if not ordered or pending is None:
        draft.say(
            f"a burn-in that nobody waits for ({finding.order_id or 'self-started'}) ended as {finding.verdict}: "
            "recorded, it proves nothing"
        )
        return
    objection = finding.why
    if finding.verdict is Verdict.PASS:
        if finding.level == pending.level and not finding.culprits:
            _passed(draft, finding)
            return
        objection = f"the report contradicts itself or the order (level `{finding.level}`): {finding.why}"
    _again(draft, pending, f"not judged: {objection}")


def _passed(draft: Draft, finding: BurninEnded) -> None:
    draft.set(pending=None, attempts=0)
    said = f"burn-in `{finding.level}` passed"
    if not draft.proves(finding.level):
        asked = ", ".join(f"`{level}`" for level in dict.fromkeys(draft.asked_levels()))
        draft.say(f"{said}, but {asked} must pass: still {draft.host.state}")
        return
    draft.set(proof=finding.id)
    if draft.host.state in OUT_OF_SERVICE:
        draft.say(f"{said}: the proof is there, an operator may release the host")
    else:
        draft.move(Lifecycle.HEALTHY, said)


# ── burn-ins that do not happen ─────────────────────────────────────────────────────────────────────────────────────


def _again(draft: Draft, pending: PendingBurnin, why: str) -> None:
    draft.say(why)
    draft.burnin_again(pending.level, line(why))


def _burnin_refused(draft: Draft, order_id: OrderId, why: str) -> None:
    pending = draft.host.pending
    if pending is None or pending.order_id != order_id:
        draft.say(f"the agent refuses {order_id}, for which nobody waits: {why}")
        return
    _again(draft, pending, f"the agent refuses {order_id}: {why}")


def _ran_out_of_time(draft: Draft) -> bool:
    """Deal with a pending burn-in that is overdue; False when none is."""
    pending = draft.host.pending
    if pending is None or draft.now_s <= pending.not_after_s + draft.policy.qualify.timeout_seconds:
        return False
    waited_s = draft.now_s - pending.issued_at_s
    _again(draft, pending, f"{pending.order_id} has not ended {waited_s:.0f} seconds after it was ordered")
    return True


# ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _operator_quarantines(draft: Draft, event: OperatorQuarantined) -> Step[Host]:
    owner, reason = f"operator:{line(event.who)}", line(event.reason)
    others = tuple(hold for hold in draft.host.holds if hold.owner != owner)
    if len(others) >= MAX_HOLDS:
        return draft.refusal(f"{MAX_HOLDS} holds are on the host already; it is out of service")
    hold = Hold(
        owner=owner,
        reason=reason,
        evidence=(),
        gpu=None,
        fault_class=FaultClass.NONE,
        boot_id=draft.host.boot_id,
        at_s=draft.now_s,
        proof_level=None,
    )
    draft.set(holds=(*others, hold))
    if draft.host.state in OUT_OF_SERVICE:
        draft.say(f"{owner} holds the host too: {reason}")
        return draft.step()
    draft.move(Lifecycle.QUARANTINED, f"{owner} holds the host: {reason}")
    draft.issue(draft.quarantine_order(f"{owner}: {reason}"))
    return draft.step()


def _operator_releases(draft: Draft, event: OperatorReleased) -> Step[Host]:
    """Lift all holds or none; a host that is not held can be declared fit by an override."""
    host, owner = draft.host, f"operator:{line(event.who)}"
    if host.state in SERVING:
        return draft.refusal(f"the host is {host.state}: there is nothing to release")
    missing = [why for hold in host.holds if (why := _missing(hold, host, owner))]
    if host.state not in OUT_OF_SERVICE:
        missing = [f"no hold is on it; it is {host.state} ({host.why}) and needs a passing burn-in"]
    if missing and not event.override:
        return draft.refusal(f"not released: {'; '.join(missing)}; an override with a reason lifts it all the same")
    draft.set(holds=())
    said = f"{owner} releases the host{', overriding' if missing else ''}: {line(event.reason)}"
    if missing:
        said = f"{said} (missing: {'; '.join(missing)})"
    if host.state in OUT_OF_SERVICE:
        draft.release(said)
    if host.proof is not None:
        draft.move(Lifecycle.HEALTHY, said)
    else:
        # A served host is not disturbed by a burn-in; the next one that passes makes it healthy.
        draft.move(Lifecycle.PROBATION, f"{said}; on probation until a burn-in passes")
    return draft.step()


def _missing(hold: Hold, host: Host, owner: str) -> str | None:
    """What this hold still asks for when this operator wants the host back."""
    if hold.owner == FLEETD:
        if hold.proof_level is None or host.proof is not None:
            return None
        return f"a passing `{hold.proof_level}` burn-in of this boot ({hold.reason})"
    return None if hold.owner == owner else f"{hold.owner} holds it: {hold.reason}"
