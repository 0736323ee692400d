"""One agent's stream after its hello: what it says goes to the door, what the door says goes to it."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from fleetd.model.host import Hello
from fleetd.model.ids import HostName, OrderId, SpoolId
from fleetd.pb.v1 import agent_pb2
from fleetd.ports import AgentDoor, Clock, Peer, UplinkError
from fleetd.uplink.buckets import Buckets
from fleetd.uplink.channel import END_OF_STREAM
from fleetd.uplink.codec import agent_order_to_pb, spooled_from_pb
from fleetd.uplink.config import ServerConfig
from fleetd.uplink.doors import DoorCalls
from fleetd.uplink.power_codec import answer_to_pb, ask_from_pb
from fleetd.uplink.telemetry_codec import telemetry_taken
from fleetd.uplink.tls import certificate_of
from fleetd.uplink.validity import validity_of
from fleetd.uplink.wire import CodecError, clean, name, text

_log = structlog.get_logger(__name__)

_COME_BACK_S = 1.0
"""After the end of its certificate: by then TLS, too, takes it for ended, if nobody has replaced it."""
_TIMER_MAX_S = 86400.0
"""The end of a certificate is looked for at least this often: wall clocks are set, event loops have their own."""

Context = grpc.aio.ServicerContext[agent_pb2.AgentMessage, agent_pb2.ControllerMessage]


class GoneError(UplinkError):
    """The stream has ended; there is nobody to tell."""


class SlowError(UplinkError):
    """The agent does not read what it is sent."""

    def __init__(self, host: HostName, why: str) -> None:
        super().__init__(f"{host} {why}")
        self.host = host


async def say(context: Context, message: agent_pb2.ControllerMessage) -> None:
    """Send a message; raises GoneError."""
    try:
        await context.write(message)
    except grpc.aio.BaseError as error:
        raise GoneError(str(error)) from error


async def read(context: Context) -> agent_pb2.AgentMessage | None:
    """Return the next message, None after the last one; raises GoneError, CodecError."""
    try:
        message = await context.read()
    except grpc.aio.BaseError as error:
        raise GoneError(str(error)) from error
    except DecodeError as error:
        raise CodecError(f"a message that is not protobuf: {error}") from error
    return None if message is END_OF_STREAM else message


def refused(why: str) -> agent_pb2.ControllerMessage:
    """The last message of a stream: no, and why."""
    return agent_pb2.ControllerMessage(refused=agent_pb2.Refused(why=clean(why)))


def taken_over(host: HostName) -> agent_pb2.ControllerMessage:
    """The last message to the older of two connections of a host."""
    return refused(f"a newer connection speaks for {host}: if this happens again, two agents run under one name")


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


class Session:
    """One stream after its hello."""

    def __init__(
        self,
        context: Context,
        door: AgentDoor,
        calls: DoorCalls,
        hello: Hello,
        spool: SpoolId,
        *,
        config: ServerConfig,
        clock: Clock,
    ) -> None:
        self._context = context
        self._door = door
        self._calls = calls
        self._hello = hello
        self._spool = spool
        self._config = config
        self._clock = clock
        self._pace = Buckets(config.agent_messages_per_second, elapsed_s=clock.elapsed_s)
        self._write_lock = asyncio.Lock()
        self._telemetry_seen = False
        self._last_words: asyncio.Future[agent_pb2.ControllerMessage] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        """No call of the door runs for this session any more."""

    def leave(self, last_words: agent_pb2.ControllerMessage) -> None:
        """End the session once the message in hand has been dealt with."""
        if not self._last_words.done():
            self._last_words.set_result(last_words)

    async def run(self, peer: Peer) -> agent_pb2.ControllerMessage | None:
        """Welcome the agent and serve it; returns what to say at the end.

        Raises Refused, CodecError, StoreError, and GoneError when the agent has left.
        """
        await _undivided(self._greet(peer))
        reader = asyncio.create_task(self._receive())
        orders = asyncio.create_task(self._send_orders())
        expiry = asyncio.create_task(self._leave_when_it_ends())
        try:
            await asyncio.wait((reader, orders, self._last_words), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reader, orders, expiry):
                task.cancel()
            ends = await asyncio.gather(reader, orders, expiry, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
                self._calls.report(end)
                raise end
        if self._last_words.done():
            return self._last_words.result()
        # The agent has ended the stream, or the door has ended the orders: it knows of a newer connection.
        return None if ends[0] is None else taken_over(self._hello.host)

    async def _receive(self) -> None:
        while (message := await read(self._context)) is not None:
            while wait_s := self._pace.take(""):  # it is read on later: until then the agent's line is full
                await self._clock.sleep_s(wait_s)
            if message.HasField("telemetry"):  # by far the most; the door waits for nothing then: no task to guard it
                await self._take(message.telemetry)
            else:
                await _undivided(self._handle(message))
            del message  # while the next one is awaited: 85 KB of telemetry, for each agent

    async def _leave_when_it_ends(self) -> None:
        """End the session with the certificate that it began with; the agent comes back with what it has by then."""
        if (pem := certificate_of(self._context.auth_context())) is None:
            return  # no TLS
        try:
            ends_at_s = validity_of(pem, where=f"the certificate of {self._hello.host}").ends_at_s
        except UplinkError as error:  # TLS could read it; the session goes on without an end
            _log.error("certificate_not_read", host=self._hello.host, why=str(error))
            return
        while (left_s := ends_at_s - self._clock.wall_s()) > 0:
            await self._clock.sleep_s(min(left_s, _TIMER_MAX_S))
        why = "the certificate that this connection began with has ended"
        self.leave(agent_pb2.ControllerMessage(drain=agent_pb2.Drain(why=why, retry_after_seconds=_COME_BACK_S)))

    async def _greet(self, peer: Peer) -> None:
        last_seq = await self._calls.run(self._door.hello(peer, self._hello, self._spool))
        await self._write(agent_pb2.ControllerMessage(welcome=agent_pb2.Welcome(last_seq=last_seq)))

    async def _take(self, telemetry: agent_pb2.Telemetry) -> None:
        # The first of a session is looked at whole: who gets the protocol wrong is told so at once.
        taken = telemetry_taken(telemetry, self._hello.host, whole=not self._telemetry_seen)
        self._telemetry_seen = True
        await self._door.telemetry_received(self._hello.host, taken)

    async def _handle(self, message: agent_pb2.AgentMessage) -> None:
        host = self._hello.host
        match message.WhichOneof("kind"):
            case "finding":
                spooled = spooled_from_pb(message.finding)
                stored = await self._calls.run(self._door.finding(host, self._spool, spooled.seq, spooled.finding))
                await self._write(agent_pb2.ControllerMessage(ack=agent_pb2.Ack(seq=stored)))
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
        slow_s = self._config.slow_reader_seconds
        try:
            async with asyncio.timeout(slow_s), self._write_lock:
                await say(self._context, message)
        except TimeoutError as error:
            raise SlowError(self._hello.host, f"has not read for {slow_s:g} s what it was sent") from error
