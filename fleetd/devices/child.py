"""One helper process and the line-by-line conversation with it.

`subprocess.Popen` and not asyncio's own: the latter kills a process that is still there when its transport is dropped,
and a helper that is inside the driver must not be killed.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fleetd.devices.steps import Steps

_REPLY_BYTES_MAX = 4 << 20
"""Of 64 partitions that a thousand processes each have open, 2 MiB; without processes it is a hundredth of that."""
_SLICES = 4
"""A deadline is waited for in so many pieces: when this process itself is stopped for a while (a virtual machine that
is paused, a host that is overloaded), that uses up one of them, and an answer that came meanwhile is still read."""
_CRASHES = {-one for one in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)}
"""Signals of a library that broke; another one came from somebody else, and says nothing of a GPU."""
END_S = 1.0
"""How long its end may take when the agent ends: half of what the whole agent has."""
_EXIT_S = 0.5
"""How long a process that has closed its output may take to its exit code: a moment, unless the host is overloaded."""
_BUSY_END_S = 0.25
"""The same while it is inside a call that nobody waits for any more: that takes milliseconds, or hangs. Nothing is lost
by not waiting: it ends by itself when the call returns."""


class ChildError(Exception):
    """The helper cannot be started, is gone, or talks nonsense; one line."""

    def __init__(self, message: str, *, gpu: str | None = None) -> None:
        super().__init__(message)
        self.gpu = gpu
        """The GPU in a call for which it hung or crashed; None: neither, or nobody knows."""


class ChildHung(ChildError):  # noqa: N818 - it says what happened
    """The helper did not answer in time."""


class Refusal(Exception):  # noqa: N818 - it is an answer
    """The helper is well, and says that the library or a GPU refused."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


_LEFT_BEHIND: list["subprocess.Popen[bytes]"] = []
"""Helpers that were abandoned inside a driver and may end one day: reaped then. As few as there are new starts."""


def _reap() -> None:
    _LEFT_BEHIND[:] = [process for process in _LEFT_BEHIND if process.poll() is None]


