"""The controller's side of `Identity` (beside agents and desk) and of `Enrolment` (on a port of its own)."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc
import structlog

from fleetd.model.ids import HostName
from fleetd.pb.v1 import identity_pb2, identity_pb2_grpc
from fleetd.pb.v1.identity_pb2_grpc import add_EnrolmentServicer_to_server
from fleetd.ports import Clock, IdentityDoor, Peer, Refused, StoreError, UplinkError
from fleetd.uplink.buckets import Buckets
from fleetd.uplink.config import TlsFiles
from fleetd.uplink.desk_service import UNAUTHENTICATED
from fleetd.uplink.doors import DoorCalls
from fleetd.uplink.enrol_config import EnrolmentConfig
from fleetd.uplink.listening import bind
from fleetd.uplink.tls import identity, peer_of, server_credentials
from fleetd.uplink.turnstile import host_of
from fleetd.uplink.wire import CodecError, clean, name, text

_log = structlog.get_logger(__name__)

MAX_CSR_CHARS = 16_384
"""A request with an RSA key of 4096 bits has less than 2,000."""
NO_AUTHORITY = "this controller signs no certificates, the site's CA does; or name a CA in its file: `enrolment`"

_RENEWALS_PER_S, _RENEWALS_AT_ONCE = 1 / 600, 5.0
"""Of each agent: a certificate lives for ten minutes at least. A mad agent is not to fill the audit."""

_ENROLMENT_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 2 * MAX_CSR_CHARS),
    ("grpc.max_concurrent_streams", 1),
    # Strangers may open connections here; none of them lasts.
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 5_000),
    ("grpc.max_connection_age_ms", 30_000),
    ("grpc.max_connection_age_grace_ms", 5_000),
)
_ENROLMENT_CALLS_MAX = 64

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")


class IdentityService(identity_pb2_grpc.IdentityServicer):
    """Tokens for operators, renewals for agents."""

    def __init__(self, door: IdentityDoor | None, calls: DoorCalls, *, secure: bool, clock: Clock) -> None:
        """Serve `door`; None: there is no authority. `clock` is for the rate of renewals."""
        self._door = door
        self._calls = calls
        self._secure = secure
        self._renewals = Buckets(_RENEWALS_PER_S, elapsed_s=clock.elapsed_s, burst=_RENEWALS_AT_ONCE)

    async def IssueToken(  # noqa: N802
        self, request: identity_pb2.IssueTokenRequest, context: Context
    ) -> identity_pb2.Token:
        """Let a host enrol."""

        async def answer() -> identity_pb2.Token:
            peer, door = self._admit(context, role="operator"), self._authority()
            token = await door.issue_token(peer, _host(request.host), text(request.reason, "reason"))
            return identity_pb2.Token(token=token.token, expires_at_s=token.expires_at_s)

        return await _answer(self._calls, context, answer())

    async def Renew(  # noqa: N802
        self, request: identity_pb2.RenewRequest, context: Context
    ) -> identity_pb2.Certificate:
        """Give the agent that asks a new certificate."""

        async def answer() -> identity_pb2.Certificate:
            peer, door = self._admit(context, role="agent"), self._authority()
            if wait_s := self._renewals.take(peer.name):
                raise Refused(f"{peer.name} renews too often: try again in {wait_s:.0f} s")
            return identity_pb2.Certificate(chain=await door.renew(peer, _csr(request.csr)))

        return await _answer(self._calls, context, answer())

    def _admit(self, context: Context, *, role: str) -> Peer:
        if not self._secure:
            if role == "agent":
                raise Refused("without TLS there is no certificate to renew")
            return UNAUTHENTICATED
        peer = peer_of(context.auth_context())
        if peer.role != role:
            raise Refused(f"{peer.name} has the role {peer.role}; this is for the role {role}")
        return peer

    def _authority(self) -> IdentityDoor:
        if self._door is None:
            raise Refused(NO_AUTHORITY)
        return self._door


class EnrolmentService(identity_pb2_grpc.EnrolmentServicer):
    """For strangers with a token."""

    def __init__(self, door: IdentityDoor, calls: DoorCalls, *, config: EnrolmentConfig, clock: Clock) -> None:
        self._door = door
        self._calls = calls
        self._each = Buckets(config.attempts_per_second_each, elapsed_s=clock.elapsed_s, peers_max=4096)
        self._all = Buckets(config.attempts_per_second, elapsed_s=clock.elapsed_s)
        self._said = Buckets(0.1, elapsed_s=clock.elapsed_s, burst=1)
        self.turned_away_total = 0

    async def Enrol(  # noqa: N802
        self, request: identity_pb2.EnrolRequest, context: Context
    ) -> identity_pb2.Certificate:
        """Spend a token."""
        address = host_of(context.peer())
        # First each, then all: one address that floods takes nothing from the others.
        if wait_s := self._each.take(address) or self._all.take(""):
            self.turned_away_total += 1
            if not self._said.take(""):
                _log.warning("enrolment_turned_away", address=address, turned_away_total=self.turned_away_total)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"too many attempts: try again in {wait_s:.0f} s")

        async def answer() -> identity_pb2.Certificate:
            host, token = _host(request.host), name(request.token, "token")
            return identity_pb2.Certificate(chain=await self._door.enrol(address, token, host, _csr(request.csr)))

        return await _answer(self._calls, context, answer())


class EnrolmentServer:
    """The enrolment port; made by `serve_enrolment`."""

    def __init__(self, server: grpc.aio.Server, service: EnrolmentService, calls: DoorCalls, *, port: int) -> None:
        self._server = server
        self._service = service
        self._calls = calls
        self.port = port
        """Where it listens: the configured port, or the one it was given for port 0."""

    @property
    def turned_away(self) -> int:
        """Attempts beyond the limits, since the start."""
        return self._service.turned_away_total

    async def run(self) -> None:
        """Serve until cancelled. Raises what the door raised and should not have: a bug, which ends the process."""
        try:
            await asyncio.shield(self._calls.bug)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Cut what is open, and end: the door is not called afterwards. Idempotent."""
        await self._server.stop(None)
        await self._calls.finish()


