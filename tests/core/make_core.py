"""Builders for the tests of the core: a small policy, findings, and a host that is driven by events."""

from dataclasses import replace

from fleetd.core.fleet import Fleet
from fleetd.core.policy import (
    Action,
    Budget,
    Budgets,
    Burnin,
    FindingKind,
    Policy,
    Qualify,
    Rule,
    Stage,
    Strikes,
    When,
)
from fleetd.core.replay import Replay, Taken
from fleetd.core.step import Step
from fleetd.model.event import AgentConnected, Event, FindingReceived, FleetEvent, OperatorQuarantined
from fleetd.model.finding import Ballot, BurninEnded, Culprit, DeviceFault, FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Gpu, Hello, Host, Place
from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId

H1 = HostName("h1")
NOWHERE = Place()
HARDWARE = (FaultClass.CHIP_PERSISTENT, FaultClass.MEMORY, FaultClass.LINK, FaultClass.UNRESPONSIVE)

BAD = Rule(name="bad", when=When(finding=FindingKind.BURNIN, fault_class=HARDWARE), then=Action.QUARANTINE)
TWICE = Rule(
    name="twice",
    when=When(fault_class=(FaultClass.CHIP_TRANSIENT,), strikes=Strikes(at_least=2, within_seconds=1000)),
    then=Action.QUARANTINE,
)
ONCE = Rule(name="once", when=When(fault_class=(FaultClass.CHIP_TRANSIENT,)), then=Burnin(burnin="smoke"))
SOFT = Rule(name="soft", when=When(finding=FindingKind.BURNIN), then=Action.NOTIFY)
FATAL = Rule(
    name="fatal",
    when=When(severity_at_least=Severity.FATAL, fault_class=HARDWARE),
    then=Action.QUARANTINE,
)
ERROR = Rule(
    name="error", when=When(severity_at_least=Severity.ERROR, fault_class=HARDWARE), then=Burnin(burnin="smoke")
)
REST = Rule(name="rest", when=When(finding=FindingKind.DEVICE), then=Action.MONITOR)

POLICY = Policy(
    qualify=Qualify(level="smoke", timeout_seconds=100, attempts=3),
    proofs=dict.fromkeys((*HARDWARE, FaultClass.CHIP_TRANSIENT), "smoke"),
    budgets=Budgets(quarantines=Budget(max_ratio=0.5, at_least=1, max_in_window=10, window_seconds=1000)),
    rules=(BAD, TWICE, ONCE, SOFT, FATAL, ERROR, REST),
)


def with_rules(*rules: Rule, policy: Policy = POLICY) -> Policy:
    """The policy with other rules."""
    return replace(policy, rules=rules)


def staged(rule: Rule, stage: Stage) -> Rule:
    """The rule at another stage."""
    return replace(rule, stage=stage)


def hello(
    host: str = "h1",
    boot: str = "b1",
    gpus: int = 2,
    first: int = 0,
    *,
    place: Place = NOWHERE,
    at_s: float | None = None,
) -> AgentConnected:
    """An agent that says hello."""
    inventory = tuple(
        Gpu(gpu=GpuId(f"G{n}"), index=n - first, vendor="sim", sku="simulated", pci_address=None)
        for n in range(first, first + gpus)
    )
    return AgentConnected(
        host=HostName(host),
        hello=Hello(
            host=HostName(host),
            boot_id=BootId(boot),
            agent_version="0",
            capabilities=(),
            inventory=inventory,
            place=place,
            at_s=at_s,
        ),
    )


