"""The child processes of a run: one for each GPU, asked by JSON lines, watched, restarted once, never left behind.

A crash and a hang are told apart here and recorded as deaths; what they mean is for `judge`. The parent never blocks on
a child: reads do not wait, and a child that cannot be ended (stuck in a driver) is left to the kernel.
"""

import contextlib
import multiprocessing
import select
import selectors
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerProcess
from typing import Any, Self

from burnin.processes.wire import MAX_LINE, Request, WireError, decode, encode, pack
from burnin.stop import Stop, StoppedError
from burnin.verdict.evidence import Death, DeathKind

POLL_S = 0.1
"""How soon a signal or a silent child is noticed."""
SETTLE_S = 0.5
"""Between a start that failed and the next attempt."""
ATTEMPTS = 2
"""Processes that one GPU gets in a run: the first, and one more to see whether what happened happens again."""
END_S = 0.5
"""How long a killed child is waited for."""
GRACE_S = 1.0
"""After one of a gang died: the others notice it, or say how far they came."""
PRELOAD = ("burnin.processes.preload",)
"""Imported once in the fork server."""

Answer = dict[str, Any]
Heard = Callable[[str, Answer], None]
"""Called with (GPU, answer) as answers come in."""


def _child_main(line: socket.socket, setup: Mapping[str, Any]) -> None:
    """Begin in the child: what it runs imports torch, which the parent does not."""
    try:
        child = import_module("burnin.processes.child")
    except (ImportError, OSError) as error:  # a torch for another driver, a library that is missing
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            line.sendall(encode({"failed": f"torch and numpy do not load here: {str(error).splitlines()[0]:.200}"}))
        return
    child.main(line, setup)


def _start_fork_server() -> None:
    """Start it, unless it runs, with SIGINT blocked: a Ctrl-C would break into its imports and print where."""
    resource_tracker.ensure_running()  # first: starting it unblocks SIGINT
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@dataclass(slots=True)
class _Child:
    """One process and what it owes."""

    gpu: str
    setup: Mapping[str, Any]
    attempts: int = 0
    process: ForkServerProcess | None = None
    line: socket.socket | None = None
    buffer: bytearray = field(default_factory=bytearray)
    owed: deque[Request] = field(default_factory=deque)
    begun_s: float = 0.0
    heard_s: float = 0.0
    reached: int = 0
    """Transfers that it has begun, as it said last."""
    aside: Heard | None = None
    """Who hears its answer, if it was asked for one that nobody waits for."""


