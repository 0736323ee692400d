"""The operator's side of `Desk`: what the command line asks the controller, method for method as `DeskDoor` has it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import grpc

from fleetd.model.alert import Alert
from fleetd.model.fact import BEGINNING, Fact, FactQuery
from fleetd.model.finding import Finding
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.ids import GpuId, HostName
from fleetd.model.order import Drain
from fleetd.model.power_lease import PowerUse
from fleetd.model.telemetry import GpuSample
from fleetd.pb.v1 import desk_pb2, identity_pb2
from fleetd.pb.v1.desk_pb2_grpc import DeskStub
from fleetd.pb.v1.identity_pb2_grpc import IdentityStub
from fleetd.ports import AlertsTaken, Refused, Token, UplinkError
from fleetd.uplink.channel import failure, open_channel
from fleetd.uplink.codec import finding_from_pb
from fleetd.uplink.config import DeskConfig
from fleetd.uplink.desk_codec import DRAINS, host_from_pb
from fleetd.uplink.fact_codec import MAX_ALERTS, MAX_FACTS, alert_to_pb, fact_from_pb, query_to_pb
from fleetd.uplink.fleet_codec import fleet_from_pb
from fleetd.uplink.power_codec import power_from_pb
from fleetd.uplink.sample_codec import sample_from_pb
from fleetd.uplink.wire import MAX_GPUS, CodecError, clean, finite, items, name, text

if TYPE_CHECKING:
    from fleetd.pb.v1.desk_pb2_grpc import DeskAsyncStub  # exists in the stub only

__all__ = ["DeskClient", "DeskConfig"]

_RECEIVE_MAX_BYTES = 64 << 20
"""An answer is longer than what a controller takes in: a page of hosts, a host's newest findings."""
_MAX_FINDINGS = 1000
_MAX_STEPS = 100_000
_MAX_PAGE = 10_000

Request = TypeVar("Request")
Response = TypeVar("Response")


