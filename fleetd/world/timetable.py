"""What happens when, and what is expected when: scenarios that read like timetables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fleetd.model.finding import FaultClass, Scope, Severity
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName
from fleetd.model.order import Notify, Order, Quarantine, Release, RunBurnin
from fleetd.sim.gpu import Cure, Trouble
from fleetd.sim.link import Network
from fleetd.world.machine import Machine
from fleetd.world.outcome import Outcome
from fleetd.world.people import Operator, Site

_HOSTS_NAMED = 4


class Scene(Site, Protocol):
    """What a timetable needs of a world."""

    machines: dict[HostName, Machine]
    network: Network

    def operator(self, name: str) -> Operator:
        """Return somebody who may change hosts."""
        ...

    def exchange(self, one: Machine, one_index: int, other: Machine, other_index: int) -> None:
        """Exchange two parts."""
        ...

    def reinstall(self, machine: Machine) -> None:
        """Give a host an empty disk and boot it."""
        ...

    def double(self, machine: Machine) -> None:
        """Switch on a second machine under the name of this one."""
        ...

    def single(self, machine: Machine) -> None:
        """Switch off whatever else uses the name of this machine, and boot it."""
        ...

    def fill_disk(self, host: str | None, *, full: bool) -> None:
        """Let a disk refuse writes, or take them again; None: the controller's."""
        ...


