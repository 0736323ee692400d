"""Server-sent events: which hosts changed, and how they stand on the map now; for more of them a page asks itself.

Nobody has a queue. The controller remembers the newest changes; each stream asks for what came since its position. A
reader that is too slow is hung up on, and one that comes back too late is told to load everything anew.
Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.datastructures import Headers
from starlette.responses import Response

from fleetd.ports import Clock, FleetView, StoreError, Unknown
from fleetd.ports.view import Changes
from fleetd.web.answers import Problem
from fleetd.web.change import who
from fleetd.web.gate import Receive, Scope, Send
from fleetd.web.rows import row
from fleetd.web.words import ERRORS, no_query

STREAMS_MAX = 256
STREAMS_EACH = 64
"""Of one peer: a screen has one for each window that somebody sees."""
PAUSE_S = 0.5
"""Between two events of one stream: in a storm they become one."""
BEAT_S = 15.0
"""A sign of life, so that neither proxies nor browsers give up; also how soon a withdrawn token ends a stream."""
HOSTS_MAX = 256
"""Named in one event; of more, the page loads everything anew."""
RETRY_MS = 2000


Write = Callable[[str], Awaitable[None]]


class EventStreams:
    """The open streams, counted; ends them all when the server stops."""

    def __init__(self, view: FleetView, *, clock: Clock, nonce: str) -> None:
        self._view = view
        self._clock = clock
        self._nonce = nonce
        self._stop = asyncio.Event()
        self.open = 0
        self.of: Counter[str] = Counter()
        """The same, by peer."""
        self._told = ("", "", "")
        """The last event: since, position, text."""

    def stop(self) -> None:
        """End all streams; those who read come back to whoever listens then."""
        self._stop.set()

    def routes(self, admitted: Callable[[Scope, Headers], bool]) -> APIRouter:
        """Make the route; `admitted` says whether whoever asked may still look."""
        routes = APIRouter(prefix="/api/v1", responses=ERRORS, tags=["fleet"])

        @routes.get(
            "/events",
            dependencies=[Depends(no_query)],
            responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
            response_class=Response,
        )
        async def events(request: Request) -> Response:
            """What changes: `hello`, then `change` with hosts and fleet, or `reload`; `Last-Event-ID` goes on."""
            _ = self._view.position  # before the answer begins, what stands in the way can be said
            if self.open >= STREAMS_MAX:
                raise Problem(503, f"{STREAMS_MAX} streams are open; ask now and then instead", {"Retry-After": "30"})
            peer = who(request)
            whose = f"{peer.role}:{peer.name}"
            if self.of[whose] >= STREAMS_EACH:
                raise Problem(
                    429, f"{peer.name} has {STREAMS_EACH} streams open already; end some", {"Retry-After": "30"}
                )
            return _Stream(self, request.headers.get("last-event-id"), admitted, whose)

        return routes

    async def serve(self, last: str | None, send: Write, still: Callable[[], bool]) -> None:
        """Send events until the server stops, the visitor may not look any more, or this controller judges no more."""
        with contextlib.suppress(StoreError):  # who comes back is told, or finds the one that judges
            await self._serve(last, send, still)

    async def _serve(self, last: str | None, send: Write, still: Callable[[], bool]) -> None:
        position = self._view.position
        if last is None:
            await send(self._event("hello", position, {"position": position}))
        else:
            position = await self._tell(last.removeprefix(f"{self._nonce}-"), send)
        asked_s = self._clock.elapsed_s()
        while True:
            changed = await self._first(self._view.changed(position), self._clock.sleep_s(BEAT_S))
            if self._clock.elapsed_s() - asked_s >= BEAT_S:
                asked_s = self._clock.elapsed_s()
                if not still():
                    return
            if self._stop.is_set():
                return
            if not changed:
                _ = self._view.position  # a controller that judges no more says so here, if nothing has before
                await send(": beat\n\n")
                continue
            position = await self._tell(position, send)
            await self._first(self._clock.sleep_s(PAUSE_S))

    async def _first(self, *waits: Coroutine[Any, Any, None]) -> bool:
        """Wait for one of these, or until the server stops; whether the first one is over and the server goes on."""
        tasks = [asyncio.ensure_future(wait) for wait in (*waits, self._stop.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
            return tasks[0].done() and not self._stop.is_set()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, since: str, send: Write) -> str:
        changes = self._view.since(since)
        if changes.position != since:
            if self._told[:2] != (since, changes.position):  # nearly all streams are at the same place
                self._told = (since, changes.position, self._text(changes))
            await send(self._told[2])
        return changes.position

    def _text(self, changes: Changes) -> str:
        if changes.everything or len(changes.hosts) > HOSTS_MAX:
            return self._event("reload", changes.position, {"position": changes.position})
        connected = self._view.connected()
        hosts = []
        for name in changes.hosts:
            with contextlib.suppress(Unknown):  # its agent came before the ledger knew of it
                hosts.append(self._view.host(name))
        rows = [(*row(host, connected=host.name in connected), host.place.pool, host.place.rack) for host in hosts]
        body = {"position": changes.position, "hosts": changes.hosts, "rows": rows, "fleet": changes.fleet}
        return self._event("change", changes.position, body)

    def _event(self, kind: str, position: str, body: dict[str, object]) -> str:
        data = msgspec.json.encode(body).decode()
        retry = f"retry: {RETRY_MS}\n" if kind == "hello" else ""
        return f"{retry}event: {kind}\nid: {self._nonce}-{position}\ndata: {data}\n\n"


class _Stream(Response):
    """The answer that goes on."""

    media_type = "text/event-stream"

    def __init__(
        self, streams: EventStreams, last: str | None, admitted: Callable[[Scope, Headers], bool], whose: str
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._streams = streams
        self._last = last
        self._admitted = admitted
        self._whose = whose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)

        def still() -> bool:
            return self._admitted(scope, headers)

        async def write(text: str) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        self._streams.open += 1
        self._streams.of[self._whose] += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            tasks = (
                asyncio.ensure_future(self._streams.serve(self._last, write, still)),
                asyncio.ensure_future(gone()),
            )
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                told, _ = await asyncio.gather(*tasks, return_exceptions=True)
            if isinstance(told, Exception):
                raise told
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams.open -= 1
            self._streams.of[self._whose] -= 1
            if not self._streams.of[self._whose]:
                del self._streams.of[self._whose]
