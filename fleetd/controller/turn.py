"""The doors of a controller that is the judge only at times: between them everybody is sent to the one that is."""

from collections.abc import AsyncIterator, Sequence

from fleetd.controller.controller import Controller
from fleetd.model.alert import Alert
from fleetd.model.fact import Fact, FactQuery
from fleetd.model.finding import Finding
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Hello, Host
from fleetd.model.ids import GpuId, HostName, OrderId, SpoolId
from fleetd.model.journal import JournalEntry
from fleetd.model.order import AgentOrder, Drain
from fleetd.model.power_lease import Answer, Ask, PowerUse
from fleetd.model.telemetry import GpuSample, Telemetry
from fleetd.ports import AlertsTaken, NotJudge, Peer
from fleetd.ports.view import Changes, PolicyState, Window


class Turn:
    """Whose turn it is, as far as this process knows. Nothing is remembered from one turn to the next."""

    def __init__(self) -> None:
        """Stand by."""
        self.controller: Controller | None = None
        """What judges; None: this process stands by."""
        self.number = 0
        """Counts the turns of this process."""
        self.rival = ""
        """Who has the judge's place, as far as is known."""

    def begin(self, controller: Controller) -> None:
        """It is ours: `controller` has read the ledger."""
        self.number += 1
        self.controller = controller

    def end(self) -> None:
        """It is not ours any more; idempotent."""
        self.controller = None

    def now(self) -> Controller:
        """What judges. Raises NotJudge: where to ask instead."""
        if self.controller is None:
            who = f"the judge is {self.rival}" if self.rival else "a judge is being elected"
            raise NotJudge(f"this controller stands by, {who}: ask the others of `uplink: address` and `--controller`")
        return self.controller


class AgentsOfTurn:
    """The `AgentDoor` of whoever judges. Who came in an earlier turn has to say hello again: it is forgotten."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._came: dict[HostName, int] = {}  # in which turn; bounded by the number of hosts

    async def hello(self, peer: Peer, hello: Hello, spool: SpoolId) -> int:
        """Register a connection. Raises NotJudge, Refused, StoreError."""
        judge, number = self._turn.now(), self._turn.number
        last_seq = await judge.intake.hello(peer, hello, spool)
        self._came[hello.host] = number
        return last_seq

    async def finding(self, host: HostName, spool: SpoolId, seq: int, finding: Finding) -> int:
        """Store and judge a finding. Raises NotJudge, Refused, StoreError."""
        return await self._judge_of(host).intake.finding(host, spool, seq, finding)

    async def telemetry_received(self, host: HostName, telemetry: Telemetry) -> None:
        """Keep the latest telemetry. Raises NotJudge."""
        await self._judge_of(host).intake.telemetry_received(host, telemetry)

    async def power_asked(self, host: HostName, ask: Ask) -> Answer | None:
        """Answer a host's question for power. Raises NotJudge: only the judge shares budgets out."""
        return await self._judge_of(host).intake.power_asked(host, ask)

    def orders(self, host: HostName) -> AsyncIterator[AgentOrder]:
        """Orders for the agent of a host. Raises NotJudge."""
        return self._judge_of(host).intake.orders(host)

    async def order_confirmed(self, host: HostName, order_id: OrderId, refused: str) -> None:
        """Judge that the agent has an order on disk or refuses it. Raises NotJudge, StoreError."""
        await self._judge_of(host).intake.order_confirmed(host, order_id, refused)

    def _judge_of(self, host: HostName) -> Controller:
        judge = self._turn.now()
        if self._came.get(host) != self._turn.number:
            raise NotJudge(f"the judge that {host} said hello to is gone: connect again")
        return judge


