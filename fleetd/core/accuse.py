"""From a finding to the policy's answer: accuse, match the rules, apply the safeguards that no policy switches off."""

from dataclasses import dataclass

from fleetd.core.lifecycle import Draft
from fleetd.core.policy import MAX_SIGHTINGS, Accusation, Action, Burnin, FindingKind, Policy, Rule, Stage, first_match
from fleetd.model.finding import DeviceFault, FaultClass, Finding, Scope, Severity
from fleetd.model.host import Sighting
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
    about: str
    """What a human is told about, so that he is told once: the rule and the GPU."""


def respond(draft: Draft, finding: Finding) -> tuple[Response, ...]:
    """Remember what was found, and answer to each accusation in it."""
    for gpu, fault_class in blamed(finding):
        if gpu is not None and fault_class is FaultClass.CHIP_TRANSIENT:
            draft.strike(gpu, finding.id, finding.at_s)
    if isinstance(finding, DeviceFault):
        _sight(draft, finding)
    return tuple(_respond(draft.policy, accusation) for accusation in _accusations(draft, finding))


def _sight(draft: Draft, fault: DeviceFault) -> None:
    if any(seen.finding == fault.id for seen in draft.host.sightings):
        return
    if not any(rule.when.count is not None for rule in draft.policy.rules):
        return  # nobody counts: a host that nothing happens to stays the same object
    new = Sighting(code=fault.code, gpu=fault.gpu, finding=fault.id, at_s=fault.at_s)
    draft.set(sightings=(*draft.host.sightings, new)[-MAX_SIGHTINGS:])


def blamed(finding: Finding) -> tuple[tuple[GpuId | None, FaultClass], ...]:
    """GPU (None: the host) and class of everything that a finding says is wrong."""
    if isinstance(finding, DeviceFault):
        return ((finding.gpu, finding.fault_class),)
    return tuple((c.gpu, c.fault_class) for c in finding.culprits) or ((None, finding.fault_class),)


def _accusations(draft: Draft, finding: Finding) -> tuple[Accusation, ...]:
    host = draft.host
    if isinstance(finding, DeviceFault):
        same = (s for s in host.sightings if (s.code, s.gpu) == (finding.code, finding.gpu))
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
                strikes_at_s=_strikes_at_s(draft, finding.gpu),
                seen_at_s=tuple(s.at_s for s in same),
                pool=host.place.pool,
                skus=_skus(draft, finding.gpu),
            ),
        )
    culprits = tuple((c.gpu, c.index, c.fault_class, c.why) for c in finding.culprits)
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
            strikes_at_s=_strikes_at_s(draft, gpu),
            pool=host.place.pool,
            skus=_skus(draft, gpu),
        )
        for gpu, index, fault_class, why in (culprits or ((None, None, finding.fault_class, finding.why),))
    )


def _strikes_at_s(draft: Draft, gpu: GpuId | None) -> tuple[float, ...]:
    """Strikes of a serial: what this step adds to this host, and what any host has seen of it."""
    if gpu is None:
        return ()
    everywhere = {s.finding: s.at_s for s in (*draft.fleet.strikes(gpu), *draft.host.strikes) if s.gpu == gpu}
    return tuple(everywhere.values())


def _skus(draft: Draft, gpu: GpuId | None) -> tuple[str, ...]:
    return tuple(sorted({g.sku for g in draft.host.inventory if gpu is None or g.gpu == gpu}))


def _respond(policy: Policy, accusation: Accusation) -> Response:
    rule = first_match(policy.rules, accusation)
    where = f"gpu {accusation.index} ({accusation.gpu})" if accusation.gpu else "the host"
    said = f"{where} is accused of {accusation.fault_class}: {accusation.why}"
    if rule is None:
        # A failure that no rule knows goes to a human: silence would look like health.
        loud = accusation.severity is None or accusation.severity >= Severity.ERROR
        then: Action | Burnin = Action.NOTIFY if loud else Action.NONE
        return Response(
            accusation=accusation,
            then=then,
            stage=Stage.ENFORCE,
            why=f"{said}; no rule is about it",
            about=_about(None, accusation),
        )
    said = f"{said}; rule `{rule.name}` says {_words(rule.then)}"
    then = rule.then
    if then is Action.QUARANTINE and (objection := _not_blamable(accusation)):
        said, then = f"{said}, but {objection}: a human is told instead", Action.NOTIFY
    elif isinstance(then, Action) and then not in CARRIED_OUT:
        said, then = f"{said}, which fleetd cannot do by itself: a human is told instead", Action.NOTIFY
    return Response(accusation=accusation, then=then, stage=rule.stage, why=said, about=_about(rule, accusation))


def _about(rule: Rule | None, accusation: Accusation) -> str:
    what = rule.name if rule is not None else accusation.code or accusation.fault_class
    return f"{what}/{accusation.gpu or 'host'}"


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
