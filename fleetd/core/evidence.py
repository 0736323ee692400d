"""What bad findings do to a host: hold it, charge it, look again or tell, as far as stage, class and limits allow."""

from collections.abc import Collection

from fleetd.core import budget, repair, storm
from fleetd.core.accuse import HARMLESS, Response, respond
from fleetd.core.lifecycle import Draft, slot_of
from fleetd.core.policy import Action, Burnin, Stage, covers, strongest
from fleetd.core.repair import Advice
from fleetd.model.finding import BurninEnded, Finding, Scope
from fleetd.model.fleet import IncidentKind
from fleetd.model.host import Charge, Hold, Host, Lifecycle
from fleetd.model.ids import GpuId, HostName


def weigh(draft: Draft, finding: Finding, *, ordered: bool) -> None:
    """Judge a failed burn-in or a device fault.

    Args:
        draft: the host's step; a pending burn-in that has ended is already taken off it.
        finding: what was found.
        ordered: whether this is the result of the burn-in that was pending, so that a rerun counts as an attempt.
    """
    if storm.outdated(finding, draft.host):
        said = f"{finding.why}: of boot {finding.boot_id}, before the burn-in that proved boot {draft.host.boot_id}"
        draft.say(f"an old record, which changes nothing: {said}")
        return
    responses = respond(draft, finding)
    failed = isinstance(finding, BurninEnded)
    serious = failed or any(_serious(r) for r in responses)
    if draft.host.held:
        _add_evidence(draft, finding, responses, ordered=ordered)
        return
    if serious:
        _void(draft, finding, running=False)
    if _quarantine(draft, finding, responses):
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


def _serious(r: Response) -> bool:
    """Whether the host is in question. A fault of an application that a human is told of is not the host's."""
    only_told = r.then is Action.NOTIFY and r.accusation.scope is Scope.APP
    return r.then not in HARMLESS and r.stage is not Stage.OBSERVE and not only_told


def _void(draft: Draft, finding: Finding, *, running: bool) -> None:
    """Take the proof back that was given before this evidence, and on request stop waiting for a run that began before.

    Evidence of an earlier boot, which waited in a spool, is older than all that this boot has proven or is proving.
    """
    if finding.boot_id == draft.host.boot_id:
        draft.set(proof=None)
        if running:
            draft.set(pending=None, due=None, attempts=0)


# ── hosts that are held ─────────────────────────────────────────────────────────────────────────────────────────────


def _add_evidence(draft: Draft, finding: Finding, responses: tuple[Response, ...], *, ordered: bool) -> None:
    """On a host that is out of service: no second order, whatever is found."""
    before = draft.host.marks
    for r in responses:
        if isinstance(finding, BurninEnded) or (r.accusation.fault_class.is_hardware and r.then not in HARMLESS):
            _void(draft, finding, running=False)
        if r.then is Action.QUARANTINE and r.stage is Stage.ENFORCE:
            draft.hold(_hold(draft, finding, r))
            _void(draft, finding, running=True)
            if ordered:  # the proof was asked for and is missing: what was tried did not help
                draft.condemn(finding.id, r.accusation.gpu, r.accusation.fault_class)
        draft.say(f"already {draft.host.state}: {r.why}")
    if draft.host.state is Lifecycle.QUALIFYING and isinstance(finding, BurninEnded):
        draft.move(Lifecycle.QUARANTINED, "the burn-in after the repair failed")
    if draft.host.marks != before:
        _recommend(draft)


# ── hosts that are not ──────────────────────────────────────────────────────────────────────────────────────────────


def _hold(draft: Draft, finding: Finding, r: Response) -> Hold:
    return draft.new_hold(finding=finding.id, reason=r.why, gpu=r.accusation.gpu, fault_class=r.accusation.fault_class)


def _quarantine(draft: Draft, finding: Finding, responses: tuple[Response, ...]) -> bool:
    """Quarantine the host if a rule enforces it, or withhold that; False when no rule does."""
    accusing = [r for r in responses if r.then is Action.QUARANTINE and r.stage is Stage.ENFORCE]
    if not accusing:
        return False
    said = "; ".join(r.why for r in accusing)
    _void(draft, finding, running=True)
    objection = _objection(draft, finding)
    if objection is None:
        for hold in (*(c.hold for c in draft.host.charges), *(_hold(draft, finding, r) for r in accusing)):
            _put_on(draft, hold)
        _take_out(draft, said)
        return True
    draft.withhold(draft.quarantine_order(said), objection)
    for r in accusing:
        draft.charge(_hold(draft, finding, r), objection, storm.storm_key(finding))
    draft.move(Lifecycle.SUSPECT, f"{said}; quarantine withheld: {objection}")
    return True


def put_charges_on(draft: Draft) -> bool:
    """Turn the charges that nothing keeps back any more into holds; False when none was or all are still kept back.

    What was found while the host was charged has kept the charges up to date: a proof since then took them off.
    """
    storms = {i.key for i in draft.record.incidents if i.kind is IncidentKind.STORM}
    free = [c for c in draft.host.charges if c.key not in storms]
    if not free or draft.record.stopped is not None or draft.host.state is Lifecycle.RETIRED:
        return False
    said = f"still charged: {'; '.join(c.hold.reason for c in free)}"
    objection = None if draft.host.held else _over_budget(draft)
    if objection is not None:
        draft.withhold(draft.quarantine_order(said), objection)
        draft.set(
            charges=tuple(
                Charge(hold=c.hold, withheld=objection, key=c.key) if c in free else c for c in draft.host.charges
            )
        )
        draft.say(f"{said}; quarantine withheld: {objection}")
        return False
    was_held = draft.host.held
    for charge in free:
        _put_on(draft, charge.hold)
    draft.set(charges=tuple(c for c in draft.host.charges if c not in free))
    if was_held:
        draft.say(said)
        return False
    draft.set(pending=None, due=None, attempts=0)
    _take_out(draft, said)
    return True


