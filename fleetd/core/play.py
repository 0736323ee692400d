"""Plays a policy's test without a fleet, and says where it did not lead to what was expected.

Between two steps time passes as in a controller: burn-ins run out of it, holds expire, probations end.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fleetd.core.policy import Policy
from fleetd.core.replay import Replay, Taken
from fleetd.core.timeline import Faulted, FleetVerb, Kind, Ran, Says, Timeline, TimelineStep, Verb
from fleetd.model import event as ev
from fleetd.model.event import AnyEvent
from fleetd.model.finding import BurninEnded, Culprit, DeviceFault, Finding
from fleetd.model.host import Gpu, Hello, Host
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A step that did not lead to what was expected."""

    number: int
    """Of the step, from 0."""
    message: str


def play(test: Timeline, policy: Policy) -> tuple[Failed, ...]:
    """Play a test; returns what was not as expected."""
    replay = Replay(policy)
    failed: list[Failed] = []
    for number, step in enumerate(test.timeline):
        replay.pass_time(step.at, connected=True)
        taken: list[Taken] = []
        for event in _events(replay, step, number):
            taken += replay.play(step.at, event)
        failed += [Failed(number=number, message=m) for m in _unexpected(replay, step, taken)]
    return tuple(failed)


def _events(replay: Replay, step: TimelineStep, number: int) -> Iterator[AnyEvent]:
    if step.fleet is not None:
        yield from _fleet_events(replay, step.fleet)
    for host in step.hosts:
        event = _event(replay, step, HostName(host), f"step {number} {host}")
        if event is not None:
            yield event


def _fleet_events(replay: Replay, verb: FleetVerb) -> Iterator[AnyEvent]:
    who, reason = "operator:test", "the test says so"
    match verb:
        case FleetVerb.REARM:
            yield ev.BudgetRearmed(who=who, reason=reason)
        case FleetVerb.STOP:
            yield ev.AutomationStopped(who=who, reason=reason)
        case FleetVerb.RESUME:
            yield ev.AutomationResumed(who=who, reason=reason)
        case FleetVerb.ACQUIT | FleetVerb.CLOSE:
            for incident in replay.fleet.record.incidents:
                acquit = verb is FleetVerb.ACQUIT
                yield ev.IncidentClosed(incident=incident.id, who=who, reason=reason, acquit=acquit)


def _event(  # noqa: PLR0911 - one line a kind of event
    replay: Replay, step: TimelineStep, name: HostName, what: str
) -> AnyEvent | None:
    host = replay.hosts.get(name)
    pending = host.pending if host is not None else None
    if step.hello is not None:
        return _hello(name, step.hello)
    if step.burnin is not None:
        return ev.FindingReceived(host=name, finding=_ran(step, step.burnin, name, host, what))
    if step.fault is not None:
        return ev.FindingReceived(host=name, finding=_faulted(step, step.fault, name, host, what))
    if step.job is not None:
        return ev.JobEnded(host=name, job=step.job.id, ok=step.job.ok, ran_seconds=step.job.ran_seconds)
    if step.refuses is not None:
        order = pending.order_id if pending is not None else OrderId("none")
        return ev.BurninRefused(host=name, order_id=order, why=step.refuses)
    if step.away is not None:
        return ev.AgentSilent(host=name, since_s=step.at, away=step.away, known=len(replay.hosts))
    return None if step.operator is None else _operator(name, step.operator)


def _operator(name: HostName, verb: Verb) -> AnyEvent:
    who, reason = "test", "the test says so"
    match verb:
        case Verb.QUARANTINE:
            return ev.OperatorQuarantined(host=name, who=who, reason=reason)
        case Verb.RELEASE | Verb.OVERRIDE:
            return ev.OperatorReleased(host=name, who=who, reason=reason, override=verb is Verb.OVERRIDE)
        case Verb.BURNIN:
            return ev.OperatorBurnin(host=name, who=who, reason=reason, level=None)
        case Verb.REPAIR:
            return ev.OperatorRepairs(host=name, who=who, reason=reason)
        case Verb.RETIRE:
            return ev.OperatorRetires(host=name, who=who, reason=reason)