class DeskClient:
    """Asks the controller. Use as `async with DeskClient(config) as desk`.

    Every method raises Refused when the controller says no, and UplinkError when it cannot be reached, does not answer
    in time or speaks another version; the message is one line that says what to do.
    """

    def __init__(self, config: DeskConfig) -> None:
        self._config = config
        self._channel: grpc.aio.Channel | None = None
        self._address = ""
        self._not_asked: list[str] = []  # why each other controller was not; bounded by the addresses

    async def __aenter__(self) -> Self:
        """Open the channel; of several addresses, to the judge. Raises UplinkError on an unusable address or file."""
        for address in self._config.addresses:
            self._address = address
            self._channel = open_channel(address, self._config.tls, receive_max_bytes=_RECEIVE_MAX_BYTES)
            if len(self._config.addresses) == 1 or await self._judges():
                return self
            await self._channel.close(None)
        said = "; ".join(self._not_asked)
        raise UplinkError(f"no controller judges: try again ({said})")

    async def _judges(self) -> bool:
        """Whether this is the one to ask; decided before anything is asked for that may not be done twice."""
        try:
            await self.fleet()
        except UplinkError as error:
            self._not_asked.append(str(error))
            return False
        except Refused:
            pass  # it is the judge's to refuse
        return True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close(None)

    async def hosts(self) -> tuple[Host, ...]:
        """All hosts, by name."""
        found: list[Host] = []
        after = ""
        while True:
            answer = await self._ask(self._stub.ListHosts, desk_pb2.ListHostsRequest(after=after))
            found.extend(items(answer.hosts, host_from_pb, "hosts", limit=_MAX_PAGE))
            if not answer.more:
                return tuple(found)
            if not found or found[-1].name <= after:
                raise CodecError("the controller sends the same page of hosts again: upgrade this side")
            after = found[-1].name

    async def host(self, host: HostName) -> tuple[Host, tuple[GpuSample, ...], tuple[Finding, ...]]:
        """One host with its latest samples and newest findings, newest first."""
        answer = await self._ask(self._stub.GetHost, desk_pb2.GetHostRequest(name=_host(host)))
        samples = items(answer.samples, sample_from_pb, "samples", limit=MAX_GPUS)
        return (
            host_from_pb(answer.host),
            samples,
            items(answer.findings, finding_from_pb, "findings", limit=_MAX_FINDINGS),
        )

    async def quarantine(
        self, host: HostName, reason: str, *, expires_at_s: float | None = None, drain: Drain | None = None
    ) -> Host:
        """Put an operator's hold on the host, for good or until a wall time; its work leaves as the policy has it."""
        request = desk_pb2.QuarantineRequest(
            name=_host(host),
            reason=clean(reason),
            expires_at_s=expires_at_s,
            drain=desk_pb2.LEAVING_UNSPECIFIED if drain is None else DRAINS.to_pb(drain),
        )
        return host_from_pb(await self._ask(self._stub.Quarantine, request))

    async def release(self, host: HostName, reason: str, *, override: bool) -> Host:
        """Lift the holds; without the proof that each asks for only with `override`."""
        request = desk_pb2.ReleaseRequest(name=_host(host), reason=clean(reason), override=override)
        return host_from_pb(await self._ask(self._stub.Release, request))

    async def burnin(self, host: HostName, reason: str, *, level: str | None) -> Host:
        """Run a burn-in; None: the level that makes the host healthy, or its release possible."""
        request = desk_pb2.BurninRequest(name=_host(host), reason=clean(reason), level=level)
        return host_from_pb(await self._ask(self._stub.Burnin, request))

    async def repair(self, host: HostName, reason: str) -> Host:
        """Leave the host to a person until he orders a burn-in."""
        request = desk_pb2.ChangeRequest(name=_host(host), reason=clean(reason))
        return host_from_pb(await self._ask(self._stub.Repair, request))

    async def repaired(self, host: HostName, reason: str) -> Host:
        """A repair is over: the host proves itself."""
        request = desk_pb2.ChangeRequest(name=_host(host), reason=clean(reason))
        return host_from_pb(await self._ask(self._stub.Repaired, request))

    async def swap(self, host: HostName, reason: str, *, old: GpuId, new: GpuId) -> Host:
        """A GPU of the host was exchanged."""
        old, new = GpuId(name(old, "old GPU")), GpuId(name(new, "new GPU"))
        request = desk_pb2.SwapRequest(name=_host(host), reason=clean(reason), old=old, new=new)
        return host_from_pb(await self._ask(self._stub.Swap, request))

    async def retire(self, host: HostName, reason: str) -> Host:
        """Take the host out of the fleet for good."""
        request = desk_pb2.ChangeRequest(name=_host(host), reason=clean(reason))
        return host_from_pb(await self._ask(self._stub.Retire, request))

    async def job_ended(self, host: HostName, job: str, *, ok: bool, ran_seconds: float) -> Host:
        """Tell that a job of the scheduler ended on the host."""
        request = desk_pb2.JobEndedRequest(name=_host(host), job=clean(job), ok=ok, ran_seconds=ran_seconds)
        return host_from_pb(await self._ask(self._stub.JobEnded, request))

    async def fleet(self) -> FleetRecord:
        """Tripped budgets, the kill switch, open incidents."""
        return fleet_from_pb(await self._ask(self._stub.GetFleet, desk_pb2.GetFleetRequest()))

    async def rearm_budget(self, reason: str) -> FleetRecord:
        """Let automatic quarantines through again after budgets tripped."""
        request = desk_pb2.FleetChangeRequest(reason=clean(reason))
        return fleet_from_pb(await self._ask(self._stub.RearmBudget, request))

    async def stop_automation(self, reason: str) -> FleetRecord:
        """Stop every automatic action at once."""
        request = desk_pb2.FleetChangeRequest(reason=clean(reason))
        return fleet_from_pb(await self._ask(self._stub.StopAutomation, request))

    async def resume_automation(self, reason: str) -> FleetRecord:
        """Take the kill switch back."""
        request = desk_pb2.FleetChangeRequest(reason=clean(reason))
        return fleet_from_pb(await self._ask(self._stub.ResumeAutomation, request))

    async def close_incident(self, incident: str, reason: str, *, acquit: bool) -> FleetRecord:
        """Close an incident; its hosts are acquitted, or judged as they are."""
        request = desk_pb2.CloseIncidentRequest(id=clean(incident), reason=clean(reason), acquit=acquit)
        return fleet_from_pb(await self._ask(self._stub.CloseIncident, request))

    async def explain(self, host: HostName) -> tuple[tuple[float, str], ...]:
        """Why the host is where it is: (wall time, sentence) a step, oldest first."""
        answer = await self._ask(self._stub.Explain, desk_pb2.ExplainRequest(name=_host(host)))
        return items(answer.steps, _step_from_pb, "steps", limit=_MAX_STEPS)

    async def facts(self, query: FactQuery) -> tuple[Fact, ...]:
        """What the journal says in short, page by page up to the limit; facts of its beginning come on top."""
        found: list[Fact] = []
        asked, left = query, query.limit
        while left > 0:
            answer = await self._ask(self._stub.ListFacts, query_to_pb(replace(asked, limit=left)))
            page = items(answer.facts, fact_from_pb, "facts", limit=MAX_FACTS)
            if query.newest and any(one.position <= older.position for one, older in pairwise(page)):
                raise CodecError("the controller lists facts in the order of the journal only: upgrade it")
            found.extend(page)
            left -= sum(fact.event != BEGINNING for fact in page)
            if not answer.more:
                break
            asked = _next(asked, page)
        return tuple(found)

    async def alerts(self, alerts: Sequence[Alert]) -> AlertsTaken:
        """Hand in what another monitor says."""
        request = desk_pb2.ReportAlertsRequest(alerts=items(alerts, alert_to_pb, "alerts", limit=MAX_ALERTS))
        answer = await self._ask(self._stub.ReportAlerts, request)
        refused = items(answer.refused, lambda why: text(why, "refused"), "refused", limit=MAX_ALERTS)
        return AlertsTaken(taken=answer.taken, refused=refused)

    async def power(self) -> PowerUse:
        """How the power budgets stand."""
        return power_from_pb(await self._ask(self._stub.GetPower, desk_pb2.GetPowerRequest()))

    async def issue_token(self, host: HostName, reason: str) -> Token:
        """Let a host enrol, once."""
        request = identity_pb2.IssueTokenRequest(host=_host(host), reason=clean(reason))
        answer = await self._ask(IdentityStub(self._open).IssueToken, request)
        expires_at_s = finite(answer.expires_at_s, "token expires_at_s")
        return Token(token=name(answer.token, "token"), expires_at_s=expires_at_s)

    @property
    def _stub(self) -> "DeskAsyncStub":
        return DeskStub(self._open)

    @property
    def _open(self) -> grpc.aio.Channel:
        assert self._channel is not None, "use `async with`"  # noqa: S101 - a bug of ours
        return self._channel

    async def _ask(self, method: Callable[..., Awaitable[Response]], request: object) -> Response:
        try:
            return await method(request, timeout=self._config.answer_seconds)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:  # what was asked is wrong, and not the line
                raise Refused(clean(error.details() or "")) from error
            raise failure(error, self._address, secure=not self._config.insecure) from error


def _host(word: str) -> str:
    """Refuse here what the controller would refuse: it is the asker's mistake, not the line's."""
    try:
        return name(word, "host name")
    except CodecError as error:
        raise Refused(str(error)) from error


def _step_from_pb(pb: desk_pb2.ExplainedStep) -> tuple[float, str]:
    return finite(pb.at_s, "step at_s"), text(pb.why, "step why")


def _next(asked: FactQuery, page: Sequence[Fact]) -> FactQuery:
    """The question for the page after this one. Raises CodecError when that is no other one."""
    last = page[-1].position if page else None
    if last is not None and asked.newest and (asked.before is None or last < asked.before):
        return replace(asked, before=last)
    if last is not None and not asked.newest and last > asked.after:
        return replace(asked, after=last)
    raise CodecError("the controller sends the same page of facts again: upgrade this side")
