"""The judgement on one host: event in, step out. Every change of a host's lifecycle begins here.

    new ─hello→ qualifying ─pass→ healthy            a bad finding makes any of them suspect, a pass healthy again
    any of these ─quarantine→ quarantined ─proof and release→ probation → healthy
                              quarantined ─operator→ repairing ─burn-in→ qualifying, held, until it passes

What bad findings do is in `evidence`, what time does in `waiting`, what people ask for in `operators`; what is always
true is asserted in `invariants`.
"""

from typing import assert_never

from fleetd.core import ballots, evidence, gone, jobs, operators, scheduler, silence, waiting
from fleetd.core.fleet import Fleet
from fleetd.core.hello import connected
from fleetd.core.invariants import MAX_BALLOTS, SERVING
from fleetd.core.lifecycle import Draft
from fleetd.core.newcomer import unknown_host
from fleetd.core.policy import Policy
from fleetd.core.step import Step
from fleetd.model.event import (
    AgentConnected,
    AgentSilent,
    BurninAccepted,
    BurninRefused,
    Event,
    FindingReceived,
    GpuSwapped,
    HostEvent,
    JobEnded,
    LedgerRestored,
    OperatorBurnin,
    OperatorEvent,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepaired,
    OperatorRepairs,
    OperatorRetires,
    OrderObstructed,
    OutlierFound,
    Outvoted,
    Rejudged,
    SchedulerDiffers,
    TimePassed,
)
from fleetd.model.finding import BurninEnded, Finding, Verdict
from fleetd.model.host import Host, Lifecycle


def judge(*, now_s: float, host: Host | None, event: Event, fleet: Fleet, policy: Policy) -> Step[Host]:
    """Decide what an event means for a host.

    Pure: the same arguments give the same step, down to the ids of the orders.

    Args:
        now_s: wall time of the controller, seconds since the epoch.
        host: the host as it was left by the last step; None when it is unknown.
        event: what happened to the host.
        fleet: what is known of all hosts, without this event; only read.
        policy: the site's policy.

    Returns:
        The step. Its state is the same object as `host` when nothing changed; a refused step must not be stored for
        a host that was unknown.

    Raises:
        ValueError: the event is about another host; the caller mixed them up.
    """
    if host is not None and host.name != event.host:
        raise ValueError(f"an event of {event.host} was handed to the judgement on {host.name}")
    draft = Draft(
        host if host is not None else unknown_host(event.host, now_s), now_s=now_s, fleet=fleet, policy=policy
    )
    objection = _inadmissible(host, event)
    if objection is not None:
        return draft.refusal(objection)
    if isinstance(event, OperatorEvent):
        return _asked(draft, event)
    _happened(draft, event)
    return draft.step()


def _asked(draft: Draft, event: OperatorEvent) -> Step[Host]:  # noqa: PLR0911 - one line a kind of event
    """An operator wants something; it may be refused."""
    match event:
        case OperatorQuarantined():
            return operators.quarantines(draft, event)
        case OperatorReleased():
            return operators.releases(draft, event)
        case OperatorBurnin():
            return operators.burnin(draft, event)
        case OperatorRepairs():
            return operators.repairs(draft, event)
        case OperatorRepaired():
            return operators.repaired(draft, event)
        case OperatorRetires():
            return operators.retires(draft, event)
        case GpuSwapped():
            return operators.swapped(draft, event)
        case LedgerRestored():
            return operators.restored(draft, event)
        case _:
            assert_never(event)


def _happened(draft: Draft, event: HostEvent) -> None:  # noqa: C901, PLR0912 - one line a kind of event
    """Something happened; nobody can refuse that."""
    match event:
        case AgentConnected():
            connected(draft, event.hello)
        case AgentSilent():
            silence.silent(draft, event)
        case FindingReceived():
            _found(draft, event.finding)
        case BurninAccepted():
            waiting.accepted(draft, event.order_id)
        case BurninRefused():
            waiting.refused(draft, event.order_id, event.why)
        case OutlierFound():
            _outlier(draft, event)
        case Outvoted():
            _outvoted(draft, event)
        case JobEnded():
            jobs.ended(draft, event)
        case OrderObstructed():
            scheduler.obstructed(draft, event)
        case SchedulerDiffers():
            scheduler.differs(draft, event)
        case Rejudged():
            waiting.rejudge(draft, event)
        case TimePassed():
            waiting.time_passed(draft, event)
        case _:
            assert_never(event)


