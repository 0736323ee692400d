"""The agent's line to the power guard: a thread that renews the lease, and requests beside it.

The thread is apart from the event loop, so that a commit to disk or a page of metrics costs no lease. It renews only
while the loop says that it turns (`beat`): a governor that hangs must lose its lease like one that was stopped. What is
said over the socket: `fleetd/powerguard/wire.py`.
"""

import asyncio
import json
import select
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fleetd.ports import Clock, DeviceError

RENEWALS_PER_TTL = 3
"""So that two may be lost or late before the lease lapses."""
CONFIRM_S = 0.5
"""So often the guard is asked to confirm; between, it answers a refusal only, and one that is gone hangs up. Every
packet less is a process that need not wake, fifteen times a second."""
ANSWER_S = 3.0
"""The guard answers within a second, also for a driver that hangs."""
HEARD_S = 2.0
"""The guard's last confirmation counts for so long here: as patient as it is with an agent on a busy host. Only the
mode hangs on it; whether something is written, the guard decides by the lease itself."""
_PACKET_BYTES_MAX = 1 << 17
_RENEW, _RENEW_QUIETLY = json.dumps({"do": "renew"})[1:], json.dumps({"do": "renew", "quiet": True})[1:]
"""Without the brace before: what is said fifteen times a second is not encoded anew each time."""
_TTL_FIRST_S = 0.2
_WAITING_MAX = 16
_CLOCK_MAX_HERTZ = 1e12


