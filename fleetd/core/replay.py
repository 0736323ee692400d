"""A whole fleet decided in memory, to replay a journal, to play a policy's tests, to rehearse a policy."""

import heapq
from dataclasses import dataclass

from fleetd.core.fleet import Fleet
from fleetd.core.fleetwide import judge_fleet, rejudgement
from fleetd.core.judgement import judge
from fleetd.core.policy import Policy
from fleetd.core.step import Step
from fleetd.core.waiting import next_due_s
from fleetd.model.event import AnyEvent, Event, FindingReceived, FleetEvent, TimePassed
from fleetd.model.fact import Beginning
from fleetd.model.host import Host
from fleetd.model.ids import FindingId, HostName
from fleetd.model.journal import StoreImage

MAX_DUE = 1_000_000
"""Things that may fall due while time passes once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """An event and the step that it led to."""

    event: AnyEvent
    before: Host | None
    step: Step[Host] | Step[None]


class Replay:
    """A fleet without a disk, a clock or a network."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.fleet = Fleet(policy)
        self.hosts: dict[HostName, Host] = {}
        self._counted: set[FindingId] = set()
        self._due: list[tuple[float, HostName]] = []  # a heap; what was decided on since is skipped

    def begin_at(self, beginning: Beginning) -> None:
        """Begin with the hosts and the fleet as they stood where a pruned journal begins."""
        image = StoreImage(
            hosts=beginning.hosts, spools=(), open_orders=(), fleet=beginning.fleet, quarantines=(), recent=()
        )
        self.fleet = Fleet.of(image, self.policy)
        for host in beginning.hosts:
            self.hosts[host.name] = host
            due_s = next_due_s(host, self.policy)
            if due_s is not None:
                heapq.heappush(self._due, (due_s, host.name))

    def take(self, now_s: float, event: AnyEvent) -> Taken:
        """Decide one event and nothing that follows from it, as a journal has it."""
        if isinstance(event, FleetEvent):
            return self._take_fleet(now_s, event)
        before = self.hosts.get(event.host)
        step = self._judge(now_s, before, event)
        if not (before is None and step.refused):
            self.fleet.apply(now_s=now_s, before=before, event=event, step=step)
            self.fleet.commit()
            self.hosts[event.host] = step.state
            due_s = next_due_s(step.state, self.policy)
            if due_s is not None and step.state is not before:
                heapq.heappush(self._due, (due_s, event.host))
        return Taken(event=event, before=before, step=step)

    def play(self, now_s: float, event: AnyEvent) -> tuple[Taken, ...]:
        """Decide one event and everything that follows from it, as a controller does."""
        first = self.take(now_s, event)
        taken = [first]
        waiting: list[Event] = list(first.step.followups)
        if isinstance(event, FleetEvent) and not first.step.refused:
            waiting += [e for h in sorted(self.hosts) if (e := rejudgement(event, self.hosts[h])) is not None]
        while waiting:
            taken.append(self.take(now_s, waiting.pop(0)))
            waiting += taken[-1].step.followups
        return tuple(taken)

    def pass_time(self, to_s: float, *, connected: bool) -> tuple[tuple[float, Taken], ...]:
        """Let time pass for every host for which something is due before `to_s`; returns when what was decided."""
        acted: list[tuple[float, Taken]] = []
        for _ in range(MAX_DUE):
            if not self._due or self._due[0][0] >= to_s:
                return tuple(acted)
            due_s, name = heapq.heappop(self._due)
            if next_due_s(self.hosts[name], self.policy) == due_s:
                # A burn-in is overdue after its time, not at it.
                event = TimePassed(host=name, connected=connected)
                acted += [(due_s, taken) for taken in self.play(due_s + 1e-3, event)]
        raise RuntimeError(f"{MAX_DUE} things fell due before {to_s}: the policy goes in circles")

    def _judge(self, now_s: float, before: Host | None, event: Event) -> Step[Host]:
        if isinstance(event, FindingReceived):
            if event.finding.id in self._counted and before is not None:
                return Step(state=before, why=counts_once(event.finding.id))
            self._counted.add(event.finding.id)
        return judge(now_s=now_s, host=before, event=event, fleet=self.fleet, policy=self.policy)

    def _take_fleet(self, now_s: float, event: FleetEvent) -> Taken:
        step = judge_fleet(now_s=now_s, record=self.fleet.record, event=event)
        self.fleet.apply(now_s=now_s, before=None, event=event, step=step)
        self.fleet.commit()
        return Taken(event=event, before=None, step=step)


def counts_once(finding: FindingId) -> str:
    """Why a finding that was judged before changes nothing."""
    return f"finding {finding} again: it counts once"
