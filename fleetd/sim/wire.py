"""What a simulated line carries, and how it fails: a connection delivers an unbroken prefix, then breaks.

The two ends learn of the break at different times, or only after a long silence. So messages are late, and lost with
everything behind them; a message that arrived may look lost to its sender, who then repeats it.
"""

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from typing import Any

from fleetd.model.finding import Finding
from fleetd.model.host import Hello
from fleetd.model.ids import OrderId, SpoolId
from fleetd.model.order import RecallBurnin, RunBurnin
from fleetd.model.power_lease import Ask, Grant, NoGrant
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How bad the network is. Times are virtual seconds."""

    delay_s: tuple[float, float] = (0.001, 0.02)
    """Of a message, drawn evenly; a message never overtakes another one."""
    life_s: float | None = None
    """Mean life of a connection until it breaks by itself; None: it lives for ever."""
    repeat_ratio: float = 0.0
    """How often a finding is sent twice."""
    notice_s: tuple[float, float] = (0.0, 40.0)
    """How long an end may take to notice that the connection is gone."""
    answer_s: float = 30.0
    """How long an agent waits for a connection and its welcome."""
    retry_s: tuple[float, float] = (1.0, 60.0)
    """First and longest wait between two attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What an agent says first."""

    hello: Hello
    spool: SpoolId


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A finding with its place in the spool."""

    seq: int
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """The agent has an order on disk, or refuses it."""

    order_id: OrderId
    refused: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The answer to a greeting."""

    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """Everything up to this number is stored."""

    seq: int


Up = Greeting | Numbered | tuple[GpuSample, ...] | Confirmed | Ask
Down = Welcome | Ack | RunBurnin | RecallBurnin | Grant | NoGrant | Refused


class _Pipe:
    """One direction of a connection: in order, late, and at some time closed."""

    def __init__(self, weather: Weather, rng: random.Random) -> None:
        self._weather = weather
        self._rng = rng
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()  # bounded by the window, the orders and the readers' speed
        self._on_its_way: deque[Up | Down] = deque()  # bounded likewise
        self._last_s = 0.0
        self._closed = False
        self._lost = False
        self._loop = asyncio.get_running_loop()

    def send(self, message: Up | Down) -> None:
        """Put a message on its way; nobody tells the sender whether it arrives."""
        if self._closed:
            return
        self._last_s = max(self._last_s, self._loop.time() + self._rng.uniform(*self._weather.delay_s))
        self._on_its_way.append(message)
        self._loop.call_at(self._last_s, self._arrive)

    def _arrive(self) -> None:
        # The oldest, whichever timer this is: of timers at the same time, any may fire first.
        message = self._on_its_way.popleft()
        if not self._lost:
            self._arrived.put_nowait(message)

    def close(self, *, lost_after_s: float, noticed_after_s: float) -> None:
        """Take no more, lose what arrives later than `lost_after_s` from now, and let the receiver notice after that.

        The receiver reads the end `noticed_after_s` from now, and not before the last message that it gets.
        """
        self._closed = True
        self._loop.call_later(lost_after_s, self._lose)
        self._loop.call_later(max(lost_after_s, noticed_after_s), self.end)

    def _lose(self) -> None:
        self._lost = True

    def end(self) -> None:
        """Let the receiver read the end now, after what has arrived."""
        self._arrived.put_nowait(None)

    async def receive(self) -> Any:
        """Return the next message; None at the end."""
        return await self._arrived.get()


class Connection:
    """Two pipes that break together."""

    def __init__(self, weather: Weather, rng: random.Random) -> None:
        self._weather = weather
        self._rng = rng
        self._broken = False
        self.up = _Pipe(weather, rng)
        self.down = _Pipe(weather, rng)
        self.ended = asyncio.Event()
        """The controller's end has done all that it will do."""
        self._death: asyncio.TimerHandle | None = None
        if weather.life_s is not None:
            life_s = rng.expovariate(1.0 / weather.life_s)
            self._death = asyncio.get_running_loop().call_later(life_s, self.break_off)

    def break_off(self) -> None:
        """Let the line go dead: what is on its way may still arrive, up to a point; each end notices in its time."""
        if self._breaks():
            for pipe in (self.up, self.down):
                pipe.close(
                    lost_after_s=self._rng.uniform(0.0, self._weather.delay_s[1]),
                    noticed_after_s=self._rng.uniform(*self._weather.notice_s),
                )

    def take_over(self) -> None:
        """A newer connection of the same host is here: let the controller's end read no further."""
        self.hang_up()
        self.up.end()

    def hang_up(self) -> None:
        """End it from either side: the other end reads what was sent before, then the end."""
        if self._breaks():
            for pipe in (self.up, self.down):
                pipe.close(lost_after_s=self._weather.delay_s[1], noticed_after_s=self._weather.delay_s[1])

    def _breaks(self) -> bool:
        """Whether this is the first end of it."""
        first, self._broken = not self._broken, True
        if self._death is not None:
            self._death.cancel()
        return first