class Children:
    """The children of a run, by GPU. Use as a context manager: leaving it ends them all."""

    def __init__(self, *, monotonic: Callable[[], float], stop: Stop, together: bool = False) -> None:
        """Nothing is started yet.

        Args:
            monotonic: clock in seconds.
            stop: looked at several times a second.
            together: the children wait for each other, so that none is started again alone: after the first death the
                others have `GRACE_S` to say what they know, then `ask` returns.
        """
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOAD))
        self._monotonic = monotonic
        self._stop = stop
        self._children: dict[str, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self.deaths: list[Death] = []
        self._attempts = 1 if together else ATTEMPTS
        self._together = together
        self._broken_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():  # all at once, so that they are waited for together
            if child.process is not None:
                child.process.kill()
        for child in self._children.values():
            self._end(child)
        self._selector.close()

    @property
    def living(self) -> tuple[str, ...]:
        """The GPUs whose process can still be asked."""
        return tuple(c.gpu for c in self._children.values() if c.line is not None and c.aside is None)

    @property
    def reached(self) -> dict[str, int]:
        """GPU → transfers that its process has begun, as it said last."""
        return {child.gpu: child.reached for child in self._children.values()}

    def start(self, gpu: str, setup: Mapping[str, Any]) -> None:
        """Start the process of one GPU; `setup` is what `child` needs to know (JSON). Raises StoppedError.

        One that cannot be started is not among the `living`, and `deaths` says why.
        """
        child = self._children[gpu] = _Child(gpu=gpu, setup=setup)
        self._spawn(child, "start")

    def end(self, gpu: str) -> None:
        """End the process of one GPU."""
        self._end(self._children.pop(gpu))

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that live."""
        return tuple(c.process.pid for c in self._children.values() if c.process is not None and c.process.pid)

    def ask_aside(self, gpu: str, request: Request, heard: Heard) -> None:
        """Send one process a request that nobody waits for: it is answered while others are asked, or never.

        If the process dies meanwhile, that is a death, and it is not started again.
        """
        child = self._children[gpu]
        if child.line is not None:
            child.aside, child.attempts, child.owed = heard, self._attempts, deque([request])
            self._send(child)

    def ask(
        self, asks: Mapping[str, Sequence[Request]], *, test: str, quiet_s: float, limit_s: float, heard: Heard
    ) -> None:
        """Send each GPU its requests and hear all answers, in parallel over GPUs, in order on each.

        A child that dies is restarted once and asked again what it still owes. Returns when every answer was heard or
        cannot be had any more: GPUs that died twice are missing from `living` then, and `deaths` says why.

        Args:
            asks: GPU → requests; GPUs without a living process are left out.
            test: What the requests belong to, for the record of deaths.
            quiet_s: A child that says nothing for so long hangs.
            limit_s: No request may take longer than this, however alive the child says it is.
            heard: Gets every answer.

        Raises:
            StoppedError: A signal asked the run to stop.
        """
        for gpu, requests in asks.items():
            child = self._children[gpu]
            if child.line is not None:
                child.owed = deque(requests)
                self._send(child)
        while any(child.owed and child.aside is None for child in self._children.values()):
            if self._stop.asked:
                raise StoppedError
            for key, _ in self._selector.select(POLL_S):
                self._read(key.data, test, heard)
            now_s = self._monotonic()
            if self._broken_s is not None and now_s - self._broken_s > GRACE_S:
                return
            for child in self._children.values():
                late = now_s - child.begun_s > limit_s
                if child.owed and child.aside is None and (late or now_s - child.heard_s > quiet_s):
                    silence = f"not done after {limit_s:.0f} s" if late else f"silent for {quiet_s:.0f} s"
                    self._died(child, DeathKind.HANG, silence, test)

    def _spawn(self, child: _Child, test: str) -> None:
        child.attempts += 1
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._died(child, DeathKind.CRASH, f"it could not be started: {error.strerror}", test)
            return
        process = self._context.Process(
            target=_child_main, args=(theirs, dict(child.setup)), name=f"burnin {child.gpu}", daemon=True
        )
        try:
            with theirs, self._stop.breaking():  # waits for the fork server's imports, seconds for the first child
                _start_fork_server()
                process.start()
        except StoppedError:
            ours.close()  # if the child came to be, this ends it
            raise
        except (OSError, EOFError) as error:  # no memory, no descriptors, or somebody ended the fork server
            ours.close()
            select.select((), (), (), SETTLE_S)  # a fork server that is dying still looks alive to the next attempt
            self._died(child, DeathKind.CRASH, f"it could not be started: {str(error) or 'no fork server'}", test)
            return
        ours.settimeout(0)
        child.process, child.line, child.buffer = process, ours, bytearray()
        child.heard_s = self._monotonic()
        self._selector.register(ours, selectors.EVENT_READ, child)

    def _send(self, child: _Child) -> None:
        """Send the next request that is owed; one at a time, so that it always fits into the socket's buffer."""
        child.begun_s = child.heard_s = self._monotonic()
        if child.owed and child.line is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # read as the end of its line
                child.line.sendall(encode(pack(child.owed[0])))

    def _read(self, child: _Child, test: str, heard: Heard) -> None:
        if child.line is None:
            return
        try:
            data = child.line.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._died(child, DeathKind.CRASH, self._how_it_ended(child), test)
            return
        child.heard_s = self._monotonic()
        *lines, rest = (child.buffer + data).split(b"\n")
        child.buffer = rest
        if len(rest) > MAX_LINE:
            self._died(child, DeathKind.CRASH, f"it said more than {MAX_LINE} bytes in one message", test)
            return
        try:
            for line in lines:
                message = decode(bytes(line))
                child.reached = int(message.get("reached", child.reached))
                if "failed" in message:
                    kind = DeathKind(message.get("kind", DeathKind.CRASH))
                    self._died(child, kind, str(message["failed"]), test)
                    return
                if "alive" not in message and child.owed:
                    (child.aside or heard)(child.gpu, message)
                    child.owed.popleft()
                    self._send(child)
        except WireError as error:
            self._died(child, DeathKind.CRASH, str(error), test)

    def _how_it_ended(self, child: _Child) -> str:
        assert child.process is not None  # noqa: S101 - it had a line
        child.process.join(END_S)
        code = child.process.exitcode
        if code is None:
            return "closed its line and goes on"
        return f"killed by signal {-code}" if code < 0 else f"exited with status {code}"

    def _died(self, child: _Child, kind: DeathKind, why: str, test: str) -> None:
        """Record a death; start the process again unless it had its attempts."""
        self.deaths.append(Death(gpu=child.gpu, test=test, kind=kind, why=why))
        self._end(child)
        if self._together and self._broken_s is None:
            self._broken_s = self._monotonic()
        if child.attempts < self._attempts:
            self._spawn(child, test)
            self._send(child)
        else:
            child.owed.clear()

    def _end(self, child: _Child) -> None:
        if child.line is not None:
            self._selector.unregister(child.line)
            child.line.close()
            child.line = None
        if child.process is not None:
            child.process.kill()
            child.process.join(END_S)
            child.process = None
