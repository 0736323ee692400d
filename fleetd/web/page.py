"""The page: its files, and the session of a browser."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import msgspec
import structlog
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from fleetd.ports import Clock
from fleetd.web.answers import Problem, answer, has, packed, take
from fleetd.web.gate import Visitor, cookie_name, cookie_of, is_secure
from fleetd.web.limits import Buckets
from fleetd.web.sessions import Sessions
from fleetd.web.shapes import SessionState
from fleetd.web.tokens import READERS, TOKEN_CHARS_MAX
from fleetd.web.words import CHANGE_ERRORS, no_query

_log = structlog.get_logger(__name__)

LOGINS_PER_MINUTE = 20.0
"""Of one owner of a token; without a good one, of one address."""
FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """A file of the page."""

    body: bytes
    media_type: str
    tag: str


def load_static(folder: Path = FOLDER) -> dict[str, StaticFile]:
    """Read the page's files, by path below the folder. What is asked for is looked up here, so no path leads out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        media_type = _TYPES.get(path.suffix)
        if media_type is not None and path.is_file():
            body = path.read_bytes()
            tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
            found[path.relative_to(folder).as_posix()] = StaticFile(body=body, media_type=media_type, tag=tag)
    return found


class Login(BaseModel):
    """What a browser shows once."""

    model_config = ConfigDict(extra="forbid", strict=True)

    token: str = Field(min_length=1, max_length=TOKEN_CHARS_MAX)


def page_routes(files: Callable[[], Mapping[str, StaticFile]]) -> APIRouter:
    """Make the routes of the page's files."""
    routes = APIRouter(include_in_schema=False)

    def file(request: Request, path: str) -> Response:
        found = files().get(path)
        if found is None:
            raise Problem(404, f"the page has no file {path!r:.80}")
        if has(request, found.tag):
            return answer(request, None, tag=found.tag)
        return packed(request, found.body, found.media_type, tag=found.tag)

    @routes.get("/")
    async def index(request: Request) -> Response:
        """The page."""
        return file(request, "index.html")

    @routes.get("/static/{path:path}")
    async def static(request: Request, path: str) -> Response:
        """A file of it."""
        return file(request, path)

    return routes


def session_routes(sessions: Sessions | None, *, clock: Clock) -> APIRouter:
    """Make the routes of a browser's session; `clock` is for the rate of log-ins."""
    # Whoever has a token is asked for his own sake: nobody keeps him out by trying many that are wrong.
    attempts = Buckets(per_minute=LOGINS_PER_MINUTE, at_once=LOGINS_PER_MINUTE, clock=clock)
    routes = APIRouter(
        prefix="/api/v1/session", responses=CHANGE_ERRORS, dependencies=[Depends(no_query)], tags=["session"]
    )

    @routes.get("", response_model=SessionState)
    async def whoami(request: Request) -> Response:
        """Who you are; 401: nobody says."""
        visitor = request.state.visitor
        if not isinstance(visitor, Visitor):
            raise Problem(401, "nobody is logged in", {"WWW-Authenticate": 'Bearer realm="fleetd"'})
        csrf = None if visitor.session is None else visitor.session.csrf
        return _session(SessionState(name=visitor.peer.name, role=visitor.peer.role, csrf=csrf))

    @routes.post("", response_model=SessionState)
    async def login(request: Request, body: Login) -> Response:
        """Log a browser in by a token: the answer sets a cookie."""
        peer = None if sessions is None else sessions.owner(body.token)
        address = request.client.host if request.client is not None else ""
        take(attempts, address if peer is None else f"{peer.role}:{peer.name}", "attempts to log in")
        if sessions is None or peer is None:
            _log.warning("web log-in refused", address=address)
            raise Problem(401, "this token is not known, or has expired; ask for a new one")
        if peer.role not in READERS:
            raise Problem(403, f"{peer.name} has the role {peer.role} and may not read here; that takes another token")
        cookie, session = sessions.open(body.token)
        _log.info("web log-in", who=peer.name, role=peer.role, address=address)
        response = _session(SessionState(name=peer.name, role=peer.role, csrf=session.csrf))
        response.set_cookie(
            cookie_name(request.scope, request.headers),
            cookie,
            max_age=int(sessions.session_s),
            path="/",
            secure=is_secure(request.scope, request.headers),
            httponly=True,
            samesite="strict",
        )
        return response

    @routes.delete("", status_code=204, response_class=Response)
    async def logout(request: Request) -> Response:
        """End the session."""
        if sessions is not None:
            sessions.close(cookie_of(request.scope, request.headers))
        response = Response(status_code=204)
        response.delete_cookie(
            cookie_name(request.scope, request.headers),
            path="/",
            secure=is_secure(request.scope, request.headers),
            httponly=True,
            samesite="strict",
        )
        return response

    return routes


def _session(state: SessionState) -> Response:
    """Never compressed (it holds a secret: BREACH) and never kept."""
    return Response(msgspec.json.encode(state), 200, {"Cache-Control": "no-store"}, "application/json")
