"""The changes of `/api/v1`. Each needs a reason; what the controller says no to is 409, with what is missing."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.responses import Response

from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.ids import GpuId, HostName
from fleetd.model.order import Drain
from fleetd.ports import DeskDoor, FleetView, Peer
from fleetd.web.answers import Problem, answer, digest
from fleetd.web.gate import Visitor
from fleetd.web.read import Name
from fleetd.web.words import CHANGE_ERRORS, IDENTIFIER, LINE_CHARS_MAX, SOMETHING, WORD_CHARS_MAX, clean, no_query

Line = Annotated[str, Field(min_length=1, max_length=LINE_CHARS_MAX, pattern=SOMETHING), AfterValidator(clean)]
Word = Annotated[str, Field(max_length=WORD_CHARS_MAX, pattern=IDENTIFIER)]
IfMatch = Annotated[str | None, Header(description="The host's `version`: it must not have changed since.")]
Act = Callable[[Peer, HostName], Awaitable[Host]]
MAX_SECONDS = 10 * 365 * 86400.0


class Change(BaseModel):
    """Every change says why."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Line
    """Stays in the history."""


class QuarantineChange(Change):
    """An operator's hold."""

    expires_at_s: float | None = Field(default=None, ge=0, le=1e11)
    """Wall time at which it goes by itself; null: never."""
    drain: Drain | None = Field(default=None, strict=False)
    """How work leaves; null: as the policy has it."""


class ReleaseChange(Change):
    """Give it back."""

    override: bool = False
    """Although the proof that its holds ask for is missing."""


class BurninChange(Change):
    """Run a burn-in."""

    level: Word | None = None
    """Null: the one that makes the host healthy or releasable."""


class SwapChange(Change):
    """A GPU was exchanged."""

    old: Word
    new: Word


class JobEndChange(BaseModel):
    """A job ended; it is no decision, so it has no reason."""

    model_config = ConfigDict(extra="forbid", strict=True)

    job: Line
    ok: bool
    ran_seconds: float = Field(ge=0, le=MAX_SECONDS)


class IncidentChange(Change):
    """Close an incident."""

    acquit: bool = False
    """Whether its hosts are acquitted; false: they are judged as they are."""


def change_routes(desk: DeskDoor, view: FleetView) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(prefix="/api/v1", responses=CHANGE_ERRORS, dependencies=[Depends(no_query)], tags=["changes"])
    _host_routes(routes, desk, view)
    _fleet_routes(routes, desk)
    return routes


