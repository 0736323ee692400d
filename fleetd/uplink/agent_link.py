"""The controller's side of `AgentLink`: one session a host, between its stream and the `AgentDoor`."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from fleetd.model.host import Hello
from fleetd.model.ids import HostName, OrderId, SpoolId
from fleetd.pb.v1 import agent_pb2, agent_pb2_grpc
from fleetd.ports import AgentDoor, NotJudge, Peer, Refused, StoreError, UplinkError
from fleetd.uplink.channel import END_OF_STREAM, STANDS_BY
from fleetd.uplink.codec import agent_order_to_pb, spooled_from_pb, telemetry_from_pb
from fleetd.uplink.doors import DoorCalls
from fleetd.uplink.hello_codec import hello_from_pb
from fleetd.uplink.power_codec import answer_to_pb, ask_from_pb
from fleetd.uplink.tls import peer_of
from fleetd.uplink.wire import CodecError, clean, name, text

_log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[agent_pb2.AgentMessage, agent_pb2.ControllerMessage]


class _GoneError(UplinkError):
    """The stream has ended; there is nobody to tell."""


class AgentLink(agent_pb2_grpc.AgentLinkServicer):
    """Admits agents: who they are, their hello, one session a host (the newer connection wins)."""

    def __init__(self, door: AgentDoor, calls: DoorCalls, *, secure: bool, hello_s: float) -> None:
        """Serve `door`.

        Args:
            door: what the controller offers.
            calls: runs the door's calls.
            secure: peers are named by their certificates; else by what they say.
            hello_s: seconds that a new connection has to say hello.
        """
        self._door = door
        self._calls = calls
        self._secure = secure
        self._hello_s = hello_s
        self._sessions: dict[HostName, _Session] = {}
        self._streams: set[asyncio.Task[None]] = set()  # bounded by the server's limit on streams

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
                last_words = _refused(str(error))
            if last_words is not None:
                await _say(context, last_words)
        except _GoneError as error:
            _log.info("agent_gone", peer=context.peer(), why=str(error))
        except CodecError as error:
            _log.warning("agent_malformed", peer=context.peer(), why=str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, clean(str(error)))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello within {self._hello_s:g} s")
        except NotJudge as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, clean(str(error)), STANDS_BY)
        except StoreError as error:
            _log.error("agent_not_served", peer=context.peer(), why=str(error))
            await context.abort(grpc.StatusCode.INTERNAL, f"the controller cannot store: {clean(str(error))}")

    async def _serve(self, context: Context) -> agent_pb2.ControllerMessage | None:
        # Read first, refuse then: a client whose writing fails never gets to read why.
        async with asyncio.timeout(self._hello_s):
            first = await _read(context)
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
        session = _Session(context, self._door, self._calls, hello, spool)
        older = self._sessions.get(hello.host)
        self._sessions[hello.host] = session
        try:
            if older is not None:
                older.leave(_taken_over(hello.host))
                await older.ended.wait()  # so that the door never sees two sessions of one host at work
            return await session.run(peer)
        finally:
            session.ended.set()
            if self._sessions.get(hello.host) is session:
                del self._sessions[hello.host]


async def _say(context: Context, message: agent_pb2.ControllerMessage) -> None:
    """Send a message; raises _GoneError."""
    try:
        await context.write(message)
    except grpc.aio.BaseError as error:
        raise _GoneError(str(error)) from error


async def _read(context: Context) -> agent_pb2.AgentMessage | None:
    """Return the next message, None after the last one; raises _GoneError, CodecError."""
    try:
        message = await context.read()
    except grpc.aio.BaseError as error:
        raise _GoneError(str(error)) from error
    except DecodeError as error:
        raise CodecError(f"a message that is not protobuf: {error}") from error
    return None if message is END_OF_STREAM else message


async def _undivided(step: Coroutine[Any, Any, None]) -> None:
    """Do one step of a session; a cancellation takes effect when the step is done, so that `ended` means what it says.

    A second cancellation cuts this short. The door's own call runs on even then (see `DoorCalls`).
    """
    task = asyncio.create_task(step)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


def _refused(why: str) -> agent_pb2.ControllerMessage:
    return agent_pb2.ControllerMessage(refused=agent_pb2.Refused(why=clean(why)))


def _taken_over(host: HostName) -> agent_pb2.ControllerMessage:
    return _refused(f"a newer connection speaks for {host}: if this happens again, two agents run under one name")


class _Session:
    """One stream after its hello."""

    def __init__(self, context: Context, door: AgentDoor, calls: DoorCalls, hello: Hello, spool: SpoolId) -> None:
        self._context = context
        self._door = door
        self._calls = calls
        self._hello = hello
        self._spool = spool
        self._write_lock = asyncio.Lock()
        self._last_words: asyncio.Future[agent_pb2.ControllerMessage] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        """No call of the door runs for this session any more."""

    def leave(self, last_words: agent_pb2.ControllerMessage) -> None:
        """End the session once the message in hand has been dealt with."""
        if not self._last_words.done():
            self._last_words.set_result(last_words)

    async def run(self, peer: Peer) -> agent_pb2.ControllerMessage | None:
        """Welcome the agent and serve it; returns what to say at the end.

        Raises Refused, CodecError, StoreError, and _GoneError when the agent has left.
        """
        await _undivided(self._greet(peer))
        reader = asyncio.create_task(self._receive())
        orders = asyncio.create_task(self._send_orders())
        try:
            await asyncio.wait((reader, orders, self._last_words), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            orders.cancel()
            ends = await asyncio.gather(reader, orders, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
                self._calls.report(end)
                raise end
        if self._last_words.done():
            return self._last_words.result()
        # The agent has ended the stream, or the door has ended the orders: it knows of a newer connection.
        return None if ends[0] is None else _taken_over(self._hello.host)

    async def _receive(self) -> None:
        while (message := await _read(self._context)) is not None:
            await _undivided(self._handle(message))

    async def _greet(self, peer: Peer) -> None:
        last_seq = await self._calls.run(self._door.hello(peer, self._hello, self._spool))
        await self._write(agent_pb2.ControllerMessage(welcome=agent_pb2.Welcome(last_seq=last_seq)))

    async def _handle(self, message: agent_pb2.AgentMessage) -> None:
        host = self._hello.host
        match message.WhichOneof("kind"):
            case "finding":
                spooled = spooled_from_pb(message.finding)
                stored = await self._calls.run(self._door.finding(host, self._spool, spooled.seq, spooled.finding))
                await self._write(agent_pb2.ControllerMessage(ack=agent_pb2.Ack(seq=stored)))
            case "telemetry":
                await self._calls.run(self._door.telemetry_received(host, telemetry_from_pb(message.telemetry)))
            case "order_confirmed":
                confirmed = message.order_confirmed
                order_id = OrderId(name(confirmed.order_id, "order_confirmed order_id"))
                refused = text(confirmed.refused, "order_confirmed refused") if confirmed.HasField("refused") else ""
                await self._calls.run(self._door.order_confirmed(host, order_id, refused))
            case "power_ask":
                answer = await self._calls.run(self._door.power_asked(host, ask_from_pb(message.power_ask, host)))
                if answer is not None:
                    await self._write(answer_to_pb(answer))
            case "hello":
                raise CodecError("a second hello on one stream")
            case _:
                pass  # a newer agent says something that this version does not know and need not know

    async def _send_orders(self) -> None:
        orders = self._door.orders(self._hello.host)
        try:
            async for order in orders:
                await self._write(agent_order_to_pb(order))
        finally:
            if isinstance(orders, AsyncGenerator):
                await orders.aclose()

    async def _write(self, message: agent_pb2.ControllerMessage) -> None:
        async with self._write_lock:
            await _say(self._context, message)
