"""Where operators come in: look at hosts, quarantine, release, ask why."""

from collections.abc import Mapping

from fleetd.controller.judge import Judge
from fleetd.model.event import OperatorQuarantined, OperatorReleased
from fleetd.model.finding import Finding
from fleetd.model.host import Host
from fleetd.model.ids import HostName
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Peer, Refused, RunBlocking, Store

FINDINGS_SHOWN = 100
STEPS_SHOWN = 200
REASON_LENGTH_MAX = 1000


class Desk:
    """The controller's `DeskDoor`."""

    def __init__(
        self,
        *,
        judge: Judge,
        store: Store,
        telemetry: Mapping[HostName, tuple[GpuSample, ...]],
        run_blocking: RunBlocking,
    ) -> None:
        self._judge = judge
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
        return host, self._telemetry.get(name, ()), tuple(findings)

    async def quarantine(self, peer: Peer, name: HostName, reason: str) -> Host:
        """Put an operator's hold on a host. Raises Refused, StoreError."""
        self._known(name)
        _require_operator(peer)
        event = OperatorQuarantined(host=name, who=peer.name, reason=_reason(reason))
        step = await self._judge.submit(event)
        if step.refused:
            raise Refused(step.why)
        return step.state

    async def release(self, peer: Peer, name: HostName, reason: str, *, override: bool) -> Host:
        """Lift the holds of a host. Raises Refused when the proof is missing and `override` is not set; StoreError."""
        self._known(name)
        _require_operator(peer)
        event = OperatorReleased(host=name, who=peer.name, reason=_reason(reason), override=override)
        step = await self._judge.submit(event)
        if step.refused:
            raise Refused(step.why)
        return step.state

    async def rearm_budget(self, peer: Peer, reason: str) -> None:
        """Let automatic quarantines through again after the budget tripped. Raises Refused, StoreError."""
        _require_operator(peer)
        if not self._judge.budget_tripped:
            raise Refused("the quarantine budget has not tripped: there is nothing to re-arm")
        await self._judge.rearm_budget(f"operator:{peer.name}", _reason(reason))

    async def explain(self, name: HostName) -> tuple[tuple[float, str], ...]:
        """Return (wall time, why) of each step of a host, oldest first. Raises Refused, StoreError."""
        self._known(name)
        steps: list[tuple[float, str]] = []

        def read() -> None:
            steps.extend((entry.at_s, entry.why) for entry in self._store.history(name, limit=STEPS_SHOWN))

        await self._run_blocking(read)
        return tuple(steps)

    def _known(self, name: HostName) -> Host:
        host = self._judge.hosts.get(name)
        if host is None:
            raise Refused(f"no host {name!r}: `fleetd host list` shows the hosts that ever reported")
        return host


def _require_operator(peer: Peer) -> None:
    if peer.role != "operator":
        raise Refused(f"{peer.name} has the role {peer.role}; only an operator may change a host")


def _reason(text: str) -> str:
    reason = " ".join(text.split())
    if not reason:
        raise Refused("say why: a change needs a reason")
    if len(reason) > REASON_LENGTH_MAX:
        raise Refused(f"the reason is longer than {REASON_LENGTH_MAX} characters")
    return reason
