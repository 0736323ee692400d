"""Who may come in, and with what: asked before a request's body is read.

Everything is closed but the page itself, the two health questions and the log-in. A change besides must come from
where it says: credentials that a browser sends by itself (a cookie, a client certificate, a socket on this host) are
no proof that its user meant it, so a change is JSON, from the same origin, and by cookie shows the session's secret.
"""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from fleetd.ports import Clock, Peer, Refused
from fleetd.web.answers import Problem, take
from fleetd.web.config import WebConfig
from fleetd.web.limits import Buckets, Patience
from fleetd.web.sessions import Session, Sessions, same_secret
from fleetd.web.tokens import READERS, TOKEN_CHARS_MAX, TokenFile, digest_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

UNAUTHENTICATED = Peer(name="unauthenticated", role="operator")
"""Who everybody is where everybody is believed; so named that it stands out in holds and in the audit trail."""
CSRF_HEADER = "x-fleetd-csrf"
BODY_BYTES_MAX = 1 << 20
LOGIN_BYTES_MAX = 4096
"""Of a body that anybody may send."""
PUBLIC = frozenset({"/", "/healthz", "/readyz", "/api/v1/session"})
SESSION = "/api/v1/session"
EVENTS = "/api/v1/events"
HOOKS = "/hooks/"
# No Strict-Transport-Security: it would hold for every port of this host, and other services there may be plain HTTP.
_SECURITY = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_LOOPBACK = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who is there."""

    peer: Peer
    session: Session | None = None
    """Of a browser that has logged in."""


class Gate:
    """ASGI: lets a request through to the application, or answers it."""

    def __init__(
        self,
        app: App,
        *,
        config: WebConfig,
        tokens: TokenFile | None,
        sessions: Sessions | None,
        clock: Clock,
        on_bug: Callable[[BaseException], None],
        patience: Patience,
    ) -> None:
        """Wire it; `on_bug` is told of an exception that no port names."""
        self._app = app
        self._on_bug = on_bug
        self._patience = patience
        self._open = config.open
        self._clock = clock
        self._tokens = tokens
        self._sessions = sessions
        per_minute, per_second = config.changes_per_minute, config.reads_per_second
        self._changes = Buckets(per_minute=per_minute, at_once=per_minute / 4, clock=clock)
        self._reads = Buckets(per_minute=per_second * 60, at_once=per_second * 10, clock=clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        if scope["method"] == "HEAD" and scope["path"] != EVENTS:
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        headers = Headers(scope=scope)
        guarded = _guarded(scope, send, self._patience.send_s)
        try:
            try:
                self._admit(scope, headers)
                received = await _body(scope, headers, receive, self._patience.body_s)
            except Problem as problem:
                await problem.response()(scope, receive, guarded)
            else:
                await self._app(scope, received, guarded)
        except Exception as error:  # the server would swallow it
            self._on_bug(error)
            raise

    def _admit(self, scope: Scope, headers: Headers) -> None:
        """Let it through, with `scope["state"]["visitor"]`. Raises Problem."""
        path, method = scope["path"], scope["method"]
        if self._open:
            _only_this_machine(headers)
        visitor = None if path == SESSION and method == "POST" else self.visitor(scope, headers)
        scope.setdefault("state", {})["visitor"] = visitor
        changes = method not in {"GET", "HEAD", "OPTIONS"}
        if changes:
            _meant(method, headers, visitor)
        if path in PUBLIC or path.startswith("/static/"):
            return
        if visitor is None:
            raise _who_are_you("who are you? send a bearer token, show a client certificate, or log in on the page")
        _may(visitor.peer, path, changes=changes)
        # One loop serves people and agents: a script that asks without end is not to take it from the agents.
        buckets, what = (self._changes, "changes") if changes else (self._reads, "questions")
        take(buckets, f"{visitor.peer.role}:{visitor.peer.name}", what)

    def may_look(self, scope: Scope, headers: Headers) -> bool:
        """Whether whoever asked this may read, as things are now."""
        try:
            visitor = self.visitor(scope, headers)
        except Problem:
            return False
        return visitor is not None and visitor.peer.role in READERS

    def visitor(self, scope: Scope, headers: Headers) -> Visitor | None:
        """Who is there; None: nobody says. Raises Problem when a token or certificate is no good.

        A token that is shown counts before a cookie, a cookie before a certificate.
        """
        authorization = headers.get("authorization")
        if authorization is not None:
            return Visitor(peer=self._bearer(authorization))
        cookie = cookie_of(scope, headers)
        found = self._sessions.find(cookie) if cookie and self._sessions is not None else None
        if found is not None:
            return Visitor(peer=found[1], session=found[0])
        state = scope.get("state", {})
        shown = state.get("certificate")
        if isinstance(shown, Refused):
            raise Problem(403, str(shown))
        if isinstance(shown, Peer):
            if state.get("certificate_ends_s", math.inf) <= self._clock.wall_s():  # TLS looked when it began
                raise Problem(
                    401, "the certificate of this connection has ended: connect anew", {"Connection": "close"}
                )
            return Visitor(peer=shown)
        return Visitor(peer=UNAUTHENTICATED) if self._open else None

    def _bearer(self, authorization: str) -> Peer:
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not 0 < len(token) <= TOKEN_CHARS_MAX:
            raise _who_are_you("the Authorization header must be `Bearer TOKEN`")
        peer = None if self._tokens is None else self._tokens.peer(digest_of(token))
        if peer is None:
            raise _who_are_you("this token is not known, or has expired; ask for a new one")
        return peer


def _guarded(scope: Scope, send: Send, send_s: float) -> Send:
    """`send` with the headers that every answer has, and an end to patience."""
    hang_up = scope.get("state", {}).get("hang_up")

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_SECURITY]
        if hang_up is None:
            await send(message)
            return
        limit = asyncio.get_running_loop().call_later(send_s, hang_up)  # then `send` returns: nobody is there
        try:
            await send(message)
        finally:
            limit.cancel()

    return guarded


def cookie_name(scope: Scope, headers: Headers) -> str:
    """Name of the session's cookie. Under TLS browsers hold it to this host and path by its prefix."""
    return "__Host-fleetd" if is_secure(scope, headers) else "fleetd"


