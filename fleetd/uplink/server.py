"""The controller's gRPC server: two services on one port, their limits, and an orderly end."""

import asyncio
import socket

import grpc
import structlog

from fleetd.pb.v1.agent_pb2_grpc import add_AgentLinkServicer_to_server
from fleetd.pb.v1.desk_pb2_grpc import add_DeskServicer_to_server
from fleetd.ports import AgentDoor, DeskDoor, UplinkError
from fleetd.uplink.agent_link import AgentLink
from fleetd.uplink.config import ServerConfig, split_address
from fleetd.uplink.desk_service import DeskService
from fleetd.uplink.doors import DoorCalls
from fleetd.uplink.tls import server_credentials
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
)
_DESK_CALLS_MAX = 64
"""Room beside the agents for questions of operators."""


class Server:
    """A server that is listening; made by `serve`."""

    def __init__(
        self, server: grpc.aio.Server, link: AgentLink, calls: DoorCalls, *, config: ServerConfig, port: int
    ) -> None:
        self._server = server
        self._link = link
        self._calls = calls
        self._config = config
        self.port = port
        """Where it listens: the configured port, or the one it was given for port 0."""

    @property
    def agents(self) -> int:
        """Hosts that are connected now."""
        return self._link.sessions

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
        if grace_s > 0:
            self._link.drain(why, self._config.drain_retry_after_seconds)
        await self._server.stop(grace_s)
        await self._link.finish()
        await self._calls.finish()


async def serve(config: ServerConfig, *, agents: AgentDoor, desk: DeskDoor) -> Server:
    """Listen for agents and operators.

    Raises:
        UplinkError: the address is in use or not of this host, or the certificates cannot be used.
    """
    tls = config.tls
    host, port = split_address(config.listen, where="listen")
    calls = DoorCalls()
    link = AgentLink(agents, calls, secure=tls is not None, hello_s=config.hello_seconds)
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=config.agents_max + _DESK_CALLS_MAX)
    add_AgentLinkServicer_to_server(link, server)
    add_DeskServicer_to_server(DeskService(desk, calls, secure=tls is not None), server)
    try:
        if tls is None:
            bound = server.add_insecure_port(config.listen)
        else:
            bound = server.add_secure_port(config.listen, server_credentials(tls, where="listen"))
    except RuntimeError as error:
        raise UplinkError(f"cannot listen on {config.listen}: {_why_not(host, port)}") from error
    await server.start()
    _log.info("listening", address=config.listen, port=bound, secure=tls is not None)
    return Server(server, link, calls, config=config, port=bound)


def _why_not(host: str, port: int) -> str:
    """Bind by hand to learn what gRPC does not say."""
    try:
        family, kind, proto, _name, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return f"{error.strerror}; stop what uses it or choose another `listen`"
    return "gRPC could not use it; check the certificate and its key, or try again"