def _host_routes(routes: APIRouter, desk: DeskDoor, view: FleetView) -> None:  # noqa: C901 - a list of routes
    async def done(request: Request, name: str, if_match: str | None, act: Act) -> Response:
        host = HostName(name)
        _unchanged(view.host(host), if_match)
        return answer(request, await act(who(request), host))

    @routes.post("/hosts/{name}/quarantine", response_model=Host)
    async def quarantine(request: Request, name: Name, body: QuarantineChange, if_match: IfMatch = None) -> Response:
        """Take a host away from its users."""

        def act(peer: Peer, host: HostName) -> Awaitable[Host]:
            return desk.quarantine(peer, host, body.reason, expires_at_s=body.expires_at_s, drain=body.drain)

        return await done(request, name, if_match, act)

    @routes.post("/hosts/{name}/release", response_model=Host)
    async def release(request: Request, name: Name, body: ReleaseChange, if_match: IfMatch = None) -> Response:
        """Give a host back to its users: needs the proof that its holds ask for, or `override`."""
        return await done(
            request, name, if_match, lambda peer, host: desk.release(peer, host, body.reason, override=body.override)
        )

    @routes.post("/hosts/{name}/burnin", response_model=Host)
    async def burnin(request: Request, name: Name, body: BurninChange, if_match: IfMatch = None) -> Response:
        """Run a burn-in on a host now."""
        return await done(
            request, name, if_match, lambda peer, host: desk.burnin(peer, host, body.reason, level=body.level)
        )

    @routes.post("/hosts/{name}/repair", response_model=Host)
    async def repair(request: Request, name: Name, body: Change, if_match: IfMatch = None) -> Response:
        """Leave a host to a person until a burn-in is ordered."""
        return await done(request, name, if_match, lambda peer, host: desk.repair(peer, host, body.reason))

    @routes.post("/hosts/{name}/repaired", response_model=Host)
    async def repaired(request: Request, name: Name, body: Change, if_match: IfMatch = None) -> Response:
        """Say that a repair is over: the host runs the burn-in that proves it."""
        return await done(request, name, if_match, lambda peer, host: desk.repaired(peer, host, body.reason))

    @routes.post("/hosts/{name}/swap", response_model=Host)
    async def swap(request: Request, name: Name, body: SwapChange, if_match: IfMatch = None) -> Response:
        """Say that a GPU was exchanged."""
        old, new = GpuId(body.old), GpuId(body.new)
        return await done(
            request, name, if_match, lambda peer, host: desk.swap(peer, host, body.reason, old=old, new=new)
        )

    @routes.post("/hosts/{name}/retire", response_model=Host)
    async def retire(request: Request, name: Name, body: Change, if_match: IfMatch = None) -> Response:
        """Take a host out of the fleet for good."""
        return await done(request, name, if_match, lambda peer, host: desk.retire(peer, host, body.reason))

    @routes.post("/hosts/{name}/job-ended", response_model=Host)
    async def job_ended(request: Request, name: Name, body: JobEndChange) -> Response:
        """Say that a job of the scheduler ended on a host."""

        def act(peer: Peer, host: HostName) -> Awaitable[Host]:
            return desk.job_ended(peer, host, body.job, ok=body.ok, ran_seconds=body.ran_seconds)

        return await done(request, name, None, act)


def _fleet_routes(routes: APIRouter, desk: DeskDoor) -> None:
    @routes.post("/budgets/rearm", response_model=FleetRecord)
    async def rearm(request: Request, body: Change) -> Response:
        """Let automatic quarantines through again after budgets tripped."""
        return answer(request, await desk.rearm_budget(who(request), body.reason))

    @routes.post("/automation/stop", response_model=FleetRecord)
    async def stop(request: Request, body: Change) -> Response:
        """Stop every automatic action at once."""
        return answer(request, await desk.stop_automation(who(request), body.reason))

    @routes.post("/automation/resume", response_model=FleetRecord)
    async def resume(request: Request, body: Change) -> Response:
        """Take the kill switch back."""
        return answer(request, await desk.resume_automation(who(request), body.reason))

    @routes.post("/incidents/{incident:path}/close", response_model=FleetRecord)
    async def close(
        request: Request,
        incident: Annotated[str, Path(min_length=1, max_length=LINE_CHARS_MAX, description="Id of the incident.")],
        body: IncidentChange,
    ) -> Response:
        """Close an incident; its hosts are acquitted, or judged as they are."""
        if all(one.id != incident for one in (await desk.fleet()).incidents):
            raise Problem(404, f"no incident {incident!r:.200} is open; the fleet's state lists those that are")
        return answer(request, await desk.close_incident(who(request), incident, body.reason, acquit=body.acquit))


def who(request: Request) -> Peer:
    """Who asks; the gate has let him through."""
    visitor = request.state.visitor
    assert isinstance(visitor, Visitor)  # noqa: S101 - else the gate would have answered
    return visitor.peer


def _unchanged(host: Host, if_match: str | None) -> None:
    """Compare right before the change is asked for. Raises Problem when the host is not as the client has seen it."""
    if if_match is None or if_match.strip() == "*":
        return
    wanted = {one.strip().strip('"') for one in if_match.split(",")}
    if digest(host) not in wanted:
        raise Problem(412, f"{host.name} has changed since you looked; look again, then decide")
