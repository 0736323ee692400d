"""The line between agents and controller in one process: the `Uplink` port on one end, the `AgentDoor` on the other.

The connections are `fleetd.sim.wire`'s. What is kept here are the promises of the real line and nothing more: a new
connection begins with a hello, everything that is not acknowledged comes again, an order is confirmed after the agent
has it on disk. The controller's end serves one session a host; a newer one waits until the older has done what it has
in hand, as the real server does.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, assert_never

from fleetd.model.host import Hello
from fleetd.model.ids import HostName, SpoolId
from fleetd.model.order import RecallBurnin, RunBurnin
from fleetd.model.power_lease import Ask, Grant, NoGrant
from fleetd.model.telemetry import GpuSample, Telemetry
from fleetd.ports import AgentDoor, Clock, Peer, PortError, PowerLine, Refused, Spool, StoreError, UplinkError
from fleetd.sim.life import Killed, Life
from fleetd.sim.wire import Ack, Confirmed, Connection, Greeting, Numbered, Up, Weather, Welcome

_WINDOW = 64
"""Most findings on their way at once."""


class Network:
    """All lines of a world, and the controller's end of them."""

    def __init__(self, *, rng: random.Random, weather: Weather, on_bug: Callable[[BaseException], None]) -> None:
        """Make a network in which nobody listens yet.

        Args:
            rng: draws delays and breaks.
            weather: how bad it is; may be replaced at any time, for new connections.
            on_bug: told of what should never end a session.
        """
        self.weather = weather
        self._rng = rng
        self._on_bug = on_bug
        self.hears: Callable[[HostName, Up], Up] = lambda _host, message: message
        """How the controller's end reads what a host says: here a world puts agents of other versions."""
        self._door: AgentDoor | None = None
        self._isolated: set[HostName] = set()
        self._connections: dict[HostName, Connection] = {}
        self._sessions: set[asyncio.Task[None]] = set()

    def listen(self, door: AgentDoor) -> None:
        """A controller has started."""
        self._door = door

    def hang_up(self) -> None:
        """The controller has died: its end of every connection is gone, and nothing that it has in hand goes on."""
        self._door = None
        for session in tuple(self._sessions):
            session.cancel()
        for host in sorted(self._connections):
            self._connections.pop(host).break_off()

    def isolate(self, *hosts: HostName) -> None:
        """Cut hosts off: their connections go dead, no new ones are made."""
        self._isolated.update(hosts)
        for host in hosts:
            if host in self._connections:
                self._connections[host].break_off()

    def rejoin(self, *hosts: HostName) -> None:
        """End the isolation; idempotent."""
        self._isolated.difference_update(hosts)

    def is_isolated(self, host: HostName) -> bool:
        """Whether a host is cut off."""
        return host in self._isolated

    def connect(self, host: HostName) -> Connection | None:
        """Open a connection; None when nobody answers."""
        if self._door is None or host in self._isolated:
            return None
        connection = Connection(self.weather, self._rng)
        session = asyncio.create_task(self._session(connection, host, self._door))
        self._sessions.add(session)
        session.add_done_callback(self._session_ended)
        return connection

    def _session_ended(self, session: asyncio.Task[None]) -> None:
        self._sessions.discard(session)
        error = None if session.cancelled() else session.exception()
        if error is not None and not isinstance(error, Killed):
            self._on_bug(error)

    async def _session(self, connection: Connection, certified: HostName, door: AgentDoor) -> None:
        orders: asyncio.Task[None] | None = None
        host: HostName | None = None
        try:
            greeting = await connection.up.receive()
            if not isinstance(greeting, Greeting):
                return
            greeting = self._heard_greeting(certified, greeting)
            host = greeting.hello.host
            older = self._connections.get(host)
            self._connections[host] = connection
            if older is not None:
                older.take_over()
                await older.ended.wait()
            peer = Peer(name=certified, role="agent")
            connection.down.send(Welcome(last_seq=await door.hello(peer, greeting.hello, greeting.spool)))
            orders = asyncio.create_task(self._send_orders(connection, door, host))
            while (message := await connection.up.receive()) is not None:
                await _take(self.hears(host, message), connection, door, host, greeting.spool)
        except Refused as refused:
            connection.down.send(refused)
        except StoreError:
            pass  # the controller has logged it; the agent comes again and sends again
        finally:
            if orders is not None:
                orders.cancel()
                await asyncio.wait({orders})
            connection.hang_up()
            connection.ended.set()
            if host is not None and self._connections.get(host) is connection:
                del self._connections[host]

    def _heard_greeting(self, certified: HostName, greeting: Greeting) -> Greeting:
        heard = self.hears(certified, greeting)
        if not isinstance(heard, Greeting):
            raise Refused("the first message must be a hello")
        return heard

    async def _send_orders(self, connection: Connection, door: AgentDoor, host: HostName) -> None:
        async for order in door.orders(host):
            connection.down.send(order)
        connection.hang_up()