Act = Callable[[Scene], object]
"""What returns something awaitable goes on beside the timetable."""
Expected = type[Quarantine] | type[Release] | type[RunBurnin] | type[Notify] | Lifecycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the timetable."""

    at_s: float
    what: str
    """In words, for the log and for a failure."""
    act: Act


class Moment:
    """`world.at(60)`: everything that is called on it happens at that time, in the order of the calls."""

    def __init__(self, at_s: float, add: Callable[[Entry], None]) -> None:
        self._at_s = at_s
        self._add = add

    def do(self, what: str, act: Act) -> "Moment":
        """Let anything happen."""
        self._add(Entry(at_s=self._at_s, what=what, act=act))
        return self

    # ── hardware ────────────────────────────────────────────────────────────────────────────────────────────────────

    def plant(self, host: str, gpu: int, trouble: Trouble, *, cure: Cure = Cure.SWAP) -> "Moment":
        """Let something go wrong with the GPU at this index."""
        return self.do(f"{host} gpu {gpu}: {trouble}", lambda w: w.machine(host).plant(gpu, trouble, cure))

    def heal(self, host: str) -> "Moment":
        """Let all troubles of a host's GPUs end by themselves."""
        return self.do(f"{host}: its GPUs are well", lambda w: w.machine(host).heal())

    def report(
        self,
        host: str,
        code: str,
        *,
        gpu: int | None = None,
        fault_class: FaultClass = FaultClass.NONE,
        severity: Severity = Severity.ERROR,
        scope: Scope = Scope.GPU,
    ) -> "Moment":
        """Let the kernel of a host log a fault."""
        return self.do(
            f"{host}: kernel log {code}",
            lambda w: w.machine(host).report(code, index=gpu, fault_class=fault_class, severity=severity, scope=scope),
        )

    def log(self, host: str, *lines: str, planted: bool = True) -> "Moment":
        """Let the kernel of a host log lines, for its agent to judge (`Settings.catalogue`)."""

        def act(world: Scene) -> None:
            for line in lines:
                world.machine(host).log(line, planted=planted)

        return self.do(f"{host}: {len(lines)} lines in the kernel log", act)

    def swap(self, host: str, gpu: int, *, other_host: str, other_gpu: int) -> "Moment":
        """Exchange two GPUs; both hosts are rebooted for it."""
        return self.do(
            f"{host} gpu {gpu} and {other_host} gpu {other_gpu} are exchanged",
            lambda w: w.exchange(w.machine(host), gpu, w.machine(other_host), other_gpu),
        )

    def compute_wrong(self, host: str) -> "Moment":
        """Let all GPUs of a host compute the same wrong results."""
        return self.do(f"{host}: all GPUs are wrong alike", lambda w: w.machine(host).compute_wrong())

    def hang_driver(self, host: str) -> "Moment":
        """Let the driver of a host answer no call until it is rebooted."""
        return self.do(f"{host}: the driver hangs", lambda w: w.machine(host).hang_driver())

    def slow_driver(self, host: str, seconds: float) -> "Moment":
        """From the next boot on, let the driver answer only so long after it."""

        def act(world: Scene) -> None:
            world.machine(host).driver_seconds = seconds

        return self.do(f"{host}: its driver takes {seconds:g} s to start", act)

    # ── machines and processes ──────────────────────────────────────────────────────────────────────────────────────

    def reboot(self, host: str) -> "Moment":
        """Cut the power of a host; it boots again."""
        return self.do(f"{host}: reboots", lambda w: w.machine(host).reboot())

    def switch_off(self, host: str) -> "Moment":
        """Cut the power of a host."""
        return self.do(f"{host}: is off", lambda w: w.machine(host).switch_off())

    def switch_on(self, host: str) -> "Moment":
        """Boot a host that was off."""
        return self.do(f"{host}: is on", lambda w: w.machine(host).switch_on())

    def reinstall(self, host: str) -> "Moment":
        """Give a host an empty disk and boot it."""
        return self.do(f"{host}: is installed anew", lambda w: w.reinstall(w.machine(host)))

    def lose_state(self, host: str) -> "Moment":
        """Delete the agent's files under it."""
        return self.do(f"{host}: the agent's files are deleted", lambda w: w.machine(host).lose_state())

    def double(self, host: str) -> "Moment":
        """Switch on a second machine that believes to be this host."""
        return self.do(f"{host}: a second machine uses its name", lambda w: w.double(w.machine(host)))

    def single(self, host: str) -> "Moment":
        """Switch off the second machine, and boot the first."""
        return self.do(f"{host}: the second machine is gone", lambda w: w.single(w.machine(host)))

    def kill_agent(self, host: str) -> "Moment":
        """Kill the agent of a host."""
        return self.do(f"{host}: its agent is killed", lambda w: w.machine(host).kill_agent())

    def kill_controller(self) -> "Moment":
        """Kill the controller."""
        return self.do("the controller is killed", lambda w: w.room.kill())

    def jump_clock(self, host: str | None, seconds: float) -> "Moment":
        """Set the wall clock of a host, or of the controller (None), forward or back."""
        whose = "the controller" if host is None else host
        return self.do(
            f"{whose}: its clock jumps by {seconds:+g} s",
            lambda w: (w.room.clock if host is None else w.machine(host).clock).jump(seconds),
        )

    def drift_clock(self, host: str | None, ratio: float) -> "Moment":
        """From now on let a clock gain so many seconds each second; None: the controller's."""
        return self.do(
            f"{host or 'the controller'}: its clock gains {ratio:+.2%}",
            lambda w: (w.room.clock if host is None else w.machine(host).clock).drift(ratio),
        )

    def fill_disk(self, host: str | None) -> "Moment":
        """Let the disk of a host, or of the controller (None), refuse all writes."""
        return self.do(f"{host or 'the controller'}: disk full", lambda w: w.fill_disk(host, full=True))

    def free_disk(self, host: str | None) -> "Moment":
        """Let it take writes again."""
        return self.do(f"{host or 'the controller'}: disk has room", lambda w: w.fill_disk(host, full=False))

    def isolate(self, *hosts: str) -> "Moment":
        """Cut hosts off from the controller."""
        return self.do(f"{_named(hosts)} cut off", lambda w: w.network.isolate(*map(HostName, hosts)))

    def rejoin(self, *hosts: str) -> "Moment":
        """Reconnect hosts."""
        return self.do(f"{_named(hosts)} back", lambda w: w.network.rejoin(*map(HostName, hosts)))

    # ── people ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def quarantine(self, host: str, reason: str, *, for_s: float | None = None, who: str = "eve") -> "Moment":
        """Let an operator put a hold on a host, for good or for some seconds."""
        return self.do(f"{who} quarantines {host}", lambda w: w.operator(who).quarantine(host, reason, for_s=for_s))

    def release(self, host: str, reason: str, *, override: bool = False, who: str = "eve") -> "Moment":
        """Let an operator ask for a host back."""
        return self.do(f"{who} releases {host}", lambda w: w.operator(who).release(host, reason, override=override))

    def burnin(self, host: str, reason: str, *, who: str = "eve") -> "Moment":
        """Let an operator have a host prove itself."""
        return self.do(f"{who} has {host} burnt in", lambda w: w.operator(who).burnin(host, reason))

    def repair(self, host: str, reason: str, *, who: str = "eve") -> "Moment":
        """Let an operator begin to work on a host."""
        return self.do(f"{who} repairs {host}", lambda w: w.operator(who).repair(host, reason))

    def retire(self, host: str, reason: str, *, who: str = "eve") -> "Moment":
        """Let an operator take a host out of the fleet."""
        return self.do(f"{who} retires {host}", lambda w: w.operator(who).retire(host, reason))

    def rearm(self, reason: str, *, who: str = "eve") -> "Moment":
        """Let an operator re-arm the quarantine budgets."""
        return self.do(f"{who} re-arms the budgets", lambda w: w.operator(who).rearm(reason))

    def stop_automation(self, reason: str, *, who: str = "eve", for_s: float | None = None) -> "Moment":
        """Let an operator use the kill switch, and take it back after some seconds."""
        if for_s is None:
            return self.do(f"{who} stops automation", lambda w: w.operator(who).stop_automation(reason))
        return self.do(f"{who} stops automation", lambda w: w.operator(who).stop_automation_for(for_s, reason))

    def resume_automation(self, reason: str, *, who: str = "eve") -> "Moment":
        """Let an operator take the kill switch back."""
        return self.do(f"{who} resumes automation", lambda w: w.operator(who).resume_automation(reason))

    def close_incidents(self, reason: str, *, acquit: bool, who: str = "eve") -> "Moment":
        """Let an operator close every storm that is open."""
        return self.do(f"{who} closes incidents", lambda w: w.operator(who).close_incidents(reason, acquit=acquit))


