"""The questions of `/api/v1`: hosts, the map, the fleet, the audit trail."""

import gzip
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from fleetd.model.fact import FactQuery
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName
from fleetd.model.power_lease import PowerUse
from fleetd.ports import DeskDoor, FleetView, Refused
from fleetd.ports.view import PolicyState
from fleetd.web import shapes
from fleetd.web.answers import Problem, answer, digest, has, packed, takes_gzip
from fleetd.web.rows import brief, fleet_map, timeline, word_flags
from fleetd.web.words import ERRORS, HOST_NAME, NAME_CHARS_MAX, NO_CONTROL, WORD_CHARS_MAX, each_once, no_query

Name = Annotated[str, Path(pattern=HOST_NAME, max_length=NAME_CHARS_MAX, description="Name of the host.")]
Word = Annotated[str, Field(max_length=WORD_CHARS_MAX, pattern=NO_CONTROL)]
PAGE_MAX = 500
POSITION_MAX = 2**63 - 1
_NO_QUERY = [Depends(no_query)]


class HostsQuery(BaseModel):
    """Which hosts. What is given must all hold."""

    model_config = ConfigDict(extra="forbid")

    after: Word = ""
    """Only hosts whose name sorts after this one."""
    limit: int = Field(default=100, ge=1, le=PAGE_MAX)
    state: list[Lifecycle] = Field(default_factory=list, max_length=len(Lifecycle))
    """In one of these states."""
    flag: list[shapes.Flag] = Field(default_factory=list, max_length=len(shapes.FLAGS))
    """With one of these."""
    pool: Word | None = None
    rack: Word | None = None
    sku: Word | None = None
    q: Word = ""
    """Part of the name, in any case."""


class FactsQuery(BaseModel):
    """Which entries of the journal. What is given must all hold."""

    model_config = ConfigDict(extra="forbid")

    after: int = Field(default=0, ge=0, le=POSITION_MAX)
    """Only entries behind this position."""
    before: int | None = Field(default=None, ge=1, le=POSITION_MAX)
    """Only entries in front of this position."""
    newest: bool = False
    """The newest of them, newest first; false: in the order of the journal."""
    limit: int = Field(default=100, ge=1, le=PAGE_MAX)
    people: bool = True
    """Only what a person asked for; false: also what the controller decided by itself."""
    host: Word | None = None
    who: Word | None = None
    event: Word | None = None
    since: float | None = Field(default=None, ge=0, le=1e11)
    """Wall time, seconds since the epoch."""
    until: float | None = Field(default=None, ge=0, le=1e11)


@dataclass(slots=True)
class _Map:
    """The map as it was made last: it is the same for everybody."""

    position: str = ""
    plain: bytes = b""
    packed: bytes = field(default=b"", repr=False)


def read_routes(desk: DeskDoor, view: FleetView, *, nonce: str) -> APIRouter:
    """Make the routes; `nonce` tells tags of this process from those of another."""
    routes = APIRouter(prefix="/api/v1", responses=ERRORS, tags=["fleet"])
    made = _Map()

    @routes.get("/hosts", response_model=shapes.HostPage, dependencies=[Depends(each_once(HostsQuery))])
    async def list_hosts(request: Request, query: Annotated[HostsQuery, Query()]) -> Response:
        """A page of hosts, by name."""
        position, connected = view.position, view.connected()
        tag = f'W/"{nonce}-{position}-{digest(query.model_dump())}"'
        if has(request, tag):
            return answer(request, None, tag=tag)
        wanted = (host for host in view.hosts() if host.name > query.after and _fits(host, query, connected))
        page = [brief(host, connected=host.name in connected) for host, _ in zip(wanted, range(query.limit + 1))]  # noqa: B905 - one more than is shown says whether there are more
        body = shapes.HostPage(position=position, hosts=page[: query.limit], more=len(page) > query.limit)
        return answer(request, body, tag=tag)

    @routes.get("/fleet/map", response_model=shapes.FleetMap, dependencies=_NO_QUERY)
    async def get_map(request: Request) -> Response:
        """The whole fleet in little, by rack: small also at 10,000 hosts."""
        position = view.position
        tag = f'W/"{nonce}-{position}-map"'
        if has(request, tag):
            return answer(request, None, tag=tag)
        if made.position != position:
            made.plain = msgspec.json.encode(fleet_map(view.hosts(), view.connected(), position=position))
            made.packed = gzip.compress(made.plain, compresslevel=1, mtime=0)
            made.position = position
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if takes_gzip(request):
            headers["Content-Encoding"] = "gzip"
            return Response(made.packed, 200, headers, "application/json")
        return Response(made.plain, 200, headers, "application/json")

    _host_routes(routes, desk, view)
    _fleet_routes(routes, desk, view)
    return routes