class Child:
    """A running helper."""

    def __init__(self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, steps: Steps) -> None:
        self._process = process
        self._reader = reader
        self._steps = steps
        self._transport: asyncio.ReadTransport | None = None
        self._requests = 0
        self._answered = 0

    @classmethod
    async def start(cls, vendor: str, environ: Mapping[str, str]) -> "Child":
        """Start the helper of a vendor. Raises ChildError."""
        # -P: a daemon that runs as root must not import what lies in the directory it happens to stand in.
        # A session of its own: what a terminal or a service manager sends to the daemon's group is not for the helper.
        try:
            steps, shared = Steps.shared()
            try:
                process = subprocess.Popen(  # noqa: ASYNC220 - takes a millisecond, as asyncio's own does
                    [sys.executable, "-P", "-m", "fleetd.devices.vendor", vendor, str(shared)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    env=environ,
                    start_new_session=True,
                    pass_fds=(shared,),
                )
            finally:
                os.close(shared)
        except OSError as error:
            raise ChildError(f"the {vendor} helper does not start: {error.strerror}") from error
        child = cls(process, asyncio.StreamReader(limit=_REPLY_BYTES_MAX), steps)
        try:
            child._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(child._reader), process.stdout
            )
        except BaseException:  # cancelled, as when the agent is stopped: nobody would look after it
            child.abandon()
            raise
        return child

    async def ask(self, request: dict[str, Any], deadline_s: float) -> Any:
        """Send a request and return what it answers. Raises Refusal; ChildHung or ChildError: do not use it again.

        A request for several `gpus` has the deadline for each of them.
        """
        self._requests += 1
        number = self._requests
        line = json.dumps({**request, "id": number}) + "\n"
        assert self._process.stdin is not None  # noqa: S101 - opened above
        try:
            # Never blocks: one request at a time, far smaller than a pipe's buffer.
            self._process.stdin.write(line.encode())
        except OSError as error:
            raise ChildError(self._death()) from error
        try:
            reply = await self._within(deadline_s, number)
        except ChildError as error:
            error.gpu = self._at(number, request) if self._broke() else None
            raise
        if reply is None:
            gpu = self._at(number, request)
            whose = f" of {gpu}" if gpu is not None else ""
            raise ChildHung(f"no answer to '{request['do']}'{whose} within {deadline_s:g} s", gpu=gpu)
        if "error" in reply:
            raise Refusal(str(reply["error"]), missing=bool(reply.get("missing")))
        if "ok" not in reply:
            raise ChildError("the helper sent a reply that is none")
        return reply["ok"]

    def _at(self, number: int, request: dict[str, Any]) -> str | None:
        """The GPU that a request has come to; None: it is for none, or the helper has not begun with it."""
        gpus, step = request.get("gpus", ()), self._steps.of(number)
        return str(gpus[step]) if step is not None and step < len(gpus) else None

    async def _within(self, deadline_s: float, number: int) -> dict[str, Any] | None:
        """The reply to a request; None: a step of it was not over in time."""
        step, slices = self._steps.now(), 0  # it may still be in a request whose caller was cancelled
        while slices < _SLICES:
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline_s / _SLICES):
                    return await self._reply(number)
            before, step = step, self._steps.now()
            slices = slices + 1 if step == before else 0
        return None

    async def _reply(self, number: int) -> dict[str, Any]:
        while True:
            try:
                line = await self._reader.readline()
            except ValueError as error:
                raise ChildError(f"the helper sent a line of more than {_REPLY_BYTES_MAX} bytes") from error
            if not line:
                raise ChildError(self._death())
            try:
                reply = json.loads(line)
                answered = int(reply["id"])
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
                raise ChildError(f"the helper sent something that is no reply: {line[:60]!r}") from error
            self._answered = answered
            if answered == number:
                return dict(reply)
            # Else: the answer to a request whose caller was cancelled.

    def _broke(self) -> bool:
        """Whether what was called ended the process: by a crash, an exception that no reader may raise, or `exit()`.

        One that has no exit code yet is on its way out: who is killed from outside has no time to close anything first.
        """
        code = self._process.returncode
        return code is None or code > 0 or code in _CRASHES

    def _death(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_EXIT_S)  # its output is closed: it ends, or is broken enough to be given up
        code = self._process.returncode
        if code is None:
            return "the helper closed its output"
        # Below 0 a signal ended it, which the kernel's log may explain; else it had something to say.
        return f"the helper ended with exit code {code}" + ("; the agent's log says why" if code > 0 else "")

    def abandon(self) -> None:
        """Stop talking to it, and ask it to end as soon as it can; does not wait."""
        self._hang_up()
        if self._process.poll() is None:
            self._process.terminate()
            _reap()
            if self._process not in _LEFT_BEHIND:
                _LEFT_BEHIND.append(self._process)

    async def end(self, within_s: float = END_S) -> bool:
        """Let it end by itself, with its library shut down; False when it has not by then (and is abandoned)."""
        assert self._process.stdin is not None  # noqa: S101 - opened above
        self._process.stdin.close()
        if self._answered < self._requests:
            within_s = min(within_s, _BUSY_END_S)
        try:
            async with asyncio.timeout(within_s):
                while await self._reader.read(1 << 16):
                    pass
            self._process.wait(timeout=_EXIT_S)
        except (TimeoutError, subprocess.TimeoutExpired):
            self.abandon()
            return False
        except BaseException:  # cancelled, as when the agent is stopped: it must be reaped all the same
            self.abandon()
            raise
        self._hang_up()
        return True

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ended(self) -> bool:
        """Whether the process is gone (and reaped)."""
        return self._process.poll() is not None

    def _hang_up(self) -> None:
        for pipe in (self._process.stdin, self._transport):
            if pipe is not None:
                pipe.close()