def _inadmissible(host: Host | None, event: Event) -> str | None:
    """Why an event is recorded and changes nothing, whatever the policy says."""
    if host is None and not isinstance(event, AgentConnected | FindingReceived):
        return f"no host `{event.host}` is known: its agent must connect once"
    if (
        host is not None
        and host.state is Lifecycle.RETIRED
        and not isinstance(event, OperatorReleased | OrderObstructed | LedgerRestored)
    ):
        return "the host is retired: the event is recorded and changes nothing"
    if isinstance(event, FindingReceived) and event.finding.host != event.host:
        return f"a finding about {event.finding.host} came from {event.host}: it counts for neither"
    return None


# ── findings ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _found(draft: Draft, finding: Finding) -> None:
    if not isinstance(finding, BurninEnded):
        evidence.weigh(draft, finding, ordered=False)
        return
    pending = draft.host.pending
    ordered = pending is not None and (pending.order_id, draft.host.boot_id) == (finding.order_id, finding.boot_id)
    if finding.verdict is Verdict.FAIL:
        if ordered:
            draft.set(pending=None)
        evidence.weigh(draft, finding, ordered=ordered)
        if ordered and draft.host.pending is None and draft.host.due is None and draft.host.attempts:
            draft.set(attempts=0)
        return
    if not ordered or pending is None:
        draft.say(
            f"a burn-in that nobody waits for ({finding.order_id or 'self-started'}) ended as {finding.verdict}: "
            "recorded, it proves nothing"
        )
        return
    objection = finding.why
    if finding.verdict is Verdict.NOT_JUDGED and draft.record.stopped is not None and not pending.by_operator:
        draft.set(pending=None)
        draft.say(f"not judged while automation is stopped: {objection}; no attempt is used up")
        draft.burnin(pending.level, f"again, automation was stopped: {pending.order_id}")
        return
    if finding.verdict is Verdict.PASS:
        if finding.level == pending.level and not finding.culprits:
            _passed(draft, finding)
            return
        objection = f"the report contradicts itself or the order (level `{finding.level}`): {finding.why}"
    waiting.again(draft, pending, f"not judged: {objection}")


def _passed(draft: Draft, finding: BurninEnded) -> None:
    draft.set(pending=None, due=None, attempts=0)
    said = f"burn-in `{finding.level}` passed"
    cast = finding.ballots[:MAX_BALLOTS]
    against = False
    for outvoted in ballots.count(draft.fleet, draft.host.name, draft.host.ballots, cast):
        if outvoted.host != draft.host.name:
            draft.follow_up(outvoted)
        elif not against:
            against = True
            draft.say(f"{said} on this host alone")
            _outvoted(draft, outvoted)
    if against:
        return
    draft.set(ballots=cast)
    objection = draft.objection_to_proof(finding.level)
    if objection is not None:
        if objection == gone.objection(draft.host):
            _lacks(draft, f"{said}, but {objection}")
        else:
            draft.say(f"{said}, but {objection}: still {draft.host.state}")
        return
    draft.set(proof=finding.id)
    waiting.lift_proven(draft, f"{said}; {gone.in_words(draft.host)}" if draft.host.gone else said)


def _lacks(draft: Draft, said: str) -> None:
    """No burn-in proves this host as it is: its state says why, and a human is told."""
    over = draft.host.held and draft.host.state is Lifecycle.QUALIFYING
    draft.move(Lifecycle.QUARANTINED if over else draft.host.state, said)
    draft.notify(
        f"{said}. Bring it back or put another in its place; a release with an override takes the host without it",
        about=f"lacks/{','.join(draft.host.gone)}",
    )


# ── the host against its siblings ───────────────────────────────────────────────────────────────────────────────────


def _outvoted(draft: Draft, event: Outvoted) -> None:
    """All its GPUs agree with each other and are wrong: what they share is suspected, no chip is."""
    said = f"its GPUs agree with each other and disagree with the fleet: {event.why}"
    draft.set(proof=None, ballots=())  # its vote is out: it is not outvoted again for the same run
    draft.notify(f"{said}: look at its software, firmware and host memory", about=f"outvoted/{event.key}")
    if draft.host.held:
        draft.say(f"already {draft.host.state}: {said}")
    else:
        draft.move(Lifecycle.SUSPECT, said)


def _outlier(draft: Draft, event: OutlierFound) -> None:
    """Being unlike is no proof of anything: the host must show that it computes right at the rate it should."""
    said = (
        f"gpu {event.index} ({event.gpu}) has a {event.metric} of {event.value:.4g}, the median of {event.siblings} "
        f"siblings is {event.median:.4g} (robust z {event.z:.1f})"
    )
    limits = draft.policy.outliers
    if draft.host.state not in SERVING or limits is None:
        draft.say(f"{said}; the host is {draft.host.state}")
        return
    draft.set(proof=None)
    draft.move(Lifecycle.SUSPECT, said)
    draft.burnin(limits.burnin, said, looks_again=True)