def _host_routes(routes: APIRouter, desk: DeskDoor, view: FleetView) -> None:
    @routes.get("/hosts/{name}", response_model=shapes.HostDetail, dependencies=_NO_QUERY)
    async def get_host(request: Request, name: Name) -> Response:
        """One host: the latest samples of its GPUs, its newest findings."""
        host, samples, findings = await desk.host(HostName(name))
        body = shapes.HostDetail(
            position=view.position,
            version=digest(host),
            host=host,
            connected=host.name in view.connected(),
            samples=samples,
            findings=findings,
        )
        return answer(request, body, tag=f'W/"{digest((host, samples, findings, body.connected))}"')

    @routes.get("/hosts/{name}/timeline", response_model=shapes.Timeline, dependencies=_NO_QUERY)
    async def get_timeline(request: Request, name: Name) -> Response:
        """What was decided on a host and why, newest first."""
        return answer(request, timeline(await view.history(HostName(name))))

    @routes.get("/hosts/{name}/telemetry", response_model=shapes.Telemetry, dependencies=_NO_QUERY)
    async def get_telemetry(request: Request, name: Name) -> Response:
        """A short window of the readings of a host's GPUs."""
        host = HostName(name)
        view.host(host)
        window = view.window(host)
        gpus = [{"gpu": gpu, **series} for gpu, series in window.series.items()]
        return answer(request, {"at_s": window.at_s, "gpus": gpus})


def _fleet_routes(routes: APIRouter, desk: DeskDoor, view: FleetView) -> None:
    @routes.get("/fleet", response_model=shapes.FleetState, dependencies=_NO_QUERY)
    async def get_fleet(request: Request) -> Response:
        """The fleet as one thing: hosts by state, tripped budgets, the kill switch, open incidents."""
        record, hosts = await desk.fleet(), view.hosts()
        states = Counter(host.state.value for host in hosts)
        body = shapes.FleetState(
            position=view.position,
            hosts=len(hosts),
            states={state.value: states[state.value] for state in Lifecycle},
            connected=len(view.connected()),
            held=sum(host.held for host in hosts),
            withheld=sum(bool(host.charges) for host in hosts),
            tripped=record.tripped,
            stopped=record.stopped,
            incidents=record.incidents,
            incidents_opened=record.incidents_opened,
        )
        return answer(request, body)

    @routes.get("/facts", response_model=shapes.FactPage, dependencies=[Depends(each_once(FactsQuery))])
    async def list_facts(request: Request, query: Annotated[FactsQuery, Query()]) -> Response:
        """The audit trail: who changed what, when, why, what it was before and after."""
        asked = FactQuery(
            after=query.after,
            before=query.before,
            newest=query.newest,
            limit=query.limit + 1,
            people=query.people,
            host=None if query.host is None else HostName(query.host),
            who=query.who,
            event=query.event,
            since_s=query.since,
            until_s=query.until,
        )
        found = await desk.facts(asked)
        return answer(request, shapes.FactPage(facts=found[: query.limit], more=len(found) > query.limit))

    @routes.get("/power", response_model=PowerUse, dependencies=_NO_QUERY)
    async def get_power(request: Request) -> Response:
        """How the power budgets stand; 404 when none is configured."""
        try:
            return answer(request, await desk.power())
        except Refused as error:
            raise Problem(404, str(error)) from error

    @routes.get("/policy", response_model=PolicyState, dependencies=_NO_QUERY)
    async def get_policy(request: Request) -> Response:
        """The policy in force: its rules and their stages, its budgets and what of them is spent."""
        return packed(request, msgspec.json.encode(view.policy()), "application/json")


def _fits(host: Host, query: HostsQuery, connected: frozenset[HostName]) -> bool:
    return (
        (not query.state or host.state in query.state)
        and query.pool in (None, host.place.pool)
        and query.rack in (None, host.place.rack)
        and (query.sku is None or any(gpu.sku == query.sku for gpu in host.inventory))
        and query.q.lower() in host.name.lower()
        and (not query.flag or not word_flags(host, connected=host.name in connected).isdisjoint(query.flag))
    )