def _put_on(draft: Draft, hold: Hold) -> None:
    draft.hold(hold)
    draft.condemn(hold.evidence[-1], hold.gpu, hold.fault_class)


def _take_out(draft: Draft, said: str) -> None:
    draft.set(charges=(), probation_until_s=None)
    draft.move(Lifecycle.QUARANTINED, f"{said}; {_exit(draft.host)}")
    draft.issue(draft.quarantine_order(said))
    _recommend(draft)


def _objection(draft: Draft, finding: Finding) -> str | None:
    """Why a quarantine is withheld; None when it is not. Pages at most once for each reason."""
    stopped = draft.record.stopped
    key = storm.storm_key(finding)
    if key is not None:
        limits = draft.policy.storm
        hosts = draft.fleet.sick(key, draft.now_s - limits.within_seconds)
        what, kind = key.split(":", 1)
        words = f"have the fault {kind}" if what == "fault" else f"fail burn-ins with the same kernels ({kind})"
        weather = storm.look(
            draft.record,
            now_s=draft.now_s,
            kind=IncidentKind.STORM,
            key=key,
            hosts=hosts,
            host=draft.host.name,
            at_least=limits.hosts_at_least,
            tell_again_s=draft.policy.tell_again_seconds,
            what=f"{words}{_same_driver(draft, hosts)}",
        )
        draft.record = weather.record
        if weather.incident is not None:
            said = f"incident {weather.incident.id}: {weather.incident.why}; no host is taken out for it"
            if weather.tell:
                draft.page(said)
            return said
    if stopped is not None:
        return f"automation is stopped by {stopped.who}: {stopped.reason}"
    return _over_budget(draft)


def _same_driver(draft: Draft, hosts: Collection[HostName]) -> str:
    """What a storm has in common besides its fault: a driver version that all of its hosts run."""
    drivers = {draft.host.driver_version, *(draft.fleet.driver_of(host) for host in hosts)}
    return f", all with driver version {drivers.pop()}" if len(drivers) == 1 and None not in drivers else ""


def _over_budget(draft: Draft) -> str | None:
    found = budget.objection(draft.fleet, draft.host, policy=draft.policy, now_s=draft.now_s)
    if found is None:
        return None
    draft.record, tell = budget.trip(
        draft.record, found, now_s=draft.now_s, tell_again_s=draft.policy.tell_again_seconds
    )
    if tell:
        draft.page(f"quarantine withheld: {found.why}")
    return found.why


def _exit(host: Host) -> str:
    levels = [hold.proof_level for hold in host.holds if hold.proof_level is not None]
    if len(levels) < len(host.holds):
        return "an operator decides when it ends"
    after = " after a reboot" if any(hold.after_reboot for hold in host.holds) else ""
    return f"it ends by a passing `{strongest(levels)}` burn-in{after} and a release"


def advice_for(draft: Draft, gpu: GpuId | None) -> Advice:
    """What to try next for a GPU of this host, or for the host itself."""
    return repair.advise(
        draft.policy.repair,
        now_s=draft.now_s,
        gpu=gpu,
        slot=slot_of(draft.host, gpu),
        of_gpu=draft.fleet.marks(gpu) if gpu is not None else (),
        of_host=draft.host.marks,
    )


def _recommend(draft: Draft) -> None:
    for gpu in dict.fromkeys(mark.gpu for mark in draft.host.marks if mark not in draft.before.marks):
        advice = advice_for(draft, gpu)
        draft.say(f"recommended: {advice.action} ({advice.why})")
        if advice.final:
            draft.notify(f"attempts are used up: {advice.why}", about=f"replace/{gpu or 'host'}")


# ── looking again ───────────────────────────────────────────────────────────────────────────────────────────────────


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
    tell = [(r.why, r.about) for r in enforced if r.then is Action.NOTIFY]
    tell += [(f"recommended: {r.why}", r.about) for r in responses if _recommends(r)]
    if tell:
        draft.notify("; ".join(why for why, _ in tell), about="; ".join(dict.fromkeys(about for _, about in tell)))
    levels = [r.then.burnin for r in enforced if isinstance(r.then, Burnin)]
    if not levels:
        return
    # What the host is charged with may ask for more than the rule that looks again.
    level = strongest((*levels, *draft.asked_levels())) if draft.host.charges else strongest(levels)
    why = "; ".join(r.why for r in enforced if isinstance(r.then, Burnin))
    if ordered:
        draft.burnin_again(level, why)
    elif draft.host.pending is not None and covers(draft.host.pending.level, level):
        draft.say(f"burn-in {draft.host.pending.order_id} is under way")
    else:
        draft.burnin(level, why, looks_again=True)


def _recommends(r: Response) -> bool:
    return r.stage is Stage.RECOMMEND and r.then not in HARMLESS
