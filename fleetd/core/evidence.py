"""What bad findings do to a host: accuse, match the policy's rules, respond as far as stage, class and budget allow."""

from dataclasses import dataclass

from fleetd.core import budget
from fleetd.core.budget import OUT_OF_SERVICE, FleetView
from fleetd.core.lifecycle import Draft
from fleetd.core.policy import (
    Accusation,
    Action,
    Burnin,
    FindingKind,
    Policy,
    Stage,
    covers,
    first_match,
    strongest,
)
from fleetd.model.finding import BurninEnded, DeviceFault, FaultClass, Finding, Scope, Severity
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import GpuId

HARMLESS = frozenset({Action.NONE, Action.MONITOR})
"""Actions that leave a host as it is."""

CARRIED_OUT = frozenset({*HARMLESS, Action.QUARANTINE, Action.NOTIFY})
"""Actions that fleetd can do itself. For any other it tells a human what the policy asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What the policy answers to one accusation, after the safeguards that no policy can switch off."""

    accusation: Accusation
    then: Action | Burnin
    stage: Stage
    why: str
    """The accusation, the rule, and what a safeguard changed."""


def weigh(draft: Draft, finding: Finding, fleet: FleetView, *, ordered: bool) -> None:
    """Judge a failed burn-in or a device fault.

    Args:
        draft: the host's step; a pending burn-in that has ended is already taken off it.
        finding: what was found.
        fleet: the counts for the budget.
        ordered: whether this is the result of the burn-in that was pending, so that a rerun counts as an attempt.
    """
    for gpu, fault_class in _blamed(finding):
        if gpu is not None and fault_class is FaultClass.CHIP_TRANSIENT:
            draft.strike(gpu, finding.id, finding.at_s)
    responses = tuple(_respond(draft.policy, a) for a in _accusations(finding, draft.host))
    failed = isinstance(finding, BurninEnded)
    serious = failed or any(r.then not in HARMLESS and r.stage is not Stage.OBSERVE for r in responses)
    if draft.host.state in OUT_OF_SERVICE:
        _add_evidence(draft, finding, responses)
        return
    if serious:
        _void(draft, finding, running=False)
    if _quarantine(draft, finding, fleet, responses):
        return
    said = "; ".join(r.why for r in responses)
    if serious and draft.host.proof is not None:
        draft.say(f"{said}; that was before the last boot, and a burn-in has passed since")
    elif serious:
        draft.move(Lifecycle.SUSPECT, said)
    else:
        draft.say(said)
    _keep_back(draft, responses)
    _look_again_or_notify(draft, responses, ordered=ordered)


def _void(draft: Draft, finding: Finding, *, running: bool) -> None:
    """Take the proof back that was given before this evidence, and on request stop waiting for a run that began before.

    Evidence of an earlier boot, which waited in a spool, is older than all that this boot has proven or is proving.
    """
    if finding.boot_id == draft.host.boot_id:
        draft.set(proof=None)
        if running:
            draft.set(pending=None, attempts=0)


def _blamed(finding: Finding) -> tuple[tuple[GpuId | None, FaultClass], ...]:
    if isinstance(finding, DeviceFault):
        return ((finding.gpu, finding.fault_class),)
    return tuple((c.gpu, c.fault_class) for c in finding.culprits) or ((None, finding.fault_class),)


def _accusations(finding: Finding, host: Host) -> tuple[Accusation, ...]:
    strikes = {gpu: tuple(s.at_s for s in host.strikes if s.gpu == gpu) for gpu, _ in _blamed(finding) if gpu}
    if isinstance(finding, DeviceFault):
        return (
            Accusation(
                kind=FindingKind.DEVICE,
                fault_class=finding.fault_class,
                gpu=finding.gpu,
                index=finding.index,
                at_s=finding.at_s,
                why=f"{finding.code}: {finding.why}",
                code=finding.code,
                scope=finding.scope,
                severity=finding.severity,
                strikes_at_s=strikes.get(finding.gpu, ()) if finding.gpu else (),
            ),
        )
    blamed = tuple((c.gpu, c.index, c.fault_class, c.why) for c in finding.culprits)
    return tuple(
        Accusation(
            kind=FindingKind.BURNIN,
            fault_class=fault_class,
            gpu=gpu,
            index=index,
            at_s=finding.at_s,
            why=f"burn-in `{finding.level}` failed: {why}",
            code=None,
            scope=None,
            severity=None,
            strikes_at_s=strikes.get(gpu, ()) if gpu else (),
        )
        for gpu, index, fault_class, why in (blamed or ((None, None, finding.fault_class, finding.why),))
    )


