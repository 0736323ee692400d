"""Runs a scheduler's command: a list of words, never a shell, with a deadline and a bounded answer."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetd.ports import ActuatorError

OUTPUT_MAX_BYTES = 64 << 20
"""All nodes of a cluster of 50,000 fit; what is longer is no answer."""
REAP_SECONDS = 2.0
UNENDED_MAX = 4
"""Killed commands that have not ended (they hang in a file system): no more are started until one of them has."""
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Its last words on one line, for a message."""
        words = " ".join((self.err or self.out).split())
        return words[:300] or f"exit code {self.code}"


class Commands:
    """Runs commands with an environment of their own; counts those that it could not end."""

    def __init__(self, *, timeout_s: float, environment: Mapping[str, str]) -> None:
        """Nothing runs yet.

        Args:
            timeout_s: after which a command is killed.
            environment: of the commands; PATH in it is where they are looked for.
        """
        self._timeout_s = timeout_s
        self._environment = dict(environment)
        self._unended: list[asyncio.subprocess.Process] = []

    async def run(self, *words: str) -> Answer:
        """Run a command to its end.

        Raises:
            ActuatorError: It cannot be started, does not end in time (it is killed: what it did is not known), or
                says more than fits.
        """
        self._unended = [process for process in self._unended if process.returncode is None]
        if len(self._unended) >= UNENDED_MAX:
            raise ActuatorError(f"{words[0]}: {UNENDED_MAX} earlier commands hang and do not end even when killed")
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ActuatorError(f"{words[0]} cannot be started: {error}") from error
        try:
            async with asyncio.timeout(self._timeout_s):
                out, err = await _both(process)
                code = await process.wait()
        except TimeoutError:
            raise ActuatorError(f"{_shown(words)} has not ended in {self._timeout_s:g} s and was killed") from None
        except _TooLongError:
            raise ActuatorError(f"{_shown(words)} said more than {OUTPUT_MAX_BYTES} bytes and was killed") from None
        finally:
            await self._end(process)
        return Answer(code=code, out=out.decode(errors="replace"), err=err.decode(errors="replace"))

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """See to it that the command and its children are gone, also when the caller was cancelled."""
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        self._unended.append(process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REAP_SECONDS):
                await process.communicate()  # also to the end of its pipes, which are closed by that


class _TooLongError(Exception):
    """A command said too much."""


async def _both(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - asked for above
    try:
        async with asyncio.TaskGroup() as group:
            out = group.create_task(_bounded(process.stdout))
            err = group.create_task(_bounded(process.stderr))
    except* _TooLongError:
        raise _TooLongError from None
    return out.result(), err.result()


async def _bounded(stream: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await stream.read(_CHUNK):
        size += len(part)
        if size > OUTPUT_MAX_BYTES:
            raise _TooLongError
        parts.append(part)
    return b"".join(parts)


def _shown(words: Sequence[str]) -> str:
    return f"`{' '.join(words)[:120]}`"
