"""The web server: uvicorn on the controller's event loop, its certificates, its end."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fleetd.ports import Peer, PortError, Refused
from fleetd.ports.certificate import peer_named
from fleetd.web.app import WebApp
from fleetd.web.config import WebConfig, parse_listen
from fleetd.web.limits import Patience
from fleetd.web.tokens import WebError

_log = structlog.get_logger(__name__)

HEAD_BYTES_MAX = 16 * 1024
"""Of a request's line and headers."""
STOP_SECONDS = 2
"""For answers that are under way when the server stops."""


class _Config(uvicorn.Config):
    """Uvicorn's configuration and what its protocol here needs besides."""

    def __init__(self, app: WebApp, **settings: Any) -> None:
        super().__init__(app.asgi, **settings)
        self.patience: Patience = app.patience
        self.resting: dict[_Protocol, None] = {}
        """Connections with no request under way, the one that has rested longest in front; bounded by those open."""


class _Protocol(H11Protocol):
    """Uvicorn's HTTP/1.1, which besides tells the application whose certificate was shown, and has little patience.

    Uvicorn waits for ever for a head that comes byte by byte, and for a reader that takes nothing of what was sent. And
    it turns whoever comes away when there are too many, though most of them may ask for nothing: here the one that has
    rested longest makes room.
    """

    _head: asyncio.TimerHandle | None = None

    @property
    def _settings(self) -> _Config:
        assert isinstance(self.config, _Config)  # noqa: S101 - `serve_web` makes it
        return self.config

    @property
    def _patience(self) -> Patience:
        return self._settings.patience

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        shown = transport.get_extra_info("peercert") or {}
        self.app_state = {**self.app_state, **_certificate(shown), "hang_up": transport.abort}
        resting = self._settings.resting
        if resting and self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            longest = next(iter(resting))
            del resting[longest]  # now: the next one may come before this one's `connection_lost`
            longest.transport.abort()
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle = getattr(self, "cycle", None)
        if cycle is None or cycle.response_complete:
            self._await_head()
        else:
            self._head_is_there()

    def on_response_complete(self) -> None:
        self._head_is_there()
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():  # and no request was waiting behind it
            self._settings.resting[self] = None  # until the next head begins uvicorn's own timer runs

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(self._patience.send_s, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(self._patience.head_s, self.transport.abort)
            self._settings.resting[self] = None  # keeps its place if it rested already: bytes are no request

    def _head_is_there(self) -> None:
        self._settings.resting.pop(self, None)
        if self._head is not None:
            self._head.cancel()
            self._head = None


def _certificate(shown: dict[str, Any]) -> dict[str, Peer | Refused | float | None]:
    """Whom the client's certificate names, which TLS has verified, and until when; nothing: it has shown none."""
    if not shown:
        return {"certificate": None}
    try:
        peer = peer_named(value for kind, value in shown.get("subjectAltName", ()) if kind == "URI")
    except Refused as error:
        return {"certificate": error}
    return {"certificate": peer, "certificate_ends_s": float(ssl.cert_time_to_seconds(shown["notAfter"]))}


class _Uvicorn(uvicorn.Server):
    """Signals are the controller's own affair."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WebServer:
    """A server that is listening; made by `serve_web`."""

    def __init__(
        self, server: uvicorn.Server, listener: socket.socket, app: WebApp, bug: "asyncio.Future[None]"
    ) -> None:
        self._server = server
        self._app = app
        self._bug = bug
        self.port: int = listener.getsockname()[1]
        """Where it listens: the configured port, or the one it was given for port 0."""
        self._serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))

    async def wait(self) -> None:
        """Wait for ever. Raises what a request met with and should not have: a bug, which ends the process."""
        bug = asyncio.shield(self._bug)
        await asyncio.wait({bug, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            self._serving.result()
        await bug

    async def stop(self) -> None:
        """End event streams, let answers under way be sent, close. Idempotent."""
        self._app.streams.stop()
        self._server.should_exit = True
        await asyncio.wait({self._serving})


SeeKey = Callable[[str], object]
"""Looks whether a private key may be used: whether others can read its file. Raises PortError."""


async def serve_web(
    config: WebConfig, app: WebApp, bug: "asyncio.Future[None]", *, see_key: SeeKey = lambda _path: None
) -> WebServer:
    """Listen and serve.

    Args:
        config: where, and with which certificates.
        app: what is served.
        bug: fails with the first exception that no port names.
        see_key: asked before a key is taken up, at the start and whenever it was replaced.

    Raises:
        WebError: the address cannot be had, or the certificates cannot be used; what `see_key` raises.
    """
    context = None if config.insecure else Certificates(config, see_key=see_key).context
    listener = _listen(config.listen)
    settings: dict[str, Any] = {} if context is None else {"ssl_context_factory": lambda _config, _default: context}
    uvicorn_config = _Config(
        app,
        loop="none",
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=config.connections_max,
        timeout_keep_alive=max(1, int(app.patience.head_s)),
        timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        **settings,
    )
    server = _Uvicorn(uvicorn_config)
    served = WebServer(server, listener, app, bug)
    _log.info("web listening", address=config.listen, port=served.port, secure=context is not None)
    return served


def _listen(listen: str) -> socket.socket:
    host, port = parse_listen(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)  # Python's own text repeats the address
        advice = "stop what listens there, or set another `web: listen`"
        raise WebError(f"the page cannot be served on {listen}: {why}; {advice}") from error


class Certificates:
    """The server's certificates, looked at anew for each connection, so that they rotate without downtime."""

    def __init__(self, config: WebConfig, *, see_key: SeeKey = lambda _path: None) -> None:
        """Read them. Raises WebError; what `see_key` raises."""
        self._see_key = see_key
        self._files = tuple(path for path in (config.cert, config.key, config.ca) if path is not None)
        self._config = config
        self._stamps = self._stamps_now()
        self._current = self.context = self._load()
        self.context.sni_callback = self._hello

    def _hello(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called by TLS at each client's hello, whether it names a server or not."""
        stamps = self._stamps_now()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._current = self._load()
            except PortError as error:
                _log.error("web certificates not reloaded; the last good ones stay in use", why=str(error))
            else:
                _log.info("web certificates reloaded", cert=self._config.cert)
        if self._current is not self.context:
            connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        config = self._config
        assert config.cert is not None  # noqa: S101 - the configuration was checked
        assert config.key is not None  # noqa: S101
        self._see_key(config.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # No resumption: a session begun with a certificate that is no longer good must not go on.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        try:
            context.load_cert_chain(config.cert, config.key, password=_no_password)
            if config.ca is not None:
                context.load_verify_locations(config.ca)
                context.verify_mode = ssl.CERT_OPTIONAL
        except ssl.SSLError as error:
            raise WebError(
                f"web: {', '.join(self._files)}: {error.reason or error}; they must be PEM, and the key the cert's"
            ) from error
        except OSError as error:
            unread = next((path for path in self._files if not Path(path).is_file()), self._files[0])
            raise WebError(f"web: cannot read {unread}: {error.strerror}") from error
        return context

    def _stamps_now(self) -> tuple[tuple[int, int], ...]:
        stamps = []
        for path in self._files:
            try:
                status = Path(path).stat()
            except OSError:
                stamps.append((0, 0))
            else:
                stamps.append((status.st_ino, status.st_mtime_ns))
        return tuple(stamps)


def _no_password() -> str:
    """A daemon cannot be asked: an encrypted key cannot be used."""
    return ""