def _named(hosts: Sequence[str]) -> str:
    return f"{', '.join(hosts)}:" if len(hosts) <= _HOSTS_NAMED else f"{len(hosts)} hosts:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Something that must, or must not, be found in the journal."""

    what: Expected
    """An order that is issued, or a state that is entered."""
    host: str | None
    why: str = ""
    """Words that its reason must hold."""
    from_s: float = 0.0
    to_s: float = float("inf")
    at_least: int = 1
    at_most: int | None = None
    withheld: bool = False

    def misses(self, outcome: Outcome) -> str | None:
        """Say what is wrong; None when it is fulfilled."""
        times = [t for t in self._times(outcome) if self.from_s <= t <= self.to_s]
        if len(times) >= self.at_least and (self.at_most is None or len(times) <= self.at_most):
            return None
        name = self.what.value if isinstance(self.what, Lifecycle) else self.what.__name__
        wanted = f"{self.at_least}" if self.at_most is None else f"{self.at_least} to {self.at_most}"
        elsewhere = ", ".join(f"{t:.0f} s" for t in self._times(outcome)[:10]) or "never"
        return (
            f"expected {'withheld ' if self.withheld else ''}{name} of {self.host or 'any host'} {wanted} times "
            f"between {self.from_s:g} and {self.to_s:g} s, found {len(times)}; in the whole journal: {elsewhere}"
        )

    def _times(self, outcome: Outcome) -> list[float]:
        found: list[float] = []
        for at_s, entry in outcome.journal:
            if entry.host is None or (self.host is not None and entry.host.name != self.host):
                continue
            if isinstance(self.what, Lifecycle):
                if entry.host.state is self.what and self.why in entry.host.why:
                    found.append(at_s)
                continue
            orders: tuple[Order, ...] = tuple(w.order for w in entry.withheld) if self.withheld else entry.orders
            found += [at_s for order in orders if isinstance(order, self.what) and self.why in order.why]
        return found


class Expecting:
    """`world.expect(Quarantine, host="h03")`, to be completed by when."""

    def __init__(self, expectation: Expectation, expectations: list[Expectation]) -> None:
        self._expectations = expectations
        self._position = len(expectations)
        expectations.append(expectation)

    def _change(self, **changes: float) -> "Expecting":
        self._expectations[self._position] = replace(self._expectations[self._position], **changes)  # type: ignore[arg-type]  # names of its fields
        return self

    def between(self, from_s: float, to_s: float) -> "Expecting":
        """At least once in this time, in seconds of the world."""
        return self._change(from_s=from_s, to_s=to_s)

    def by(self, to_s: float) -> "Expecting":
        """At least once until this time."""
        return self._change(to_s=to_s)

    def after(self, from_s: float) -> "Expecting":
        """At least once from this time on."""
        return self._change(from_s=from_s)

    def times(self, count: int) -> "Expecting":
        """Exactly so often."""
        return self._change(at_least=count, at_most=count)

    def never(self) -> "Expecting":
        """Not once."""
        return self.times(0)
