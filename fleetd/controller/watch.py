"""Watches the time: hosts whose burn-in, hold or probation is due, agents that stay away, GPUs unlike their siblings.

Costs nothing for a host that waits for nothing: what is due next stands at the top of a heap.
"""

import heapq
from collections.abc import Mapping

import structlog

from fleetd.controller.dispatcher import Dispatcher
from fleetd.controller.judge import Judge
from fleetd.core import outliers
from fleetd.core.invariants import SERVING
from fleetd.core.silence import is_partition
from fleetd.core.waiting import next_due_s
from fleetd.model.event import AgentSilent, IncidentClosed, TimePassed
from fleetd.model.fleet import IncidentKind
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock, StoreError

_log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
"""How late it may be seen that something is due."""


class Watch:
    """One loop for everything that time does. `host_changed` and `session_changed` keep it informed."""

    def __init__(
        self,
        *,
        judge: Judge,
        dispatcher: Dispatcher,
        telemetry: Mapping[HostName, tuple[GpuSample, ...]],
        clock: Clock,
    ) -> None:
        self._judge = judge
        self._dispatcher = dispatcher
        self._telemetry = telemetry
        self._clock = clock
        self._due: list[tuple[float, HostName]] = []  # one entry a host counts: that of _due_at_s
        self._due_at_s: dict[HostName, float] = {}
        self._away_since: dict[HostName, tuple[float, float]] = {}  # elapsed and wall time
        self._silent: list[tuple[float, float, HostName]] = []  # when to tell, since when (both elapsed time), host
        self._partition = False
        self._streaks = outliers.NO_STREAKS
        self._outliers_at_s = clock.elapsed_s()

    @property
    def away(self) -> int:
        """Hosts that should have an agent connected and have none."""
        return len(self._away_since)

    def host_changed(self, host: Host) -> None:
        """A decision on a host is on disk."""
        due_s = next_due_s(host, self._judge.policy)
        if due_s is None:
            self._due_at_s.pop(host.name, None)
        elif self._due_at_s.get(host.name) != due_s:
            self._due_at_s[host.name] = due_s
            heapq.heappush(self._due, (due_s, host.name))
        if host.state is Lifecycle.RETIRED:
            self._away_since.pop(host.name, None)
        elif host.name not in self._away_since and not self._dispatcher.has_session(host.name):
            self.session_changed(host.name, there=False)

    def session_changed(self, host: HostName, there: bool) -> None:
        """An agent came or went."""
        if there:
            self._away_since.pop(host, None)
            return
        now_s = self._clock.elapsed_s()
        self._away_since[host] = (now_s, self._clock.wall_s())
        heapq.heappush(self._silent, (now_s + self._judge.policy.silence.after_seconds, now_s, host))

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
        known = sum(h.state is not Lifecycle.RETIRED for h in self._judge.hosts.values()) if self._away_since else 0
        self._restart_after_partition(known)
        while self._silent and self._silent[0][0] <= now_s:
            _, since_s, name = heapq.heappop(self._silent)
            away = self._away_since.get(name)
            if away is None or away[0] != since_s:
                continue  # it came back, and what is known of its next absence stands elsewhere
            heapq.heappush(self._silent, (now_s + limits.after_seconds, since_s, name))
            await self._judge.submit(AgentSilent(host=name, since_s=away[1], away=self.away, known=known))
            self._restart_after_partition(known)  # agents may have come back meanwhile
        await self._close_partitions(known)

    def _restart_after_partition(self, known: int) -> None:
        """Count silence anew when a partition ends: agents need some time to come back, and none is blamed for it."""
        was = self._partition
        self._partition = is_partition(self._judge.policy.silence, away=self.away, known=known)
        if not was or self._partition:
            return
        for name in tuple(self._away_since):
            host = self._judge.hosts.get(name)
            if host is not None and host.silent is None:  # one that was lost before the partition stays lost
                self.session_changed(name, there=False)

    async def _close_partitions(self, known: int) -> None:
        for incident in self._judge.record.incidents:
            if incident.kind is IncidentKind.PARTITION and not is_partition(
                self._judge.policy.silence, away=self.away, known=known
            ):
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
            (host, self._telemetry.get(host.name, ()))
            for host in self._judge.hosts.values()
            if host.state in SERVING and self._dispatcher.has_session(host.name)
        )
        self._streaks, found = outliers.look(self._streaks, looked_at, limits)
        for outlier in found:
            _log.warning("outlier", host=outlier.host, gpu=outlier.gpu, metric=outlier.metric, z=round(outlier.z, 1))
            await self._judge.submit(outlier)
