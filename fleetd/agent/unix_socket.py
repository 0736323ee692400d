"""A Unix socket of the agent: who may open it, how many at once, and whose it is. What is said there is the owner's."""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""One connection from its beginning to its end. OSError, TimeoutError and ValueError hang it up."""


class UnixSocket:
    """Listens until it is closed. More than `connections_max` at a time are hung up at once."""

    def __init__(
        self, path: Path, talk: Talk, *, name: str, mode: int, connections_max: int, line_bytes_max: int
    ) -> None:
        self._path = path
        self._talk = talk
        self._name = name
        self._mode = mode
        self._connections_max = connections_max
        self._line_bytes_max = line_bytes_max
        self._open = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> bool:
        """Listen. False, with a line in the log, when that cannot be done: the agent goes on without."""
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._make_room()
            os.fchmod(channel.fileno(), self._mode)  # before it is bound: so the file is never open to more than this
            channel.bind(str(self._path))
            self._path.chmod(self._mode)  # the process's umask may have taken some of it away
            self._server = await asyncio.start_unix_server(self._serve, sock=channel, limit=self._line_bytes_max)
        except OSError as error:
            channel.close()
            _log.error(f"no_{self._name}_socket", path=str(self._path), why=str(error))
            return False
        return True

    def _make_room(self) -> None:
        """Remove the socket of an agent that was killed, and nothing else. Raises OSError when somebody listens."""
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self._path.lstat().st_mode):
                return  # binding says what is wrong
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
                if probe.connect_ex(str(self._path)) in {0, errno.EAGAIN}:
                    raise OSError(errno.EADDRINUSE, "another agent listens there; give this one its own status.socket")
            self._path.unlink()

    async def close(self) -> None:
        """Stop listening and take the socket away; idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= self._connections_max:
            writer.transport.abort()
            return
        self._open += 1
        try:
            await self._talk(reader, writer)
        except (OSError, TimeoutError, ValueError):
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()
