"""Watches the time: hosts whose burn-in, hold or probation is due, agents that stay away, GPUs unlike their siblings.

Costs nothing for a host that waits for nothing: what is due next stands at the top of a heap.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from fleetd.controller.dispatcher import Dispatcher
from fleetd.controller.judge import Judge
from fleetd.core import outliers
from fleetd.core.invariants import SERVING
from fleetd.core.silence import is_over, is_partition, patience_s
from fleetd.core.waiting import next_due_s
from fleetd.model.event import AgentSilent, IncidentClosed, TimePassed
from fleetd.model.fleet import IncidentKind
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName
from fleetd.model.telemetry import Telemetry
from fleetd.ports import Clock, StoreError

_log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
"""How late it may be seen that something is due."""


_STALE_MIN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Absence:
    """A host without its agent."""

    since_s: float
    """Wall time."""
    calm_s: float
    """What the clock that stands still while many agents are away showed at its beginning."""
    mark: int
    """Of the one entry of the heap that counts for it."""


class Watch:
    """One loop for everything that time does. `host_changed` and `session_changed` keep it informed."""

    def __init__(
        self,
        *,
        judge: Judge,
        dispatcher: Dispatcher,
        telemetry: Mapping[HostName, Telemetry],
        clock: Clock,
    ) -> None:
        self._judge = judge
        self._dispatcher = dispatcher
        self._telemetry = telemetry
        self._clock = clock
        self._due: list[tuple[float, HostName]] = []  # one entry a host counts: that of _due_at_s
        self._due_at_s: dict[HostName, float] = {}
        self._away: dict[HostName, _Absence] = {}  # bounded by the number of hosts
        self._silent: list[tuple[float, int, HostName]] = []  # when to tell (elapsed time), mark of the absence, host
        self._marks = 0
        self._many_away = False
        self._partition = False  # many are away, or were and are coming back
        self._calm_s = 0.0  # time in which not many were away, as of `_looked_at_s` (elapsed time)
        self._looked_at_s = clock.elapsed_s()
        self._streaks = outliers.NO_STREAKS
        self._outliers_at_s = clock.elapsed_s()

    @property
    def away(self) -> int:
        """Hosts that should have an agent connected and have none."""
        return len(self._away)

    def host_changed(self, host: Host) -> None:
        """A decision on a host is on disk."""
        due_s = next_due_s(host, self._judge.policy)
        if due_s is None:
            self._due_at_s.pop(host.name, None)
        elif self._due_at_s.get(host.name) != due_s:
            self._due_at_s[host.name] = due_s
            heapq.heappush(self._due, (due_s, host.name))
        if host.state is Lifecycle.RETIRED:
            self._away.pop(host.name, None)
        elif host.name not in self._away and not self._dispatcher.has_session(host.name):
            self.session_changed(host.name, there=False)

    def session_changed(self, host: HostName, there: bool) -> None:
        """An agent came or went."""
        if there:
            self._away.pop(host, None)
            return
        self._away[host] = _Absence(since_s=self._clock.wall_s(), calm_s=self._calm_s, mark=0)
        self._tell_in(host, self._judge.policy.silence.after_seconds)

    def _tell_in(self, host: HostName, seconds: float) -> None:
        """Have the absence of a host judged so many seconds from now, and not as it was planned before."""
        self._marks += 1
        self._away[host] = replace(self._away[host], mark=self._marks)
        heapq.heappush(self._silent, (self._clock.elapsed_s() + seconds, self._marks, host))
        if len(self._silent) > 2 * len(self._away) + _STALE_MIN:
            # Agents came and went: without this the heap would grow with every time that they did.
            self._silent = [entry for entry in self._silent if self._counts(entry)]
            heapq.heapify(self._silent)

    def _counts(self, entry: tuple[float, int, HostName]) -> bool:
        """Whether an entry of the heap is about an absence that goes on, and the last word on it."""
        _, mark, name = entry
        return name in self._away and self._away[name].mark == mark

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._clock.sleep_s(TICK_SECONDS)
            try:
                await self._look_at_due()
                await self._look_at_silent()
                await self._look_at_outliers()
            except StoreError:
                continue  # the judge has logged and counted it; the next tick looks again

    async def _look_at_due(self) -> None:
        now_s = self._clock.wall_s()
        while self._due and self._due[0][0] <= now_s:
            due_s, name = heapq.heappop(self._due)
            if self._due_at_s.get(name) != due_s:
                continue  # it was decided on since
            # Until the decision says something else, so that nothing is lost when the ledger refuses.
            self._due_at_s[name] = now_s + TICK_SECONDS
            heapq.heappush(self._due, (now_s + TICK_SECONDS, name))
            connected = self._dispatcher.has_session(name)
            step = await self._judge.submit(TimePassed(host=name, connected=connected))
            due_again_s = next_due_s(step.state, self._judge.policy)
            if due_again_s is not None and due_again_s <= now_s and not connected:
                # Only the agent's return changes anything; then the decision on its hello sets the time anew.
                self._due_at_s.pop(name, None)

    async def _look_at_silent(self) -> None:
        now_s, limits = self._clock.elapsed_s(), self._judge.policy.silence
        known = sum(h.state is not Lifecycle.RETIRED for h in self._judge.hosts.values()) if self._away else 0
        self._follow_partition(known)
        while self._silent and self._silent[0][0] <= now_s:
            entry = heapq.heappop(self._silent)
            if not self._counts(entry):
                continue  # it came back, and what is known of its next absence stands elsewhere
            name = entry[2]
            absence = self._away[name]
            excused_s = patience_s(limits, calm_away_s=self._calm_s - absence.calm_s)
            if self._partition and not self._many_away and excused_s > 0:
                self._tell_in(name, excused_s)
                continue
            self._tell_in(name, limits.after_seconds)
            await self._judge.submit(AgentSilent(host=name, since_s=absence.since_s, away=self.away, known=known))
            self._follow_partition(known)  # agents may have come back meanwhile
        if not self._partition:
            await self._close_partitions(known)

    def _follow_partition(self, known: int) -> None:
        """Count silence anew when a partition ends: agents need some time to come back, and none is blamed for it.

        How long that excuses is bounded (`core.silence.patience_s`): a host that is lost while the network comes and
        goes is told.
        """
        now_s, limits, was = self._clock.elapsed_s(), self._judge.policy.silence, self._partition
        if not self._many_away:
            self._calm_s += now_s - self._looked_at_s
        self._looked_at_s = now_s
        self._many_away = is_partition(limits, away=self.away, known=known)
        if self._many_away:
            self._partition = True
            return
        if not was:
            return
        # One that was told to be lost stays lost: it neither keeps a partition open, nor is it counted anew.
        missing = [name for name in self._away if (h := self._judge.hosts.get(name)) is not None and h.silent is None]
        self._partition = not is_over(limits, missing=len(missing), known=known)
        if not self._partition:
            for name in missing:
                self._tell_in(name, patience_s(limits, calm_away_s=self._calm_s - self._away[name].calm_s))

    async def _close_partitions(self, known: int) -> None:
        for incident in self._judge.record.incidents:
            if incident.kind is IncidentKind.PARTITION:
                said = f"{self.away} of {known} agents are away"
                await self._judge.submit_fleet(
                    IncidentClosed(incident=incident.id, who="fleetd", reason=said, acquit=True)
                )

    async def _look_at_outliers(self) -> None:
        limits = self._judge.policy.outliers
        if limits is None or self._clock.elapsed_s() - self._outliers_at_s < limits.every_seconds:
            return
        self._outliers_at_s = self._clock.elapsed_s()
        looked_at = (
            (host, telemetry.vitals)
            for host in self._judge.hosts.values()
            if host.state in SERVING and self._dispatcher.has_session(host.name)
            if (telemetry := self._telemetry.get(host.name)) is not None
        )
        self._streaks, found = outliers.look(self._streaks, looked_at, limits)
        for outlier in found:
            _log.warning("outlier", host=outlier.host, gpu=outlier.gpu, metric=outlier.metric, z=round(outlier.z, 1))
            await self._judge.submit(outlier)
