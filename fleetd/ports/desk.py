"""What the controller offers to people, whatever the transport they come in by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fleetd.model.alert import Alert
from fleetd.model.fact import Fact, FactQuery
from fleetd.model.finding import Finding
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.ids import GpuId, HostName
from fleetd.model.order import Drain
from fleetd.model.power_lease import PowerUse
from fleetd.model.telemetry import GpuSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who is on the other end of a connection, from its certificate (or what it says, in insecure mode)."""

    name: str
    role: str
    """`agent`, `operator` or `viewer`; `hook`: a monitor, which may hand in alerts and nothing else."""


class Refused(Exception):  # noqa: N818 - it is an answer, not an accident
    """The controller says no to a peer; the message says why and what to do."""


class Unknown(Refused):
    """There is no such host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsTaken:
    """What became of alerts."""

    taken: int
    """Findings that were new."""
    refused: tuple[str, ...]
    """One line each: why an alert was not taken."""


class DeskDoor(Protocol):
    """What the controller offers to operators, whatever the transport. Names are host names.

    Every method raises NotJudge (a StoreError) while another controller is the judge: nothing was done.
    """

    async def hosts(self) -> tuple[Host, ...]:
        """All hosts, by name."""

    async def host(self, name: HostName) -> tuple[Host, tuple[GpuSample, ...], tuple[Finding, ...]]:
        """One host with its latest samples and newest findings (at most 100, newest first). Raises Refused."""

    async def quarantine(
        self,
        peer: Peer,
        name: HostName,
        reason: str,
        *,
        expires_at_s: float | None = None,
        drain: Drain | None = None,
    ) -> Host:
        """Put an operator's hold on the host, for good or until a wall time; its work leaves as `drain` says.

        None: as the policy has it. A host that is held already is told anew how its work leaves. Raises Refused,
        StoreError.
        """

    async def release(self, peer: Peer, name: HostName, reason: str, *, override: bool) -> Host:
        """Lift the holds; without the proof that each asks for only with `override`. Raises Refused, StoreError."""

    async def burnin(self, peer: Peer, name: HostName, reason: str, *, level: str | None) -> Host:
        """Run a burn-in; None: the level that makes the host healthy or releasable. Raises Refused, StoreError."""

    async def repair(self, peer: Peer, name: HostName, reason: str) -> Host:
        """Leave the host to a person until he orders a burn-in. Raises Refused, StoreError."""

    async def repaired(self, peer: Peer, name: HostName, reason: str) -> Host:
        """A repair is over: run the burn-in that proves the host. Raises Refused, StoreError."""

    async def swap(self, peer: Peer, name: HostName, reason: str, *, old: GpuId, new: GpuId) -> Host:
        """Take note that a GPU of the host was exchanged. Raises Refused, StoreError."""

    async def retire(self, peer: Peer, name: HostName, reason: str) -> Host:
        """Take the host out of the fleet for good. Raises Refused, StoreError."""

    async def job_ended(self, peer: Peer, name: HostName, job: str, *, ok: bool, ran_seconds: float) -> Host:
        """Take note that a job of the scheduler ended on the host. Raises Refused, StoreError."""

    async def fleet(self) -> FleetRecord:
        """Tripped budgets, the kill switch, open incidents."""

    async def rearm_budget(self, peer: Peer, reason: str) -> FleetRecord:
        """Let automatic quarantines through again after budgets tripped. Raises Refused, StoreError."""

    async def stop_automation(self, peer: Peer, reason: str) -> FleetRecord:
        """Stop every automatic action at once. Raises Refused, StoreError."""

    async def resume_automation(self, peer: Peer, reason: str) -> FleetRecord:
        """Take the kill switch back. Raises Refused, StoreError."""

    async def close_incident(self, peer: Peer, incident: str, reason: str, *, acquit: bool) -> FleetRecord:
        """Close an incident; its hosts are acquitted, or judged as they are. Raises Refused, StoreError."""

    async def explain(self, name: HostName) -> tuple[tuple[float, str], ...]:
        """Why the host is where it is: (wall time, sentence) a step, oldest first. Raises Refused, StoreError."""

    async def facts(self, query: FactQuery) -> tuple[Fact, ...]:
        """What journal entries say in short, in their order or the newest first. Raises StoreError."""

    async def alerts(self, peer: Peer, alerts: Sequence[Alert]) -> AlertsTaken:
        """Make findings of what another monitor says, each counted once. Raises Refused, StoreError."""

    async def power(self) -> PowerUse:
        """How the power budgets stand. Raises Refused when there are none."""