async def serve_enrolment(
    config: EnrolmentConfig, listen: str, *, tls: TlsFiles, door: IdentityDoor, clock: Clock
) -> EnrolmentServer:
    """Listen for hosts that have a token and no certificate yet. TLS proves who the controller is, and nobody else.

    Args:
        config: how many attempts.
        listen: `HOST:PORT`.
        tls: the controller's own certificate; no certificate of a client is asked for.
        door: what is asked.
        clock: for the rates.

    Raises:
        UplinkError: the address is in use or not of this host, or the certificates cannot be used.
    """
    calls = DoorCalls()
    server = grpc.aio.server(options=_ENROLMENT_OPTIONS, maximum_concurrent_rpcs=_ENROLMENT_CALLS_MAX)
    service = EnrolmentService(door, calls, config=config, clock=clock)
    add_EnrolmentServicer_to_server(service, server)
    port = bind(server, listen, server_credentials(tls, where="enrolment", clients_named=False))
    await server.start()
    _log.info("enrolment_listening", address=listen, port=port)
    return EnrolmentServer(server, service, calls, port=port)


async def _answer(calls: DoorCalls, context: Context, answer: Coroutine[Any, Any, T]) -> T:
    try:
        return await calls.run(answer)
    except Refused as error:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, clean(str(error)))
    except CodecError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, clean(str(error)))
    except (StoreError, UplinkError) as error:
        _log.error("identity_not_served", why=str(error))
        await context.abort(grpc.StatusCode.INTERNAL, "the controller cannot do that now: its log says why")


def _host(value: str) -> HostName:
    try:
        identity("agent", value)
    except UplinkError as error:
        raise CodecError(str(error)) from error
    return HostName(value)


def _csr(pem: str) -> str:
    if len(pem) > MAX_CSR_CHARS:
        raise CodecError(f"csr is {len(pem)} characters long, at most {MAX_CSR_CHARS} are allowed")
    return pem