def _hello(name: HostName, says: Says) -> AnyEvent:
    serials = says.serials if says.serials is not None else tuple(f"{name}-{n}" for n in range(says.gpus))
    inventory = tuple(
        Gpu(gpu=GpuId(serial), index=n, vendor="sim", sku=says.sku, pci_address=None)
        for n, serial in enumerate(serials)
    )
    hello = Hello(
        host=name,
        boot_id=BootId(says.boot),
        agent_version="test",
        capabilities=(),
        inventory=inventory,
        place=says.place,
        driver_version=says.driver_version,
    )
    return ev.AgentConnected(host=name, hello=hello)


def _gpu(host: Host | None, name: HostName, index: int) -> GpuId:
    known = host.inventory if host is not None else ()
    return next((g.gpu for g in known if g.index == index), GpuId(f"{name}-{index}"))


def _boot(host: Host | None) -> BootId:
    return host.boot_id if host is not None and host.boot_id is not None else BootId("b1")


def _ran(step: TimelineStep, ran: Ran, name: HostName, host: Host | None, what: str) -> Finding:
    pending = None if host is None or ran.self_started else host.pending
    return BurninEnded(
        id=FindingId(what),
        host=name,
        boot_id=_boot(host),
        at_s=step.at,
        why=f"the timeline says {ran.verdict}",
        order_id=pending.order_id if pending is not None else None,
        level=ran.level or (pending.level if pending is not None else "smoke"),
        verdict=ran.verdict,
        fault_class=ran.fault_class,
        seed=0,
        vote_key=ran.vote_key,
        culprits=tuple(
            Culprit(gpu=_gpu(host, name, n), index=n, fault_class=ran.fault_class, why="the timeline says so")
            for n in ran.gpus
        ),
    )


def _faulted(step: TimelineStep, fault: Faulted, name: HostName, host: Host | None, what: str) -> Finding:
    return DeviceFault(
        id=FindingId(what),
        host=name,
        boot_id=_boot(host) if fault.boot is None else BootId(fault.boot),
        at_s=step.at,
        why="the timeline says so",
        code=fault.code,
        gpu=None if fault.gpu is None else _gpu(host, name, fault.gpu),
        index=fault.gpu,
        scope=fault.scope,
        severity=fault.severity,
        fault_class=fault.fault_class,
    )


# ── expectations ────────────────────────────────────────────────────────────────────────────────────────────────────


def _unexpected(replay: Replay, step: TimelineStep, taken: list[Taken]) -> Iterator[str]:
    expect = step.expect
    wanted = {**dict.fromkeys(step.hosts if expect.state is not None else (), expect.state), **expect.states}
    for name, state in wanted.items():
        host = replay.hosts.get(HostName(name))
        if host is None:
            yield f"{name}: expected {state}, but nobody knows the host"
        elif host.state is not state:
            yield f"{name}: expected {state}, it is {host.state}: {host.why}"
    orders = kinds_of(o for t in taken for o in t.step.orders)
    withheld = kinds_of(w.order for t in taken for w in t.step.withheld)
    said = "; ".join(t.step.why for t in taken) or "nothing happened"
    if expect.orders is not None and orders != expect.orders:
        yield f"expected the orders [{', '.join(expect.orders)}], got [{', '.join(orders)}]: {said}"
    if expect.withheld is not None and withheld != expect.withheld:
        yield f"expected to be withheld [{', '.join(expect.withheld)}], got [{', '.join(withheld)}]: {said}"
    if expect.why is not None and expect.why not in said:
        yield f"expected `{expect.why}` in the reason: {said}"


def kinds_of(orders: Iterator[object]) -> tuple[Kind, ...]:
    """The kinds of orders, as a timeline names them."""
    return tuple(Kind(type(order).__name__.lower().removeprefix("run")) for order in orders)