class DeskOfTurn:
    """The `DeskDoor` of whoever judges. Every method raises NotJudge while this process stands by."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    async def hosts(self) -> tuple[Host, ...]:
        """See `Desk`."""
        return await self._turn.now().desk.hosts()

    async def host(self, name: HostName) -> tuple[Host, tuple[GpuSample, ...], tuple[Finding, ...]]:
        """See `Desk`."""
        return await self._turn.now().desk.host(name)

    async def quarantine(
        self,
        peer: Peer,
        name: HostName,
        reason: str,
        *,
        expires_at_s: float | None = None,
        drain: Drain | None = None,
    ) -> Host:
        """See `Desk`."""
        return await self._turn.now().desk.quarantine(peer, name, reason, expires_at_s=expires_at_s, drain=drain)

    async def release(self, peer: Peer, name: HostName, reason: str, *, override: bool) -> Host:
        """See `Desk`."""
        return await self._turn.now().desk.release(peer, name, reason, override=override)

    async def burnin(self, peer: Peer, name: HostName, reason: str, *, level: str | None) -> Host:
        """See `Desk`."""
        return await self._turn.now().desk.burnin(peer, name, reason, level=level)

    async def repair(self, peer: Peer, name: HostName, reason: str) -> Host:
        """See `Desk`."""
        return await self._turn.now().desk.repair(peer, name, reason)

    async def repaired(self, peer: Peer, name: HostName, reason: str) -> Host:
        """See `Desk`."""
        return await self._turn.now().desk.repaired(peer, name, reason)

    async def swap(self, peer: Peer, name: HostName, reason: str, *, old: GpuId, new: GpuId) -> Host:
        """See `Desk`."""
        return await self._turn.now().desk.swap(peer, name, reason, old=old, new=new)

    async def retire(self, peer: Peer, name: HostName, reason: str) -> Host:
        """See `Desk`."""
        return await self._turn.now().desk.retire(peer, name, reason)

    async def job_ended(self, peer: Peer, name: HostName, job: str, *, ok: bool, ran_seconds: float) -> Host:
        """See `Desk`."""
        return await self._turn.now().desk.job_ended(peer, name, job, ok=ok, ran_seconds=ran_seconds)

    async def fleet(self) -> FleetRecord:
        """See `Desk`."""
        return await self._turn.now().desk.fleet()

    async def rearm_budget(self, peer: Peer, reason: str) -> FleetRecord:
        """See `Desk`."""
        return await self._turn.now().desk.rearm_budget(peer, reason)

    async def stop_automation(self, peer: Peer, reason: str) -> FleetRecord:
        """See `Desk`."""
        return await self._turn.now().desk.stop_automation(peer, reason)

    async def resume_automation(self, peer: Peer, reason: str) -> FleetRecord:
        """See `Desk`."""
        return await self._turn.now().desk.resume_automation(peer, reason)

    async def close_incident(self, peer: Peer, incident: str, reason: str, *, acquit: bool) -> FleetRecord:
        """See `Desk`."""
        return await self._turn.now().desk.close_incident(peer, incident, reason, acquit=acquit)

    async def explain(self, name: HostName) -> tuple[tuple[float, str], ...]:
        """See `Desk`."""
        return await self._turn.now().desk.explain(name)

    async def facts(self, query: FactQuery) -> tuple[Fact, ...]:
        """See `Desk`."""
        return await self._turn.now().desk.facts(query)

    async def alerts(self, peer: Peer, alerts: Sequence[Alert]) -> AlertsTaken:
        """See `Desk`."""
        return await self._turn.now().desk.alerts(peer, alerts)

    async def power(self) -> PowerUse:
        """See `Desk`."""
        return await self._turn.now().desk.power()


class ViewOfTurn:
    """The `FleetView` of whoever judges. Every method but `unready` raises NotJudge while this process stands by."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    @property
    def position(self) -> str:
        """See `View`."""
        return self._turn.now().view.position

    def since(self, position: str) -> Changes:
        """See `View`."""
        return self._turn.now().view.since(position)

    async def changed(self, position: str) -> None:
        """See `View`; when our turn ends, the next call raises NotJudge."""
        await self._turn.now().view.changed(position)

    def hosts(self) -> tuple[Host, ...]:
        """See `View`."""
        return self._turn.now().view.hosts()

    def host(self, name: HostName) -> Host:
        """See `View`."""
        return self._turn.now().view.host(name)

    def connected(self) -> frozenset[HostName]:
        """See `View`."""
        return self._turn.now().view.connected()

    def window(self, name: HostName) -> Window:
        """See `View`."""
        return self._turn.now().view.window(name)

    async def history(self, name: HostName) -> tuple[JournalEntry, ...]:
        """See `View`."""
        return await self._turn.now().view.history(name)

    def policy(self) -> PolicyState:
        """See `View`."""
        return self._turn.now().view.policy()

    def unready(self) -> str:
        """See `View`; one that stands by says who judges."""
        try:
            return self._turn.now().view.unready()
        except NotJudge as error:
            return str(error)