def burnt(
    verdict: Verdict,
    *blamed: tuple[str, FaultClass],
    order: str | None,
    id: str,  # noqa: A002 - the field's name
    host: str = "h1",
    boot: str = "b1",
    level: str = "smoke",
    at_s: float = 0.0,
    fault_class: FaultClass | None = None,
    vote_key: str = "",
    ballots: tuple[tuple[str, str], ...] = (),
) -> FindingReceived:
    """A burn-in that ended."""
    worst = fault_class or (blamed[0][1] if blamed else FaultClass.NONE)
    return FindingReceived(
        host=HostName(host),
        finding=BurninEnded(
            id=FindingId(id),
            host=HostName(host),
            boot_id=BootId(boot),
            at_s=at_s,
            why=f"the run says {verdict}",
            order_id=None if order is None else OrderId(order),
            level=level,
            verdict=verdict,
            fault_class=worst,
            seed=1,
            vote_key=vote_key,
            ballots=tuple(Ballot(key=key, fingerprint=fingerprint) for key, fingerprint in ballots),
            culprits=tuple(
                Culprit(gpu=GpuId(gpu), index=n, fault_class=c, why="outvoted") for n, (gpu, c) in enumerate(blamed)
            ),
        ),
    )


def fault(
    fault_class: FaultClass,
    severity: Severity,
    *,
    id: str,  # noqa: A002 - the field's name
    host: str = "h1",
    boot: str = "b1",
    gpu: str | None = "G0",
    scope: Scope = Scope.GPU,
    code: str = "nvidia.xid.79",
    at_s: float = 0.0,
) -> FindingReceived:
    """A device fault."""
    return FindingReceived(
        host=HostName(host),
        finding=DeviceFault(
            id=FindingId(id),
            host=HostName(host),
            boot_id=BootId(boot),
            at_s=at_s,
            why="it fell off the bus",
            code=code,
            gpu=None if gpu is None else GpuId(gpu),
            index=None if gpu is None else 0,
            scope=scope,
            severity=severity,
            fault_class=fault_class,
        ),
    )


class Driven:
    """One host driven by events, in a fleet that follows, the way a controller does it."""

    def __init__(self, policy: Policy = POLICY, *, now_s: float = 0.0, replay: Replay | None = None) -> None:
        self.now_s = now_s
        self.replay = replay if replay is not None else Replay(policy)

    @property
    def policy(self) -> Policy:
        return self.replay.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self.replay.policy = self.replay.fleet.policy = policy

    @property
    def fleet(self) -> Fleet:
        return self.replay.fleet

    @property
    def host(self) -> Host | None:
        """The host, if it is known."""
        return self.replay.hosts.get(H1)

    def send(self, event: Event, *, at_s: float | None = None) -> Step[Host]:
        """Judge one event, take the step and what follows from it."""
        self.now_s = self.now_s if at_s is None else at_s
        step = self.replay.play(self.now_s, event)[0].step
        assert step.state is not None
        return step

    def tell(self, event: FleetEvent) -> tuple[Taken, ...]:
        """Judge an event of the fleet, and what it means for its hosts."""
        return self.replay.play(self.now_s, event)

    @property
    def known(self) -> Host:
        """The host, which is known by now."""
        assert self.host is not None
        return self.host

    @property
    def pending(self) -> str:
        """The order that the host waits for."""
        assert self.known.pending is not None
        return self.known.pending.order_id

    def healthy(self) -> "Driven":
        """Bring the host to health."""
        self.send(hello())
        self.send(burnt(Verdict.PASS, order=self.pending, id="qualified"))
        return self

    def others(self, count: int, *, held: int = 0, **place: str) -> "Driven":
        """Add so many other healthy hosts (`o0`, …), so many of them held by an operator."""
        for n in range(count):
            name = f"o{n}"
            self.replay.play(self.now_s, hello(name, first=100 + 2 * n, place=Place(**place)))
            pending = self.replay.hosts[HostName(name)].pending
            assert pending is not None
            passed = burnt(Verdict.PASS, order=pending.order_id, id=f"qualified {name}", host=name)
            self.replay.play(self.now_s, passed)
            if n < held:
                self.replay.play(self.now_s, OperatorQuarantined(host=HostName(name), who="ann", reason="fan"))
        return self
