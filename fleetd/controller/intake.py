"""Where agents come in: who may speak for which host, what was said before, where the latest telemetry is."""

from collections.abc import AsyncIterator, Mapping

import structlog

from fleetd.controller.dispatcher import Dispatcher
from fleetd.controller.judge import Judge
from fleetd.controller.power import PowerBudgets
from fleetd.controller.window import Windows
from fleetd.core import inbox
from fleetd.model.event import AgentConnected, BurninAccepted, BurninRefused, FindingReceived
from fleetd.model.finding import Finding
from fleetd.model.host import Hello
from fleetd.model.ids import HostName, OrderId, SpoolId
from fleetd.model.journal import SpoolProgress
from fleetd.model.order import AgentOrder
from fleetd.model.power_lease import Answer, Ask
from fleetd.model.telemetry import Telemetry
from fleetd.ports import Clock, Peer, Refused

_log = structlog.get_logger(__name__)


SKEW_SECONDS = 5.0
"""A clock that is less off than this is taken for right: the hello's way took time too."""


class Intake:
    """The controller's `AgentDoor`."""

    def __init__(self, *, judge: Judge, dispatcher: Dispatcher, clock: Clock, power: PowerBudgets) -> None:
        self._judge = judge
        self._power = power
        self._clock = clock
        self._dispatcher = dispatcher
        self._telemetry: dict[HostName, Telemetry] = {}  # bounded by the number of hosts
        self.windows = Windows()
        self.findings_total = 0
        self.duplicates_total = 0
        self.lost_total = 0

    @property
    def telemetry(self) -> Mapping[HostName, Telemetry]:
        """The latest telemetry of every host."""
        return self._telemetry

    async def hello(self, peer: Peer, hello: Hello, spool: SpoolId) -> int:
        """Register a connection. Raises Refused for a host that the peer may not speak for, or speaks for late.

        Raises StoreError.
        """
        _may_speak_for(peer, hello.host)
        # Set before the decision: an order that follows from it goes out at once to a stream that is open already.
        skew_s = 0.0 if hello.at_s is None else hello.at_s - self._clock.wall_s()
        self._dispatcher.set_skew(hello.host, skew_s if abs(skew_s) >= SKEW_SECONDS else 0.0)
        step = await self._judge.submit(AgentConnected(host=hello.host, hello=hello))
        if step.state.boot_id != hello.boot_id and not step.refused:
            raise Refused(step.why)
        self._power.hello(hello)
        return self._judge.last_seq(hello.host, spool)

    async def finding(self, host: HostName, spool: SpoolId, seq: int, finding: Finding) -> int:
        """Store and judge a finding. Raises Refused for another host's finding; StoreError."""
        if finding.host != host:
            raise Refused(f"the agent of {host} sent a finding about {finding.host}")
        arrival = inbox.receive(stored_seq=self._judge.last_seq(host, spool), seq=seq)
        if arrival.decision is inbox.Decision.DUPLICATE:
            self.duplicates_total += 1
            return arrival.acknowledge_seq
        if arrival.lost:
            self.lost_total += arrival.lost
            _log.error("the host's spool was full and dropped findings", host=host, lost=arrival.lost, before_seq=seq)
        self.findings_total += 1
        await self._judge.submit(FindingReceived(host=host, finding=finding), SpoolProgress(spool=spool, seq=seq))
        return arrival.acknowledge_seq

    async def telemetry_received(self, host: HostName, telemetry: Telemetry) -> None:
        """Keep the latest telemetry, and a window of it."""
        self._telemetry[host] = telemetry
        self.windows.add(host, telemetry.vitals)

    async def power_asked(self, host: HostName, ask: Ask) -> Answer | None:
        """Answer a host's question for power; None: a later question of it has been answered."""
        return self._power.ask(host, ask)

    def orders(self, host: HostName) -> AsyncIterator[AgentOrder]:
        """Orders for the agent of a host."""
        return self._dispatcher.agent_orders(host)

    async def order_confirmed(self, host: HostName, order_id: OrderId, refused: str) -> None:
        """Judge that the agent has an order on disk or refuses it, and close it. Raises StoreError."""
        if refused:
            await self._judge.submit(BurninRefused(host=host, order_id=order_id, why=refused))
        else:
            await self._judge.submit(BurninAccepted(host=host, order_id=order_id))
        await self._dispatcher.finish_burnin(host, order_id, f"refused: {refused}" if refused else "accepted")


def _may_speak_for(peer: Peer, host: HostName) -> None:
    if peer.role != "agent":
        raise Refused(f"{peer.name} has the role {peer.role}; only an agent may report for a host")
    if peer.name != host:
        raise Refused(f"the certificate names {peer.name}, so its agent may not report for {host}")
