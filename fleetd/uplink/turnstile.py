"""In front of every call: whether the certificate still counts, how many a peer may have open, and begin.

TLS looks at a certificate when a connection begins, and a connection has no end: a call is asked about it anew.

A peer is who its certificate names; agents and people have limits of their own, so that a script that asks without end
takes nothing from the agents, and a broken agent nothing from its operators. In insecure mode nobody is told apart, and
nothing is limited: whoever can open a socket on the loopback is trusted.
"""

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc
import structlog

from fleetd.ports import Clock, Refused, UplinkError
from fleetd.uplink.buckets import Buckets
from fleetd.uplink.config import ServerConfig
from fleetd.uplink.tls import certificate_of, peer_of
from fleetd.uplink.validity import validity_of

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]  # a generic class in the stub only

_log = structlog.get_logger(__name__)

AGENT_OPEN_MAX = 8
"""Of these an agent needs three: its stream, the one that follows it, a renewal."""
PERSON_OPEN_MAX = 32
ENDED = "the certificate of this connection has ended: connect anew with one that counts"
_REFLECTION = "/grpc.reflection."
"""It tells what can be asked: for peers with a role. Health is for any certificate that TLS let in."""
_SAID_EVERY_S = 10.0

Context = grpc.aio.ServicerContext[Any, Any]


class _TurnedAwayError(Exception):
    """The call does not begin; the message says why."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class Turnstile(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # a generic class in the stub only
    """Counts the calls of every peer, and turns away what is beyond the limits."""

    def __init__(self, config: ServerConfig, *, clock: Clock) -> None:
        """Take the limits from `config`; `clock` is for the rates, and for the ends of certificates."""
        self._clock = clock
        self._agents = Buckets(config.agent_calls_per_second, elapsed_s=clock.elapsed_s)
        self._people = Buckets(config.desk_calls_per_second, elapsed_s=clock.elapsed_s)
        self._said = Buckets(1 / _SAID_EVERY_S, elapsed_s=clock.elapsed_s, burst=1)
        self._open: Counter[str] = Counter()  # bounded by the server's limit on streams
        self.turned_away_total = 0

    async def intercept_service(  # noqa: D102 - see the base class
        self, continuation: Callable[[grpc.HandlerCallDetails], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> "Handler":
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None:
            return handler  # type: ignore[return-value]  # gRPC answers that there is no such method
        return self._guarded(handler, handler_call_details.method)

    def _guarded(self, handler: "Handler", method: str) -> "Handler":
        kind = f"{_word(streams=handler.request_streaming)}_{_word(streams=handler.response_streaming)}"
        behaviour: Callable[..., Any] = getattr(handler, kind)

        async def generate(request: Any, context: Context) -> AsyncIterator[Any]:
            try:
                with self._inside(context, method):
                    async for answer in behaviour(request, context):
                        yield answer
            except _TurnedAwayError as error:
                await context.abort(error.code, str(error))

        async def call(request: Any, context: Context) -> Any:
            try:
                with self._inside(context, method):
                    return await behaviour(request, context)
            except _TurnedAwayError as error:
                await context.abort(error.code, str(error))

        # gRPC looks at the kind of function to learn whether it yields its answers or writes them.
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        made: Handler = make(
            generate if inspect.isasyncgenfunction(behaviour) else call,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
        return made

    @contextmanager
    def _inside(self, context: Context, method: str) -> Iterator[None]:
        if self._has_ended(context):
            raise _TurnedAwayError(grpc.StatusCode.UNAUTHENTICATED, ENDED)
        peer, is_agent = _who(context, needs_role=method.startswith(_REFLECTION))
        most = AGENT_OPEN_MAX if is_agent else PERSON_OPEN_MAX
        if self._open[peer] >= most:
            self._turn_away(peer, method, f"{peer} has {most} calls open already: end some of them")
        if wait_s := (self._agents if is_agent else self._people).take(peer):
            self._turn_away(peer, method, f"{peer} calls too often: try again in {wait_s:.1f} s")
        self._open[peer] += 1
        try:
            yield
        finally:
            self._open[peer] -= 1
            if not self._open[peer]:
                del self._open[peer]

    def _has_ended(self, context: Context) -> bool:
        pem = certificate_of(context.auth_context())
        try:
            return pem is not None and validity_of(pem, where="a certificate").ends_at_s <= self._clock.wall_s()
        except UplinkError:  # TLS could read it; a session that begins with it says so in the log
            return False

    def _turn_away(self, peer: str, method: str, why: str) -> None:
        self.turned_away_total += 1
        if not self._said.take(peer):  # a flood of calls is not to become a flood of lines
            _log.warning("turned_away", peer=peer, method=method, why=why)
        raise _TurnedAwayError(grpc.StatusCode.RESOURCE_EXHAUSTED, why)


def _who(context: Context, *, needs_role: bool) -> tuple[str, bool]:
    """Who calls, and whether it is an agent. Raises _TurnedAwayError."""
    try:
        peer = peer_of(context.auth_context())
    except Refused as error:
        if needs_role:
            raise _TurnedAwayError(grpc.StatusCode.PERMISSION_DENIED, str(error)) from error
        return host_of(context.peer()), False
    return f"{peer.role} {peer.name}", peer.role == "agent"


def host_of(peer: str) -> str:
    """The address in what gRPC calls a peer, without its port: `ipv4:192.0.2.1:4711`, `ipv6:%5B2001:db8::1%5D:4711`."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]") or peer


def _word(*, streams: bool) -> str:
    return "stream" if streams else "unary"
