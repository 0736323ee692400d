"""The controller's side of `AgentLink`: one session a host, between its stream and the `AgentDoor`."""

import asyncio
from contextlib import suppress

import grpc
import structlog

from fleetd.model.ids import HostName
from fleetd.pb.v1 import agent_pb2, agent_pb2_grpc
from fleetd.ports import AgentDoor, Clock, NotJudge, Peer, Refused, StoreError
from fleetd.uplink.agent_session import Context, GoneError, Session, SlowError, read, refused, say, taken_over
from fleetd.uplink.buckets import Buckets
from fleetd.uplink.channel import STANDS_BY
from fleetd.uplink.config import ServerConfig
from fleetd.uplink.doors import DoorCalls
from fleetd.uplink.hello_codec import hello_from_pb
from fleetd.uplink.tls import peer_of
from fleetd.uplink.wire import CodecError, clean

_log = structlog.get_logger(__name__)

_LAST_WORDS_S = 1.0
"""How long a reader that was too slow has for the words that tell it so."""
_SLOW_EVERY_S, _SLOW_AT_ONCE = 600.0, 3.0
"""How often a host may be disconnected as a slow reader and come back at once."""


class AgentLink(agent_pb2_grpc.AgentLinkServicer):
    """Admits agents: who they are, their hello, one session a host (the newer connection wins)."""

    def __init__(self, door: AgentDoor, calls: DoorCalls, *, config: ServerConfig, clock: Clock) -> None:
        """Serve `door`.

        Args:
            door: what the controller offers.
            calls: runs the door's calls.
            config: the limits; with TLS peers are named by their certificates, else by what they say.
            clock: for the ends of certificates, and for the pace of agents that talk too much.
        """
        self._door = door
        self._calls = calls
        self._config = config
        self._clock = clock
        self._secure = config.tls is not None
        self._sessions: dict[HostName, Session] = {}
        self._streams: set[asyncio.Task[None]] = set()  # bounded by `agents_max`
        # gRPC cannot take back what a reader does not read: its stream lingers until its connection ends. So a host
        # that does so time and again is kept out for a while.
        self._slow = Buckets(1 / _SLOW_EVERY_S, elapsed_s=clock.elapsed_s, burst=_SLOW_AT_ONCE)
        self._shut_out: dict[HostName, float] = {}  # bounded by the hosts that have certificates
        self.slow_readers_total = 0
        """Agents that were disconnected because they did not read."""

    @property
    def sessions(self) -> int:
        """Hosts that are connected now."""
        return len(self._sessions)

    def drain(self, why: str, retry_after_s: float) -> None:
        """Tell every agent to come back later, and end its session after the message in hand."""
        message = agent_pb2.Drain(why=clean(why), retry_after_seconds=retry_after_s)
        for session in self._sessions.values():
            session.leave(agent_pb2.ControllerMessage(drain=message))

    async def Connect(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]  # noqa: N802
        """Serve one stream until either side ends it."""
        del request_iterator  # read message by message from the context
        if len(self._streams) >= self._config.agents_max:
            # Here, not by gRPC's own limit: agents are not to take the room that is kept for people.
            _log.error("too_many_agents", peer=context.peer(), agents_max=self._config.agents_max)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._config.agents_max} agents are connected")
        # A task of its own, which gRPC's cancellation passes on to: `finish` can wait for it.
        stream = asyncio.create_task(self._connect(context))
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)
        await stream

    async def finish(self) -> None:
        """Wait for the streams that are still ending."""
        while self._streams:
            await asyncio.wait(self._streams)

    async def _connect(self, context: Context) -> None:
        try:
            try:
                last_words = await self._serve(context)
            except Refused as error:
                _log.warning("agent_refused", peer=context.peer(), why=str(error))
                last_words = refused(str(error))
            if last_words is not None:
                await _say_last(context, last_words)
        except GoneError as error:
            _log.info("agent_gone", peer=context.peer(), why=str(error))
        except CodecError as error:
            _log.warning("agent_malformed", peer=context.peer(), why=str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, clean(str(error)))
        except SlowError as error:
            self.slow_readers_total += 1
            _log.warning("agent_reads_too_slowly", host=error.host, peer=context.peer(), why=str(error))
            if wait_s := self._slow.take(error.host):
                self._shut_out[error.host] = self._clock.elapsed_s() + wait_s
            await _cut(context, str(error))
        except TimeoutError:
            hello_s = self._config.hello_seconds
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello within {hello_s:g} s")
        except NotJudge as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, clean(str(error)), STANDS_BY)
        except StoreError as error:
            _log.error("agent_not_served", peer=context.peer(), why=str(error))
            await context.abort(grpc.StatusCode.INTERNAL, f"the controller cannot store: {clean(str(error))}")

    async def _serve(self, context: Context) -> agent_pb2.ControllerMessage | None:
        # Read first, refuse then: a client whose writing fails never gets to read why.
        async with asyncio.timeout(self._config.hello_seconds):
            first = await read(context)
        if first is None:
            return None
        peer = peer_of(context.auth_context()) if self._secure else None
        if peer is not None and peer.role != "agent":
            raise Refused(f"{peer.name} has the role {peer.role}; only agents may connect here")
        if first.WhichOneof("kind") != "hello":
            raise CodecError("the first message must be a hello")
        hello, spool = hello_from_pb(first.hello)
        peer = peer or Peer(name=hello.host, role="agent")
        if peer.name != hello.host:
            raise Refused(f"the certificate names {peer.name}, so its agent may not report for {hello.host}")
        self._let_in(hello.host)
        session = Session(context, self._door, self._calls, hello, spool, config=self._config, clock=self._clock)
        older = self._sessions.get(hello.host)
        self._sessions[hello.host] = session
        try:
            if older is not None:
                older.leave(taken_over(hello.host))
                await older.ended.wait()  # so that the door never sees two sessions of one host at work
            return await session.run(peer)
        finally:
            session.ended.set()
            if self._sessions.get(hello.host) is session:
                del self._sessions[hello.host]

    def _let_in(self, host: HostName) -> None:
        until_s = self._shut_out.get(host)
        if until_s is None:
            return
        if (left_s := until_s - self._clock.elapsed_s()) > 0:
            raise Refused(f"the agent of {host} did not read what it was sent, time and again: back in {left_s:.0f} s")
        del self._shut_out[host]


async def _say_last(context: Context, message: agent_pb2.ControllerMessage) -> None:
    """Send the last message of a stream; raises GoneError."""
    try:
        async with asyncio.timeout(_LAST_WORDS_S):
            await say(context, message)
    except TimeoutError as error:
        raise GoneError("it did not read that its session ends") from error


async def _cut(context: Context, why: str) -> None:
    """End a stream whose agent does not read: its last words too may find no room, and then it is cut off."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_S):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, clean(why))
    raise asyncio.CancelledError  # gRPC resets the stream of a call that ends so