def is_secure(scope: Scope, headers: Headers) -> bool:
    """Whether the browser speaks TLS: with us, or with the proxy before us."""
    return scope["scheme"] == "https" or headers.get("x-forwarded-proto", "").lower() == "https"


def cookie_of(scope: Scope, headers: Headers) -> str:
    """The session's cookie; "": none."""
    return cookie_parser(headers.get("cookie", "")).get(cookie_name(scope, headers), "")[:TOKEN_CHARS_MAX]


def _who_are_you(error: str) -> Problem:
    return Problem(401, error, {"WWW-Authenticate": 'Bearer realm="fleetd"'})


def _may(peer: Peer, path: str, *, changes: bool) -> None:
    hook = path.startswith(HOOKS)
    if hook and changes and peer.role in {"hook", "operator"}:
        return
    if peer.role == "operator" or (peer.role in READERS and not changes):
        return
    what = "hand in alerts" if hook else "change anything" if changes else "read here"
    needs = "a hook or an operator" if hook else "an operator" if changes else "a viewer or an operator"
    raise Problem(403, f"{peer.name} has the role {peer.role} and may not {what}; that takes {needs}")


def _meant(method: str, headers: Headers, visitor: Visitor | None) -> None:
    """Refuse a change that another site's page may have sent. Raises Problem."""
    host, origin = headers.get("host", ""), headers.get("origin")
    same = origin is None or origin.partition("://")[2].lower() == host.lower()
    if not same or headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise Problem(403, f"a page of {origin or 'another site'} sent this, and only the page of {host} may")
    if method != "DELETE" and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "the body must be JSON, with `Content-Type: application/json`")
    if visitor is not None and visitor.session is not None:
        shown = headers.get(CSRF_HEADER, "")
        if not same_secret(shown, visitor.session.csrf):
            raise Problem(403, f"the header {CSRF_HEADER} does not hold this session's secret; load the page again")


def _only_this_machine(headers: Headers) -> None:
    """Where everybody is believed, refuse who came by another name or through a proxy. Raises Problem."""
    if not _LOOPBACK.fullmatch(headers.get("host", "").lower()):
        raise Problem(403, "`insecure` is for this machine alone: use http://127.0.0.1, or configure tokens")
    if any(header in headers for header in ("forwarded", "x-forwarded-for", "x-forwarded-proto", "via")):
        raise Problem(403, "`insecure` believes everybody, and a proxy stands before it: configure tokens")


async def _body(scope: Scope, headers: Headers, receive: Receive, body_s: float) -> Receive:
    """Read the whole body of a change, which is bounded in size and time. Raises Problem."""
    if scope["method"] in {"GET", "HEAD", "OPTIONS"}:
        return receive
    length, most = headers.get("content-length", "0"), LOGIN_BYTES_MAX if scope["path"] in PUBLIC else BODY_BYTES_MAX
    if not length.isdecimal() or int(length) > most:
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(body_s):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Problem(400, "the body broke off")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise _too_large(most)
                more = message.get("more_body", False)
    except TimeoutError:
        raise Problem(408, f"the body took longer than {body_s:g} s", {"Connection": "close"}) from None
    whole: Message | None = {"type": "http.request", "body": b"".join(parts), "more_body": False}

    async def again() -> Message:
        nonlocal whole
        if whole is None:
            return await receive()
        given, whole = whole, None
        return given

    return again


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body is larger than {most} bytes", {"Connection": "close"})