async def _take(message: Up, connection: Connection, door: AgentDoor, host: HostName, spool: SpoolId) -> None:
    """Do what one message from an agent asks for. Raises Refused, StoreError."""
    match message:
        case Numbered():
            connection.down.send(Ack(seq=await door.finding(host, spool, message.seq, message.finding)))
        case Confirmed():
            await door.order_confirmed(host, message.order_id, message.refused)
        case tuple():
            await door.telemetry_received(host, Telemetry.of(message))
        case Ask():
            if (answer := await door.power_asked(host, message)) is not None:
                connection.down.send(answer)
        case Greeting():
            raise Refused("one hello is enough")
        case _:
            assert_never(message)


class SimUplink:
    """The `Uplink` port of one agent process."""

    def __init__(
        self,
        *,
        host: HostName,
        network: Network,
        clock: Clock,
        life: Life,
        rng: random.Random,
        telemetry_interval_s: float,
    ) -> None:
        self._host = host
        self._network = network
        self._clock = clock
        self._life = life
        self._rng = rng
        self._telemetry_interval_s = telemetry_interval_s
        self._connected = False
        self._on_their_way = 0
        self._room = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Whether the controller has answered the hello of the current connection."""
        return self._connected

    async def run(
        self,
        *,
        hello: Callable[[], Hello],
        spool: Spool,
        telemetry: Callable[[], tuple[GpuSample, ...]],
        accept: Callable[[RunBurnin], Awaitable[str]],
        recall: Callable[[RecallBurnin], None],
        power: PowerLine | None = None,
    ) -> None:
        """Serve until cancelled; see the port."""
        first_s, longest_s = self._network.weather.retry_s
        wait_s = first_s
        while True:
            began_s = self._clock.elapsed_s()
            try:
                await self._serve(hello(), spool, telemetry, accept, recall, power=power)
            except (PortError, Refused):
                held = self._clock.elapsed_s() - began_s >= longest_s
                wait_s = first_s if held else min(2 * wait_s, longest_s)
            finally:
                self._connected = False
            await self._clock.sleep_s(wait_s * self._rng.uniform(0.5, 1.0))

    async def _serve(
        self,
        hello: Hello,
        spool: Spool,
        telemetry: Callable[[], tuple[GpuSample, ...]],
        accept: Callable[[RunBurnin], Awaitable[str]],
        recall: Callable[[RecallBurnin], None],
        *,
        power: PowerLine | None,
    ) -> None:
        """One connection. Always ends by raising."""
        self._life.check()
        connection = self._network.connect(self._host)
        if connection is None:
            await self._clock.sleep_s(self._rng.uniform(0.1, 1.0))
            raise UplinkError("nobody answers")
        try:
            connection.up.send(Greeting(hello=hello, spool=spool.id))
            try:
                async with asyncio.timeout(self._network.weather.answer_s):
                    welcome = await connection.down.receive()
            except TimeoutError as error:
                raise UplinkError("no welcome") from error
            if isinstance(welcome, Refused):
                raise welcome
            if not isinstance(welcome, Welcome):
                raise UplinkError("the line broke")
            spool.acknowledge(welcome.last_seq)
            self._connected = True
            await _until_one_ends(
                self._receive(connection, spool, accept, recall, power),
                self._send_findings(connection, spool, welcome.last_seq),
                self._send_telemetry(connection, telemetry),
                *(() if power is None else (self._send_asks(connection, power),)),
            )
        finally:
            connection.hang_up()
        raise UplinkError("the line broke")

    async def _receive(
        self,
        connection: Connection,
        spool: Spool,
        accept: Callable[[RunBurnin], Awaitable[str]],
        recall: Callable[[RecallBurnin], None],
        power: PowerLine | None,
    ) -> None:
        while (message := await connection.down.receive()) is not None:
            match message:
                case Ack():
                    spool.acknowledge(message.seq)
                    self._on_their_way -= 1
                    self._room.set()
                case RunBurnin():
                    refused = await accept(message)
                    self._life.boundary(f"confirm {message.id}")
                    connection.up.send(Confirmed(order_id=message.id, refused=refused))
                case RecallBurnin():
                    recall(message)
                case Grant() | NoGrant():
                    if power is not None:
                        power.answered(message)
                case Refused():
                    raise message

    async def _send_findings(self, connection: Connection, spool: Spool, sent_seq: int) -> None:
        self._on_their_way = 0
        while True:
            await spool.wait(after_seq=sent_seq)
            while self._on_their_way >= _WINDOW:
                self._room.clear()
                await self._room.wait()
            for spooled in spool.pending(after_seq=sent_seq, limit=_WINDOW - self._on_their_way):
                repeats = 2 if self._rng.random() < self._network.weather.repeat_ratio else 1
                for _ in range(repeats):
                    connection.up.send(Numbered(seq=spooled.seq, finding=spooled.finding))
                self._on_their_way += repeats
                sent_seq = spooled.seq

    async def _send_asks(self, connection: Connection, power: PowerLine) -> None:
        while True:
            connection.up.send(await power.next_ask())

    async def _send_telemetry(self, connection: Connection, telemetry: Callable[[], tuple[GpuSample, ...]]) -> None:
        while True:
            if samples := telemetry():
                connection.up.send(samples)
            await self._clock.sleep_s(self._telemetry_interval_s)


async def _until_one_ends(*loops: Coroutine[Any, Any, None]) -> None:
    """Run side by side until one ends, and raise what ended it."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
