"""The controller's side of `Desk`: operators and viewers in front of the `DeskDoor`."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc

from fleetd.model.ids import GpuId, HostName
from fleetd.pb.v1 import desk_pb2, desk_pb2_grpc
from fleetd.ports import DeskDoor, NotJudge, Peer, Refused, StoreError
from fleetd.uplink.channel import STANDS_BY
from fleetd.uplink.codec import finding_to_pb
from fleetd.uplink.desk_codec import DRAINS, host_to_pb
from fleetd.uplink.doors import DoorCalls
from fleetd.uplink.fact_codec import MAX_ALERTS, alert_from_pb, fact_to_pb, query_from_pb
from fleetd.uplink.fleet_codec import fleet_to_pb
from fleetd.uplink.power_codec import power_to_pb
from fleetd.uplink.sample_codec import sample_to_pb
from fleetd.uplink.tls import peer_of
from fleetd.uplink.wire import CodecError, clean, finite, items, name, text

_PAGE_HOSTS = 500
_PAGE_BYTES = 1 << 20
"""A page of hosts ends at the first of these two."""

UNAUTHENTICATED = Peer(name="unauthenticated", role="operator")
"""Who everybody is in insecure mode; so named that it stands out in holds and in the audit trail."""

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


class DeskService(desk_pb2_grpc.DeskServicer):
    """Checks who asks, and translates. A viewer reads, an operator also acts, an agent does neither."""

    def __init__(self, door: DeskDoor, calls: DoorCalls, *, secure: bool) -> None:
        self._door = door
        self._calls = calls
        self._secure = secure

    async def ListHosts(  # noqa: N802
        self, request: desk_pb2.ListHostsRequest, context: Context
    ) -> desk_pb2.ListHostsResponse:
        """One page of hosts, by name."""

        async def answer() -> desk_pb2.ListHostsResponse:
            self._admit(context)
            page = desk_pb2.ListHostsResponse()
            size = 0
            for host in await self._door.hosts():
                if host.name <= request.after:
                    continue
                if len(page.hosts) >= _PAGE_HOSTS or size >= _PAGE_BYTES:
                    page.more = True
                    break
                page.hosts.append(host_to_pb(host))
                size += page.hosts[-1].ByteSize()
            return page

        return await self._answer(context, answer())

    async def GetHost(  # noqa: N802
        self, request: desk_pb2.GetHostRequest, context: Context
    ) -> desk_pb2.GetHostResponse:
        """One host with its samples and findings."""

        async def answer() -> desk_pb2.GetHostResponse:
            self._admit(context)
            host, samples, findings = await self._door.host(_host(request.name))
            return desk_pb2.GetHostResponse(
                host=host_to_pb(host),
                samples=[sample_to_pb(sample) for sample in samples],
                findings=[finding_to_pb(finding) for finding in findings],
            )

        return await self._answer(context, answer())

    async def Quarantine(  # noqa: N802
        self, request: desk_pb2.QuarantineRequest, context: Context
    ) -> desk_pb2.Host:
        """Put an operator's hold on a host."""

        async def answer() -> desk_pb2.Host:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            expires_at_s = finite(request.expires_at_s, "expires_at_s") if request.HasField("expires_at_s") else None
            drain = DRAINS.from_pb(request.drain, "drain") if request.drain else None
            host = _host(request.name)
            return host_to_pb(await self._door.quarantine(peer, host, reason, expires_at_s=expires_at_s, drain=drain))

        return await self._answer(context, answer())

    async def Release(  # noqa: N802
        self, request: desk_pb2.ReleaseRequest, context: Context
    ) -> desk_pb2.Host:
        """Lift the holds on a host."""

        async def answer() -> desk_pb2.Host:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            return host_to_pb(await self._door.release(peer, _host(request.name), reason, override=request.override))

        return await self._answer(context, answer())

    async def Burnin(  # noqa: N802
        self, request: desk_pb2.BurninRequest, context: Context
    ) -> desk_pb2.Host:
        """Run a burn-in on a host."""

        async def answer() -> desk_pb2.Host:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            level = name(request.level, "level") if request.HasField("level") else None
            return host_to_pb(await self._door.burnin(peer, _host(request.name), reason, level=level))

        return await self._answer(context, answer())

    async def Repair(  # noqa: N802
        self, request: desk_pb2.ChangeRequest, context: Context
    ) -> desk_pb2.Host:
        """Leave a host to a person."""

        async def answer() -> desk_pb2.Host:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            return host_to_pb(await self._door.repair(peer, _host(request.name), reason))

        return await self._answer(context, answer())

    async def Repaired(  # noqa: N802
        self, request: desk_pb2.ChangeRequest, context: Context
    ) -> desk_pb2.Host:
        """Take note that a repair is over."""

        async def answer() -> desk_pb2.Host:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            return host_to_pb(await self._door.repaired(peer, _host(request.name), reason))

        return await self._answer(context, answer())

    async def Swap(  # noqa: N802
        self, request: desk_pb2.SwapRequest, context: Context
    ) -> desk_pb2.Host:
        """Take note that a GPU was exchanged."""

        async def answer() -> desk_pb2.Host:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            old, new = GpuId(name(request.old, "old")), GpuId(name(request.new, "new"))
            return host_to_pb(await self._door.swap(peer, _host(request.name), reason, old=old, new=new))

        return await self._answer(context, answer())

    async def Retire(  # noqa: N802
        self, request: desk_pb2.ChangeRequest, context: Context
    ) -> desk_pb2.Host:
        """Take a host out of the fleet."""

        async def answer() -> desk_pb2.Host:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            return host_to_pb(await self._door.retire(peer, _host(request.name), reason))

        return await self._answer(context, answer())

    async def JobEnded(  # noqa: N802
        self, request: desk_pb2.JobEndedRequest, context: Context
    ) -> desk_pb2.Host:
        """Take note that a job ended on a host."""

        async def answer() -> desk_pb2.Host:
            peer, job = self._admit(context, acts=True), text(request.job, "job")
            ran_seconds = finite(request.ran_seconds, "ran_seconds")
            return host_to_pb(
                await self._door.job_ended(peer, _host(request.name), job, ok=request.ok, ran_seconds=ran_seconds)
            )

        return await self._answer(context, answer())

    async def GetFleet(  # noqa: N802
        self, _request: desk_pb2.GetFleetRequest, context: Context
    ) -> desk_pb2.Fleet:
        """Tripped budgets, the kill switch, open incidents."""

        async def answer() -> desk_pb2.Fleet:
            self._admit(context)
            return fleet_to_pb(await self._door.fleet())

        return await self._answer(context, answer())

    async def RearmBudget(  # noqa: N802
        self, request: desk_pb2.FleetChangeRequest, context: Context
    ) -> desk_pb2.Fleet:
        """Re-arm the budgets that tripped."""

        async def answer() -> desk_pb2.Fleet:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            return fleet_to_pb(await self._door.rearm_budget(peer, reason))

        return await self._answer(context, answer())

    async def StopAutomation(  # noqa: N802
        self, request: desk_pb2.FleetChangeRequest, context: Context
    ) -> desk_pb2.Fleet:
        """Stop every automatic action."""

        async def answer() -> desk_pb2.Fleet:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            return fleet_to_pb(await self._door.stop_automation(peer, reason))

        return await self._answer(context, answer())

    async def ResumeAutomation(  # noqa: N802
        self, request: desk_pb2.FleetChangeRequest, context: Context
    ) -> desk_pb2.Fleet:
        """Take the kill switch back."""

        async def answer() -> desk_pb2.Fleet:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            return fleet_to_pb(await self._door.resume_automation(peer, reason))

        return await self._answer(context, answer())

    async def CloseIncident(  # noqa: N802
        self, request: desk_pb2.CloseIncidentRequest, context: Context
    ) -> desk_pb2.Fleet:
        """Close an incident."""

        async def answer() -> desk_pb2.Fleet:
            peer, reason = self._admit(context, acts=True), text(request.reason, "reason")
            incident = text(request.id, "incident id")
            return fleet_to_pb(await self._door.close_incident(peer, incident, reason, acquit=request.acquit))

        return await self._answer(context, answer())

    async def Explain(  # noqa: N802
        self, request: desk_pb2.ExplainRequest, context: Context
    ) -> desk_pb2.ExplainResponse:
        """Say why a host is where it is."""

        async def answer() -> desk_pb2.ExplainResponse:
            self._admit(context)
            steps = await self._door.explain(_host(request.name))
            return desk_pb2.ExplainResponse(
                steps=[desk_pb2.ExplainedStep(at_s=at_s, why=clean(why)) for at_s, why in steps]
            )

        return await self._answer(context, answer())

    async def ListFacts(  # noqa: N802
        self, request: desk_pb2.ListFactsRequest, context: Context
    ) -> desk_pb2.ListFactsResponse:
        """One page of what the journal says in short."""

        async def answer() -> desk_pb2.ListFactsResponse:
            self._admit(context)
            query = query_from_pb(request)
            found = await self._door.facts(query)
            return desk_pb2.ListFactsResponse(facts=[fact_to_pb(f) for f in found], more=len(found) >= query.limit)

        return await self._answer(context, answer())

    async def ReportAlerts(  # noqa: N802
        self, request: desk_pb2.ReportAlertsRequest, context: Context
    ) -> desk_pb2.ReportAlertsResponse:
        """Take what another monitor says."""

        async def answer() -> desk_pb2.ReportAlertsResponse:
            peer = self._admit(context, acts=True)
            found = await self._door.alerts(peer, items(request.alerts, alert_from_pb, "alerts", limit=MAX_ALERTS))
            return desk_pb2.ReportAlertsResponse(taken=found.taken, refused=[clean(why) for why in found.refused])

        return await self._answer(context, answer())

    async def GetPower(  # noqa: N802
        self, _request: desk_pb2.GetPowerRequest, context: Context
    ) -> desk_pb2.GetPowerResponse:
        """How the power budgets stand."""

        async def answer() -> desk_pb2.GetPowerResponse:
            self._admit(context)
            return power_to_pb(await self._door.power())

        return await self._answer(context, answer())

    def _admit(self, context: Context, *, acts: bool = False) -> Peer:
        peer = peer_of(context.auth_context()) if self._secure else UNAUTHENTICATED
        if peer.role not in {"operator", "viewer"}:
            raise Refused(f"{peer.name} has the role {peer.role}; the desk is for operators and viewers")
        if acts and peer.role != "operator":
            raise Refused(f"{peer.name} has the role {peer.role}; only an operator may change a host")
        return peer

    async def _answer(self, context: Context, answer: Coroutine[Any, Any, T]) -> T:
        try:
            return await self._calls.run(answer)
        except Refused as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, clean(str(error)))
        except CodecError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, clean(str(error)))
        except NotJudge as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, clean(str(error)), STANDS_BY)
        except StoreError as error:
            await context.abort(grpc.StatusCode.INTERNAL, clean(str(error)))


def _host(value: str) -> HostName:
    return HostName(name(value, "host name"))