def _respond(policy: Policy, accusation: Accusation) -> Response:
    rule = first_match(policy.rules, accusation)
    where = f"gpu {accusation.index} ({accusation.gpu})" if accusation.gpu else "the host"
    said = f"{where} is accused of {accusation.fault_class}: {accusation.why}"
    if rule is None:
        # A failure that no rule knows goes to a human: silence would look like health.
        loud = accusation.severity is None or accusation.severity >= Severity.ERROR
        then: Action | Burnin = Action.NOTIFY if loud else Action.NONE
        return Response(accusation=accusation, then=then, stage=Stage.ENFORCE, why=f"{said}; no rule is about it")
    said = f"{said}; rule `{rule.name}` says {_words(rule.then)}"
    then = rule.then
    if then is Action.QUARANTINE and (objection := _not_blamable(accusation)):
        said, then = f"{said}, but {objection}: a human is told instead", Action.NOTIFY
    elif isinstance(then, Action) and then not in CARRIED_OUT:
        said, then = f"{said}, which fleetd cannot do by itself: a human is told instead", Action.NOTIFY
    return Response(accusation=accusation, then=then, stage=rule.stage, why=said)


def _words(then: Action | Burnin) -> str:
    return f"burnin: {then.burnin}" if isinstance(then, Burnin) else then


def _not_blamable(accusation: Accusation) -> str | None:
    """Why this accusation may not take the host away from its users whatever the policy says."""
    if not accusation.fault_class.is_hardware:
        return f"{accusation.fault_class} is no evidence against the hardware"
    if accusation.scope is Scope.APP:
        return "a fault of an application is no evidence against the host"
    if accusation.kind is FindingKind.BURNIN and accusation.gpu is None:
        return "the burn-in names no culprit"
    return None


def _add_evidence(draft: Draft, finding: Finding, responses: tuple[Response, ...]) -> None:
    """On a host that is out of service: no second order, whatever is found."""
    for r in responses:
        if isinstance(finding, BurninEnded) or (r.accusation.fault_class.is_hardware and r.then not in HARMLESS):
            _void(draft, finding, running=False)
        if r.then is Action.QUARANTINE and r.stage is Stage.ENFORCE:
            _hold(draft, finding, r)
            _void(draft, finding, running=True)
        draft.say(f"already {draft.host.state}: {r.why}")


def _hold(draft: Draft, finding: Finding, r: Response) -> None:
    draft.hold(finding=finding.id, reason=r.why, gpu=r.accusation.gpu, fault_class=r.accusation.fault_class)


def _quarantine(draft: Draft, finding: Finding, fleet: FleetView, responses: tuple[Response, ...]) -> bool:
    """Quarantine the host if a rule enforces it, or withhold that; False when no rule does."""
    accusing = [r for r in responses if r.then is Action.QUARANTINE and r.stage is Stage.ENFORCE]
    if not accusing:
        return False
    said = "; ".join(r.why for r in accusing)
    order = draft.quarantine_order(said)
    objection = budget.objection(fleet, draft.policy.budgets.quarantines, now_s=draft.now_s)
    _void(draft, finding, running=True)
    if objection is None:
        for r in accusing:
            _hold(draft, finding, r)
        draft.move(Lifecycle.QUARANTINED, f"{said}; {_exit(draft.host)}")
        draft.issue(order)
        return True
    # The first one withheld for this host pages; one page for each finding of a sick host would drown the others.
    first = draft.host.state is not Lifecycle.SUSPECT or not fleet.tripped
    draft.withhold(order, objection)
    draft.trips_budget = True
    draft.move(Lifecycle.SUSPECT, f"{said}; quarantine withheld: {objection}")
    if first:
        draft.notify(f"quarantine withheld: {objection}; {said}")
    return True


def _exit(host: Host) -> str:
    levels = [hold.proof_level for hold in host.holds if hold.proof_level is not None]
    if len(levels) < len(host.holds):
        return "an operator decides when it ends"
    return f"it ends by a passing `{strongest(levels)}` burn-in and a release"


def _keep_back(draft: Draft, responses: tuple[Response, ...]) -> None:
    """Record what the stages of the rules do not let through: one order of each kind."""
    staged = [r for r in responses if r.stage is not Stage.ENFORCE and r.then not in HARMLESS]
    stays = "the rule only {}s"
    quarantines = [r for r in staged if r.then is Action.QUARANTINE]
    if quarantines:
        r = quarantines[0]
        draft.withhold(draft.quarantine_order(r.why), stays.format(r.stage))
    burnins = [(r.then.burnin, r) for r in staged if isinstance(r.then, Burnin)]
    if burnins:
        level, r = burnins[0]
        order = draft.burnin_order(level, r.why)
        if order is not None:
            draft.withhold(order, stays.format(r.stage))


def _look_again_or_notify(draft: Draft, responses: tuple[Response, ...], *, ordered: bool) -> None:
    enforced = [r for r in responses if r.stage is Stage.ENFORCE]
    tell = [r.why for r in enforced if r.then is Action.NOTIFY]
    tell += [f"recommended: {r.why}" for r in responses if r.stage is Stage.RECOMMEND and r.then not in HARMLESS]
    if tell:
        draft.notify("; ".join(tell))
    levels = [r.then.burnin for r in enforced if isinstance(r.then, Burnin)]
    if not levels:
        return
    level = strongest(levels)
    why = "; ".join(r.why for r in enforced if isinstance(r.then, Burnin))
    if ordered:
        draft.burnin_again(level, why)
    elif draft.host.pending is not None and covers(draft.host.pending.level, level):
        draft.say(f"burn-in {draft.host.pending.order_id} is under way")
    else:
        draft.burnin(level, why)
