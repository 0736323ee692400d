"""The application: routes behind the gate, and how everything that can go wrong is said."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fleetd import __version__
from fleetd.ports import Clock, DeskDoor, FleetView, Refused, StoreError, Unknown
from fleetd.web.answers import Problem
from fleetd.web.change import change_routes
from fleetd.web.config import WebConfig
from fleetd.web.events import EventStreams
from fleetd.web.gate import PUBLIC, App, Gate
from fleetd.web.hooks import Metrics, ReadAlerts, hook_routes
from fleetd.web.limits import Patience
from fleetd.web.page import StaticFile, load_static, page_routes, session_routes
from fleetd.web.read import read_routes
from fleetd.web.sessions import Sessions
from fleetd.web.tokens import Secret, TokenFile

_LINE_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class WebApp:
    """The application and what its server has to hold."""

    asgi: App
    streams: EventStreams
    patience: Patience


def make_app(
    config: WebConfig,
    *,
    desk: DeskDoor,
    view: FleetView,
    clock: Clock,
    secret: Secret,
    read_alerts: ReadAlerts,
    metrics: Metrics,
    on_bug: Callable[[BaseException], None],
    static: Callable[[], Mapping[str, StaticFile]] | None = None,
    patience: Patience = Patience(),  # noqa: B008 - frozen
) -> WebApp:
    """Make the application.

    Args:
        config: whom it believes.
        desk: what people ask of the controller.
        view: what they look at.
        clock: for expiry, limits and the beat of event streams.
        secret: makes cookies and the like.
        read_alerts: reads what a monitor hands in.
        metrics: the controller's page of metrics.
        on_bug: told of an exception that no port names.
        static: the page's files; None: as they are now.
        patience: how long a client may take.

    Raises:
        WebError: the file of tokens cannot be used.
    """
    tokens = None if config.tokens is None else TokenFile(config.tokens, clock=clock)
    sessions = (
        None if tokens is None else Sessions(tokens, clock=clock, secret=secret, session_s=config.session_seconds)
    )
    nonce = secret()[:8]
    files = load_static()
    app = _bare()
    gate = Gate(app, config=config, tokens=tokens, sessions=sessions, clock=clock, on_bug=on_bug, patience=patience)
    streams = EventStreams(view, clock=clock, nonce=nonce)
    app.include_router(read_routes(desk, view, nonce=nonce))
    app.include_router(change_routes(desk, view))
    app.include_router(streams.routes(gate.may_look))
    app.include_router(
        hook_routes(desk, view, read_alerts=read_alerts, metrics=metrics, agents_port=config.agents_port)
    )
    app.include_router(session_routes(sessions, clock=clock))
    app.include_router(page_routes(static or (lambda: files)))
    _explain(app)
    _document(app)
    return WebApp(asgi=gate, streams=streams, patience=patience)


def _bare() -> FastAPI:
    return FastAPI(
        title="fleetd",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        redirect_slashes=False,
    )


def _document(app: FastAPI) -> None:
    """Say in the OpenAPI document by what one comes in, and where one needs nothing."""
    document = app.openapi()
    document["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "`fleetd token new` makes them."},
        "session": {"type": "apiKey", "in": "cookie", "name": "fleetd", "description": "Under TLS `__Host-fleetd`."},
        "certificate": {"type": "mutualTLS", "description": "URI fleetd://ROLE/NAME, of the configured authority."},
    }
    document["security"] = [{"token": []}, {"session": []}, {"certificate": []}]
    for path in PUBLIC & document["paths"].keys():
        for operation in document["paths"][path].values():
            operation["security"] = []


def _explain(app: FastAPI) -> None:
    @app.exception_handler(Problem)
    async def problem(_request: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(Unknown)
    async def unknown(_request: Request, error: Unknown) -> Response:
        return Problem(404, str(error)).response()

    @app.exception_handler(Refused)
    async def refused(_request: Request, error: Refused) -> Response:
        return Problem(409, str(error)).response()

    @app.exception_handler(StoreError)
    async def store(_request: Request, error: StoreError) -> Response:
        return Problem(503, str(error), {"Retry-After": "5"}).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ": ".join(str(part) for part in first["loc"])
        more = len(error.errors()) - 1
        said = " ".join(f"{where}: {first['msg']}{f' (and {more} more)' if more else ''}".split())
        return Problem(422, said[:_LINE_CHARS]).response()

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        said = {
            404: f"there is no {request.url.path!r:.200}",
            405: f"{request.method} is not for {request.url.path!r:.200}",
        }
        return Problem(error.status_code, said.get(error.status_code, str(error.detail)), error.headers).response()

    @app.exception_handler(Exception)
    async def bug(_request: Request, _error: Exception) -> Response:
        return Problem(500, "something went wrong inside; the controller's log says more").response()
