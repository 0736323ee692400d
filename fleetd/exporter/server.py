"""The small HTTP server that shows the page of metrics.

It has threads of its own, so it answers while the event loop is busy, or a driver hangs.
"""

import contextlib
import gzip
import selectors
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import ProcessCollector

from fleetd.exporter.config import parse_listen
from fleetd.exporter.page import Collector, Page, negotiate
from fleetd.ports import PortError

_REQUESTS_MAX = 8
"""Scrapes served side by side; one more is turned away at once, so that slow readers cannot pile threads up."""
_REQUEST_S = 10.0
"""A client that has not sent its request and taken the answer by then is hung up on, however busy it looks."""
HEALTH = "/healthz"
"""Where it is said whether the process lives, as Kubernetes asks."""
_PAUSE_S = 0.5
"""Between two looks for clients while there are no descriptors left for any."""


class Exporter:
    """Serves collectors at `/metrics`, and a word at `/healthz`. It starts at once; `close` ends it."""

    def __init__(
        self,
        listen: str,
        collectors: Sequence[Collector],
        *,
        request_s: float = _REQUEST_S,
        trouble: Callable[[], str] = str,
    ) -> None:
        """Listen and serve. Raises PortError when the address cannot be had, ValueError when it is none.

        Args:
            listen: `ADDRESS:PORT`.
            collectors: what is served; any path but `/healthz` has it.
            request_s: after which a client is hung up on.
            trouble: asked on a thread: why the process had better be started anew; "": it lives.
        """
        host, port = parse_listen(listen)
        # No registry: two agents in one process must not see each other's metrics.
        page = Page([*collectors, ProcessCollector(registry=None)])
        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), _Handler, request_s)
        except OSError as error:
            advice = "stop what listens there, or set another `listen`"
            raise PortError(f"metrics cannot be served on {listen}: {error.strerror}; {advice}") from error
        self._server.set_app(_app(page, trouble))
        self._server.timeout = 0  # a client that has gone again is not waited for
        self._ends, self._end = socket.socketpair()
        self._either = selectors.DefaultSelector()
        for wakes in (self._server, self._ends):
            self._either.register(wakes, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="exporter", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on; of interest when 0 was asked for."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving; idempotent. A scrape in progress is not waited for."""
        with contextlib.suppress(OSError):  # it is closed already
            self._end.shutdown(socket.SHUT_RDWR)  # which reaches the other end even if a forked process has this one
        self._end.close()
        self._thread.join()
        self._either.close()
        self._server.server_close()
        self._ends.close()

    def _serve(self) -> None:
        """Wait for clients and for `close` alike: `serve_forever` would wake up some times a second for the latter."""
        while all(key.fileobj is not self._ends for key, _ in self._either.select()):
            self._server.handle_request()
            if self._server.turned_away:  # whoever knocks still does: without a pause this would take a whole core
                self._either.unregister(self._server)
                self._either.select(_PAUSE_S)
                self._either.register(self._server, selectors.EVENT_READ)


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """WSGI with a bounded number of threads."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler], request_s: float) -> None:
        self._request_s = request_s
        self._slots = threading.BoundedSemaphore(_REQUESTS_MAX)
        self.turned_away = False
        """Whether the client that came last could not be let in."""
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without the look-up of our own name in DNS, which can hang for half a minute."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        """Let a client in. Raises OSError, which the caller takes for nobody there: also when descriptors ran out."""
        self.turned_away = True
        client = super().get_request()
        self.turned_away = False
        return client

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve on a thread, or hang up when there are too many already."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread is to be had: this client is hung up on, and its place is free for the next
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One request, on its thread."""
        # A limit for the whole of it: with one for each read, a client that sends a byte now and then stays for ever.
        limit = threading.Timer(self._request_s, _hang_up, (request,))
        limit.daemon = True
        try:
            limit.start()
            super().process_request_thread(request, client_address)
        except RuntimeError:  # no second thread is to be had
            self.shutdown_request(request)
        finally:
            limit.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up or falls silent is no event for the log."""


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has just ended by itself
        connection.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """A scrape a second is no event for the log."""


def _app(page: Page, trouble: Callable[[], str]) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """The WSGI application: GET gives the page, in the format and encoding that the client asks for."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            start_response("405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return [b""]
        if environ["PATH_INFO"] == HEALTH:
            why = trouble()
            body = f"{why or 'alive'}\n".encode()
            headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
            start_response("503 Service Unavailable" if why else "200 OK", headers)
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
        content_type = negotiate(environ.get("HTTP_ACCEPT", ""))
        body = page.text(content_type).encode()
        headers = [("Content-Type", content_type)]
        if "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""):
            body = gzip.compress(body, compresslevel=1, mtime=0)  # a tenth of the size for a few milliseconds
            headers.append(("Content-Encoding", "gzip"))
        start_response("200 OK", [*headers, ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return app
