"""The controller's gRPC server: its services on one port, their limits, and an orderly end.

Beside fleetd's own services it has `grpc.health.v1.Health`, for any certificate that TLS lets in, and reflection, for
peers with a role. It listens once the ledger is loaded; health says NOT_SERVING while it drains.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from fleetd.pb.v1 import agent_pb2, desk_pb2, identity_pb2
from fleetd.pb.v1.agent_pb2_grpc import add_AgentLinkServicer_to_server
from fleetd.pb.v1.desk_pb2_grpc import add_DeskServicer_to_server
from fleetd.pb.v1.identity_pb2_grpc import add_IdentityServicer_to_server
from fleetd.ports import AgentDoor, Clock, DeskDoor, IdentityDoor
from fleetd.uplink.agent_link import AgentLink
from fleetd.uplink.config import ServerConfig
from fleetd.uplink.desk_service import DeskService
from fleetd.uplink.doors import DoorCalls
from fleetd.uplink.identity_service import IdentityService
from fleetd.uplink.listening import bind
from fleetd.uplink.tls import server_credentials
from fleetd.uplink.turnstile import Turnstile
from fleetd.uplink.wire import MAX_MESSAGE_BYTES

_log = structlog.get_logger(__name__)

_OPTIONS = (
    # Two controllers on one port would each get half of the agents.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A connection carries one agent's stream, or a few questions of an operator.
    ("grpc.max_concurrent_streams", 16),
    # Dead agents are noticed within 40 s; agents that ping more often than every 10 s are cut off.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    # Who opens a connection and says nothing holds it for so long; a whole fleet that comes back at once needs seconds.
    ("grpc.server_handshake_timeout_ms", 30_000),
    # What a connection reads into stands ready while it waits for the next message: by itself it grows to 64 KiB each.
    # Named experimental; a gRPC that no longer knows it only takes more memory.
    ("grpc.experimental.tcp_max_read_buffer_size", 8192),
)
_DESK_CALLS_MAX = 256
"""Room beside the agents for questions of people, for health and for renewals."""
_SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in ((agent_pb2, "AgentLink"), (desk_pb2, "Desk"), (identity_pb2, "Identity"))
)


class Server:
    """A server that is listening; made by `serve`."""

    def __init__(
        self,
        server: grpc.aio.Server,
        link: AgentLink,
        calls: DoorCalls,
        *,
        checks: Any,
        turnstile: Turnstile | None,
        config: ServerConfig,
        port: int,
    ) -> None:
        self._server = server
        self._link = link
        self._calls = calls
        self._checks = checks
        self._turnstile = turnstile
        self._config = config
        self.port = port
        """Where it listens: the configured port, or the one it was given for port 0."""

    @property
    def agents(self) -> int:
        """Hosts that are connected now."""
        return self._link.sessions

    @property
    def turned_away(self) -> Mapping[str, int]:
        """Since the start, by reason: calls beyond the limits of their peer, agents that did not read."""
        calls = 0 if self._turnstile is None else self._turnstile.turned_away_total
        return {"limit": calls, "slow_reader": self._link.slow_readers_total}

    async def serving(self, *, yes: bool) -> None:
        """Have health say whether the services can be used; for good once the server stops."""
        state = health_pb2.HealthCheckResponse.SERVING if yes else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *_SERVICES):
            await self._checks.set(service, state)

    async def wait(self) -> None:
        """Wait for ever. Raises what a door raised and should not have: a bug, which ends the process."""
        await asyncio.shield(self._calls.bug)

    def turn_away(self, why: str) -> None:
        """End every session, and go on listening: the agents ask another controller at once."""
        self._link.drain(why, 0.0)

    async def stop(self, *, why: str = "the controller restarts", grace_s: float = 1.0) -> None:
        """Send the agents away and end: no door is called afterwards. Idempotent.

        Args:
            why: what the agents are told.
            grace_s: seconds for sessions to end by themselves; 0 cuts them.
        """
        await self._checks.enter_graceful_shutdown()
        if grace_s > 0:
            self._link.drain(why, self._config.drain_retry_after_seconds)
        await self._server.stop(grace_s)
        await self._link.finish()
        await self._calls.finish()


async def serve(
    config: ServerConfig, *, agents: AgentDoor, desk: DeskDoor, clock: Clock, identity: IdentityDoor | None = None
) -> Server:
    """Listen for agents and operators; health says that it serves from the first moment.

    Args:
        config: where, as whom, and the limits.
        agents: where agents come in.
        desk: where people come in.
        clock: for rates and the ends of certificates.
        identity: who makes certificates; None: this controller makes none, and says so.

    Raises:
        UplinkError: the address is in use or not of this host, or the certificates cannot be used.
    """
    tls = config.tls
    calls = DoorCalls()
    link = AgentLink(agents, calls, config=config, clock=clock)
    turnstile = None if tls is None else Turnstile(config, clock=clock)
    checks = health.aio.HealthServicer()  # type: ignore[attr-defined]  # the stub forgets it
    server = grpc.aio.server(
        options=_OPTIONS,
        maximum_concurrent_rpcs=config.agents_max + _DESK_CALLS_MAX,
        interceptors=() if turnstile is None else (turnstile,),
    )
    add_AgentLinkServicer_to_server(link, server)
    add_DeskServicer_to_server(DeskService(desk, calls, secure=tls is not None), server)
    add_IdentityServicer_to_server(IdentityService(identity, calls, secure=tls is not None, clock=clock), server)
    add_HealthServicer_to_server(checks, server)
    reflection.enable_server_reflection((*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    port = bind(server, config.listen, None if tls is None else server_credentials(tls, where="listen"))
    made = Server(server, link, calls, checks=checks, turnstile=turnstile, config=config, port=port)
    await made.serving(yes=True)
    await server.start()
    _log.info("listening", address=config.listen, port=port, secure=tls is not None)
    return made
