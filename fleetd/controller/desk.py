"""Where operators come in: look at hosts, quarantine, release, ask why."""

import math
from collections.abc import Callable, Mapping, Sequence

from fleetd.controller.judge import Judge
from fleetd.controller.power import PowerBudgets
from fleetd.core.alerts import finding_of
from fleetd.model.alert import Alert
from fleetd.model.event import (
    AutomationResumed,
    AutomationStopped,
    BudgetRearmed,
    Event,
    FindingReceived,
    FleetEvent,
    GpuSwapped,
    IncidentClosed,
    JobEnded,
    OperatorBurnin,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepaired,
    OperatorRepairs,
    OperatorRetires,
)
from fleetd.model.fact import Fact, FactQuery
from fleetd.model.finding import DeviceFault, Finding
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.ids import FindingId, GpuId, HostName
from fleetd.model.order import Drain
from fleetd.model.power_lease import PowerUse
from fleetd.model.telemetry import GpuSample, Telemetry
from fleetd.ports import AlertsTaken, Peer, Refused, RunBlocking, Store, Unknown

FINDINGS_SHOWN = 100
STEPS_SHOWN = 200
LINE_CHARS_MAX = 1000


class Desk:
    """The controller's `DeskDoor`."""

    def __init__(
        self,
        *,
        judge: Judge,
        store: Store,
        telemetry: Mapping[HostName, Telemetry],
        run_blocking: RunBlocking,
        power: PowerBudgets,
    ) -> None:
        self._judge = judge
        self._power = power
        self._store = store
        self._telemetry = telemetry
        self._run_blocking = run_blocking

    async def hosts(self) -> tuple[Host, ...]:
        """Return all hosts, by name."""
        return tuple(self._judge.hosts[name] for name in sorted(self._judge.hosts))

    async def host(self, name: HostName) -> tuple[Host, tuple[GpuSample, ...], tuple[Finding, ...]]:
        """Return one host with its latest samples and newest findings. Raises Refused, StoreError."""
        host = self._known(name)
        findings: list[Finding] = []
        await self._run_blocking(lambda: findings.extend(self._store.findings(name, limit=FINDINGS_SHOWN)))
        latest = self._telemetry.get(name)
        return host, () if latest is None else latest.whole(), tuple(findings)

    async def quarantine(
        self,
        peer: Peer,
        name: HostName,
        reason: str,
        *,
        expires_at_s: float | None = None,
        drain: Drain | None = None,
    ) -> Host:
        """Put an operator's hold on a host. Raises Refused, StoreError."""
        return await self._ask(
            peer,
            name,
            lambda: OperatorQuarantined(
                host=name, who=peer.name, reason=_reason(reason), expires_at_s=expires_at_s, drain=drain
            ),
        )

    async def release(self, peer: Peer, name: HostName, reason: str, *, override: bool) -> Host:
        """Lift the holds of a host. Raises Refused when the proof is missing and `override` is not set; StoreError."""
        return await self._ask(
            peer, name, lambda: OperatorReleased(host=name, who=peer.name, reason=_reason(reason), override=override)
        )

    async def burnin(self, peer: Peer, name: HostName, reason: str, *, level: str | None) -> Host:
        """Run a burn-in on a host; None: the level that proves it. Raises Refused, StoreError."""
        return await self._ask(
            peer, name, lambda: OperatorBurnin(host=name, who=peer.name, reason=_reason(reason), level=level)
        )

    async def repair(self, peer: Peer, name: HostName, reason: str) -> Host:
        """Leave a host to a person until he orders a burn-in. Raises Refused, StoreError."""
        return await self._ask(peer, name, lambda: OperatorRepairs(host=name, who=peer.name, reason=_reason(reason)))

    async def repaired(self, peer: Peer, name: HostName, reason: str) -> Host:
        """End a repair with the burn-in that proves the host. Raises Refused, StoreError."""
        return await self._ask(peer, name, lambda: OperatorRepaired(host=name, who=peer.name, reason=_reason(reason)))

    async def swap(self, peer: Peer, name: HostName, reason: str, *, old: GpuId, new: GpuId) -> Host:
        """Take note that a GPU of a host was exchanged. Raises Refused, StoreError."""
        return await self._ask(
            peer, name, lambda: GpuSwapped(host=name, who=peer.name, reason=_reason(reason), old=old, new=new)
        )

    async def retire(self, peer: Peer, name: HostName, reason: str) -> Host:
        """Take a host out of the fleet for good. Raises Refused, StoreError."""
        return await self._ask(peer, name, lambda: OperatorRetires(host=name, who=peer.name, reason=_reason(reason)))

    async def job_ended(self, peer: Peer, name: HostName, job: str, *, ok: bool, ran_seconds: float) -> Host:
        """Take note that a job of the scheduler ended on a host. Raises Refused, StoreError."""
        if not 0 <= ran_seconds < math.inf:
            raise Refused(f"a job runs for a number of seconds, not {ran_seconds:g}")
        job_id = _line(job, "job's name", empty="name the job that ended")
        return await self._ask(peer, name, lambda: JobEnded(host=name, job=job_id, ok=ok, ran_seconds=ran_seconds))

    async def fleet(self) -> FleetRecord:
        """Return tripped budgets, the kill switch and open incidents."""
        return self._judge.record

    async def rearm_budget(self, peer: Peer, reason: str) -> FleetRecord:
        """Let automatic quarantines through again after budgets tripped. Raises Refused, StoreError."""
        return await self._ask_fleet(peer, lambda who: BudgetRearmed(who=who, reason=_reason(reason)))

    async def stop_automation(self, peer: Peer, reason: str) -> FleetRecord:
        """Stop every automatic action at once. Raises Refused, StoreError."""
        return await self._ask_fleet(peer, lambda who: AutomationStopped(who=who, reason=_reason(reason)))

    async def resume_automation(self, peer: Peer, reason: str) -> FleetRecord:
        """Take the kill switch back. Raises Refused, StoreError."""
        return await self._ask_fleet(peer, lambda who: AutomationResumed(who=who, reason=_reason(reason)))

    async def close_incident(self, peer: Peer, incident: str, reason: str, *, acquit: bool) -> FleetRecord:
        """Close an incident; its hosts are acquitted, or judged as they are. Raises Refused, StoreError."""
        return await self._ask_fleet(
            peer, lambda who: IncidentClosed(incident=incident, who=who, reason=_reason(reason), acquit=acquit)
        )

    async def _ask(self, peer: Peer, name: HostName, make: Callable[[], Event]) -> Host:
        self._known(name)
        _require_operator(peer)
        step = await self._judge.submit(make())
        if step.refused:
            raise Refused(step.why)
        return step.state

    async def _ask_fleet(self, peer: Peer, make: Callable[[str], FleetEvent]) -> FleetRecord:
        _require_operator(peer)
        step = await self._judge.submit_fleet(make(f"operator:{peer.name}"))
        if step.refused:
            raise Refused(step.why)
        return self._judge.record

    async def explain(self, name: HostName) -> tuple[tuple[float, str], ...]:
        """Return (wall time, why) of each step of a host, oldest first. Raises Refused, StoreError."""
        self._known(name)
        steps: list[tuple[float, str]] = []
        await self._run_blocking(lambda: steps.extend(self._store.reasons(name, limit=STEPS_SHOWN)))
        return tuple(steps)

    async def facts(self, query: FactQuery) -> tuple[Fact, ...]:
        """Return what journal entries say in short. Raises StoreError."""
        found: list[Fact] = []
        await self._run_blocking(lambda: found.extend(self._store.facts(query)))
        return tuple(found)

    async def alerts(self, peer: Peer, alerts: Sequence[Alert]) -> AlertsTaken:
        """Make findings of alerts; one that was told before counts once. Raises Refused, StoreError."""
        if peer.role != "hook":
            _require_operator(peer)
        refused: list[str] = []
        findings: list[DeviceFault] = []
        for alert in alerts:
            host = self._judge.hosts.get(alert.host)
            found = f"{alert.name}: no host {alert.host!r} is known" if host is None else finding_of(alert, host)
            if isinstance(found, str):
                refused.append(found)
            else:
                findings.append(found)
        known: set[FindingId] = set()
        await self._run_blocking(lambda: known.update(self._store.findings_known([f.id for f in findings])))
        new = {found.id: found for found in findings if found.id not in known}
        for found in new.values():
            await self._judge.submit(FindingReceived(host=found.host, finding=found))
        return AlertsTaken(taken=len(new), refused=tuple(refused))

    async def power(self) -> PowerUse:
        """Return how the power budgets stand. Raises Refused when there are none."""
        use = self._power.use()
        if use is None:
            raise Refused("this controller shares no power budget out; name a tree in its configuration: `power: tree`")
        return use

    def _known(self, name: HostName) -> Host:
        host = self._judge.hosts.get(name)
        if host is None:
            raise Unknown(f"no host {name!r}: `fleetd host list` shows the hosts that ever reported")
        return host


def _require_operator(peer: Peer) -> None:
    if peer.role != "operator":
        raise Refused(f"{peer.name} has the role {peer.role}; only an operator may change a host")


def _reason(text: str) -> str:
    return _line(text, "reason", empty="say why: a change needs a reason")


def _line(text: str, what: str, *, empty: str) -> str:
    line = " ".join(text.split())
    if not line:
        raise Refused(empty)
    if len(line) > LINE_CHARS_MAX:
        raise Refused(f"the {what} is longer than {LINE_CHARS_MAX} characters")
    return line
