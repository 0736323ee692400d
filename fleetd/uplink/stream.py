"""The agent's side of one connection: hello, findings in order, telemetry, orders, until something ends it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import grpc

from fleetd.model.host import Hello
from fleetd.model.order import RecallBurnin, RunBurnin
from fleetd.model.telemetry import GpuSample
from fleetd.pb.v1 import agent_pb2
from fleetd.ports import Clock, PowerLine, Refused, Spool, UplinkError
from fleetd.uplink.codec import recall_from_pb, run_burnin_from_pb, spooled_to_pb, telemetry_to_pb
from fleetd.uplink.config import HELLO_PATIENCE, UplinkConfig
from fleetd.uplink.hello_codec import hello_to_pb
from fleetd.uplink.power_codec import ask_to_pb, grant_from_pb, no_grant_from_pb
from fleetd.uplink.wire import CodecError, clean, finite, name, text, unsigned

WINDOW = 64
"""Most findings on their way at once: enough to fill the line, few enough to be sent again."""

SEQ_BITS = 48
"""Of the number that a welcome may name. No spool gets there; and one that believed a larger number, and moved its
findings behind it, would soon have none left to give."""

Call = grpc.aio.StreamStreamCall[agent_pb2.AgentMessage, agent_pb2.ControllerMessage]


class DrainedError(UplinkError):
    """The controller asked us to come back later."""

    def __init__(self, why: str, *, retry_after_s: float) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """What the agent hands to the uplink (see the port), and what it wants to hear from a connection."""

    hello: Callable[[], Hello]
    spool: Spool
    telemetry: Callable[[], tuple[GpuSample, ...]]
    accept: Callable[[RunBurnin], Awaitable[str]]
    recall: Callable[[RecallBurnin], None]
    on_welcome: Callable[[], None]
    on_unsendable: Callable[[str], None]
    """Something of ours that the protocol cannot carry was left out; one line."""
    power: PowerLine | None = None


class AgentStream:
    """One connection, from the hello to its end."""

    def __init__(self, call: Call, agent: Agent, *, config: UplinkConfig, clock: Clock) -> None:
        self._call = call
        self._agent = agent
        self._config = config
        self._clock = clock
        self._write_lock = asyncio.Lock()
        self._patient_s = HELLO_PATIENCE * config.answer_seconds
        self._patience = asyncio.timeout(self._patient_s)
        self._in_flight: deque[int] = deque()  # at most WINDOW sequence numbers
        self._sent_seq = 0
        self._room = asyncio.Event()
        self._hello = agent.hello()

    async def run(self) -> None:
        """Serve until the connection ends.

        Always ends by raising: UplinkError, StoreError (the spool's disk), DrainedError, Refused, an error of gRPC.
        """
        try:
            async with self._patience:
                last_seq = self._sent_seq = await self._say_hello()
                self._patience.reschedule(None)
                self._patient_s = self._config.answer_seconds
                self._agent.spool.acknowledge(last_seq)
                self._agent.on_welcome()
                loops = [self._receive(), self._send_findings(last_seq), self._send_telemetry()]
                if self._agent.power is not None:
                    loops.append(self._send_asks(self._agent.power))
                await self._until_one_ends(*(asyncio.create_task(loop) for loop in loops))
        except TimeoutError as error:
            raise UplinkError(
                f"the controller at {self._config.address} has not answered for {self._patient_s:g} s"
            ) from error
        raise UplinkError(f"the controller at {self._config.address} ended the stream")

    @staticmethod
    async def _until_one_ends(*tasks: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
                raise end

    async def _say_hello(self) -> int:
        """Say hello; returns the last sequence number that the controller has of our spool."""
        hello = hello_to_pb(self._hello, self._agent.spool.id)
        await self._write(agent_pb2.AgentMessage(hello=hello))
        answer = await self._read()
        if answer is None:
            raise UplinkError(f"the controller at {self._config.address} ended the stream without a welcome")
        if answer.WhichOneof("kind") != "welcome":
            self._leave_if_told(answer)
            raise CodecError(f"the controller at {self._config.address} answered the hello with something else")
        return unsigned(answer.welcome.last_seq, "welcome last_seq", bits=SEQ_BITS)

    async def _receive(self) -> None:
        while (message := await self._read()) is not None:
            self._leave_if_told(message)
            match message.WhichOneof("kind"):
                case "ack":
                    self._acknowledged(message.ack.seq)
                case "run_burnin":
                    await self._take(message.run_burnin)
                case "recall_burnin":
                    self._agent.recall(recall_from_pb(message.recall_burnin))
                case "power_grant" if self._agent.power is not None:
                    self._agent.power.answered(grant_from_pb(message.power_grant, self._hello.host))
                case "power_no_grant" if self._agent.power is not None:
                    self._agent.power.answered(no_grant_from_pb(message.power_no_grant))
                case _:
                    pass  # a newer controller says something that this version does not know and need not know

    def _leave_if_told(self, message: agent_pb2.ControllerMessage) -> None:
        match message.WhichOneof("kind"):
            case "refused":
                raise Refused(text(message.refused.why, "refused why"))
            case "drain":
                after_s = finite(message.drain.retry_after_seconds, "drain retry_after_seconds")
                raise DrainedError(text(message.drain.why, "drain why"), retry_after_s=after_s)
            case _:
                return

    def _acknowledged(self, seq: int) -> None:
        if seq > self._sent_seq:
            raise CodecError(f"the controller acknowledges finding {seq}, and {self._sent_seq} is the last it was sent")
        self._agent.spool.acknowledge(seq)
        while self._in_flight and self._in_flight[0] <= seq:
            self._in_flight.popleft()
        self._expect_ack()
        self._room.set()

    def _expect_ack(self) -> None:
        """Give the controller its time for the oldest finding on its way, if there is one."""
        now = asyncio.get_running_loop().time()
        self._patience.reschedule(now + self._patient_s if self._in_flight else None)

    async def _take(self, pb: agent_pb2.RunBurnin) -> None:
        order_id = name(pb.id, "order id")
        try:
            order = run_burnin_from_pb(pb)
        except CodecError as error:
            refused = f"the agent cannot read the order: {error}"
        else:
            refused = await self._agent.accept(order)
        confirmed = agent_pb2.OrderConfirmed(order_id=order_id, refused=clean(refused) if refused else None)
        await self._write(agent_pb2.AgentMessage(order_confirmed=confirmed))

    async def _send_findings(self, last_seq: int) -> None:
        sent = last_seq
        while True:
            await self._agent.spool.wait(after_seq=sent)
            while len(self._in_flight) >= WINDOW:
                self._room.clear()
                await self._room.wait()
            for spooled in self._agent.spool.pending(after_seq=sent, limit=WINDOW - len(self._in_flight)):
                sent = self._sent_seq = spooled.seq
                try:
                    pb = spooled_to_pb(spooled)
                except CodecError as error:
                    self._agent.on_unsendable(f"finding {spooled.finding.id!r}: {error}")
                    continue  # it must not block those behind it; the next acknowledgement forgets it
                self._in_flight.append(spooled.seq)
                if len(self._in_flight) == 1:
                    self._expect_ack()
                await self._write(agent_pb2.AgentMessage(finding=pb))

    async def _send_telemetry(self) -> None:
        while True:
            samples = self._agent.telemetry()
            try:
                pb = telemetry_to_pb(samples)
            except CodecError as error:
                self._agent.on_unsendable(f"telemetry: {error}")
            else:
                if samples:
                    # Nothing queues here: while the line is busy no newer reading is taken.
                    await self._write(agent_pb2.AgentMessage(telemetry=pb))
            await self._clock.sleep_s(self._config.telemetry_interval_seconds)

    async def _send_asks(self, power: PowerLine) -> None:
        while True:
            ask = await power.next_ask()
            try:
                pb = ask_to_pb(ask)
            except CodecError as error:
                self._agent.on_unsendable(f"a question for power: {error}")
            else:
                await self._write(pb)

    async def _read(self) -> agent_pb2.ControllerMessage | None:
        message = await self._call.read()
        return message if isinstance(message, agent_pb2.ControllerMessage) else None

    async def _write(self, message: agent_pb2.AgentMessage) -> None:
        # A stream that can no longer be written has ended, and the reader learns why: the status, or the last words.
        with suppress(grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            async with self._write_lock:
                await self._call.write(message)