class GuardLine:
    """One connection at a time; a lost one is made again by the next `arm`."""

    def __init__(self, path: Path, *, clock: Clock, beat_max_s: float) -> None:
        """Connect to nothing yet.

        Args:
            path: the guard's socket.
            clock: its monotonic time is the guard's, too.
            beat_max_s: without a `beat` for so long nothing is renewed.
        """
        self._path, self._clock, self._beat_max_s = path, clock, beat_max_s
        self._channel: socket.socket | None = None
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._seq = 0
        self._beat_s = -1.0
        self._ttl_s = _TTL_FIRST_S
        self._live_until_s = -1.0
        self._armed = False
        self.why = "the power guard has not been asked yet"
        self.program_replaced = False
        self.renewed_total = 0
        self._unconfirmed, self._heard_s = 0, -1.0
        self.clocks: Mapping[str, float] = {}
        """GPU → highest clock that the guard has locked, by its own word."""

    @property
    def live(self) -> bool:
        """Whether the guard has confirmed the lease lately."""
        return self._armed and self._clock.elapsed_s() <= self._live_until_s

    def beat(self) -> None:
        """The governor's loop turns."""
        self._beat_s = self._clock.elapsed_s()

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def arm(self, gpus: Sequence[Mapping[str, Any]], *, ttl_s: float, grace_s: float) -> str:
        """Declare the GPUs and begin a lease; "" or why there is none."""
        self._ttl_s = ttl_s
        try:
            if self._channel is None:
                self._connect()
            answer = await self._ask({"do": "arm", "gpus": list(gpus), "ttl_s": ttl_s, "grace_s": grace_s})
        except DeviceError as error:
            self.why = str(error)
            return self.why
        self._armed = bool(answer.get("ok"))
        if self._armed:
            self.clocks = _clocks(answer.get("clocks"))
        self._heard(answer)
        return self.why

    async def write(
        self, limits: Mapping[str, Mapping[str, float]], clocks: Mapping[str, float | None], reason: str
    ) -> Mapping[str, str]:
        """Have limits written and clocks (hertz) locked, or unlocked (None); {gpu: why it was not}.

        Raises DeviceError when nothing was: no lease, or a refusal.
        """
        answer = await self._ask({"do": "set", "limits": limits, "clocks": clocks, "reason": reason})
        errors = answer.get("errors")
        if answer.get("ok") or (isinstance(errors, dict) and errors):
            told = errors if isinstance(errors, dict) else {}
            failed = {gpu: str(why) for gpu, why in told.items() if gpu in limits or gpu in clocks}
            done = {gpu: hertz for gpu, hertz in clocks.items() if gpu not in failed}
            self.clocks = {gpu: hertz for gpu, hertz in {**self.clocks, **done}.items() if hertz is not None}
            return failed
        raise DeviceError(f"the power guard refused: {answer.get('why')}")

    async def seen(self, limits: Mapping[str, Mapping[str, float]]) -> None:
        """Tell that less is in force than was written, so that no fall raises it. Raises DeviceError."""
        await self._ask({"do": "renew", "seen": limits})

    async def hand_over(self, seconds: float) -> str:
        """Have the limits kept until the next agent comes; "" or why not."""
        return await self._last({"do": "hand_over", "seconds": seconds})

    async def disarm(self) -> str:
        """Give the lease back: everything falls to its safe cap; "" or why that did not work."""
        return await self._last({"do": "disarm"})

    async def _last(self, request: dict[str, Any]) -> str:
        if not self._armed:
            return ""
        try:
            answer = await self._ask(request)
        except DeviceError as error:
            return str(error)
        finally:
            self._armed = False
            self._lose("the lease was given back")
        return "" if answer.get("ok") else str(answer.get("why"))

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request. Raises DeviceError when there is no answer."""
        answer: Future[dict[str, Any]] = Future()
        self._send(json.dumps(request)[1:], answer)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.wrap_future(answer)
        except TimeoutError as error:
            raise DeviceError(f"the power guard at {self._path} does not answer within {ANSWER_S:g} s") from error

    # ── the socket; also used by the thread ─────────────────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            channel.settimeout(ANSWER_S)
            channel.connect(str(self._path))
        except OSError as error:
            channel.close()
            raise DeviceError(f"no power guard at {self._path}: {error.strerror or error}; start it") from error
        channel.settimeout(0)  # from here on `poll` waits: a timeout of the socket asks the kernel before each packet
        self._channel = channel
        threading.Thread(target=self._renew, args=(channel,), name="power-lease", daemon=True).start()

    def _send(self, request: str, answer: Future[dict[str, Any]] | None) -> None:
        """Send one request: JSON without its first brace. Raises DeviceError, also when the guard does not read."""
        with self._lock:
            channel, self._seq = self._channel, self._seq + 1
            if channel is None:
                raise DeviceError(f"no line to the power guard: {self.why}")
            if answer is not None:
                if len(self._waiting) >= _WAITING_MAX:
                    raise DeviceError("the power guard owes too many answers")
                self._waiting[self._seq] = answer
            body = f'{{"seq": {self._seq}, "sent_s": {self._clock.elapsed_s()!r}, {request}'
            try:
                channel.send(body.encode())  # at most one packet: a request is far below the buffer
            except OSError as error:
                self._waiting.pop(self._seq, None)
                raise DeviceError(f"the power guard hung up: {error}") from error

    def _renew(self, channel: socket.socket) -> None:
        """The thread: renew, and take answers, until the connection ends."""
        poll, due_s = select.poll(), self._clock.elapsed_s()
        poll.register(channel, select.POLLIN)
        while channel.fileno() >= 0:  # else the loop has closed it
            now_s = self._clock.elapsed_s()
            if now_s >= due_s:
                due_s = now_s + self._ttl_s / RENEWALS_PER_TTL
                if self._armed and now_s - self._beat_s <= self._beat_max_s:
                    self._unconfirmed += 1
                    quiet = now_s - self._heard_s < CONFIRM_S
                    try:
                        self._send(_RENEW_QUIETLY if quiet else _RENEW, None)
                    except DeviceError as error:
                        self._lose(str(error), channel)
                        return
            if not poll.poll(max(1.0, (due_s - now_s) * 1e3)):
                continue
            try:
                packet = channel.recv(_PACKET_BYTES_MAX)
            except BlockingIOError:
                continue
            except OSError as error:
                self._lose(f"the power guard hung up: {error}", channel)
                return
            if not packet:
                self._lose("the power guard hung up", channel)
                return
            self._take(packet)

    def _take(self, packet: bytes) -> None:
        try:
            body = json.loads(packet)
        except (ValueError, RecursionError):
            return
        # Whoever listens there need not be a guard. What is no answer must not end this thread, which renews.
        if not isinstance(body, dict) or not isinstance(seq := body.get("seq", 0), int | None):
            return
        with self._lock:
            waiting = self._waiting.pop(seq or 0, None)
        if waiting is not None:
            if not waiting.cancelled():
                waiting.set_result(body)
            return
        if body.get("ok"):
            # In the order of the asking, and each refusal is told: this confirms all that went before it.
            self.renewed_total += self._unconfirmed
        self._unconfirmed = 0
        self._heard(body)

    def _heard(self, answer: Mapping[str, Any]) -> None:
        """Take note of the answer to `arm` or `renew`."""
        self._heard_s = self._clock.elapsed_s()
        self.program_replaced = bool(answer.get("program_replaced"))
        if answer.get("ok"):
            self.why, self._live_until_s = "", self._clock.elapsed_s() + max(HEARD_S, self._ttl_s)
        else:
            self.why, self._armed = str(answer.get("why") or "the power guard gave no reason"), False

    def _lose(self, why: str, channel: socket.socket | None = None) -> None:
        """The connection is over; whoever waits is told."""
        with self._lock:
            if channel is not None and channel is not self._channel:
                return
            channel, self._channel = self._channel, None
            waiting, self._waiting = list(self._waiting.values()), {}
        self._armed, self.why = False, why
        if channel is not None:
            channel.close()
        for one in waiting:
            if not one.cancelled():
                one.set_result({"ok": False, "why": why})


def _clocks(told: object) -> dict[str, float]:
    """The locked clocks of an answer to `arm`, as far as they are clocks."""
    clocks = told.items() if isinstance(told, dict) else ()
    return {gpu: float(hz) for gpu, hz in clocks if isinstance(hz, int | float) and 0 < hz < _CLOCK_MAX_HERTZ}
