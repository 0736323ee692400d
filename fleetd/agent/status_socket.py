"""The agent's Unix socket: read-only, one JSON document a connection. It asks no driver and starts nothing.

Anybody on the host may connect (mode 0666): a job that sees its GPU fail shall learn why, though the kernel log is not
its to read. Nothing is read from the connection, so nothing can be asked for but this.
"""

import asyncio
import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from fleetd.agent.status_client import SOCKET

_log = structlog.get_logger(__name__)

SOCKET_BYTES_MAX = 99
"""The kernel has 107 for the path of a Unix socket, and the control socket's is 8 longer: `…-control`."""
CONNECTIONS_MAX = 16
"""More at a time are closed at once: who asks again is answered in a millisecond."""
_WRITE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusConfig:
    """Where the agent answers `fleetd check`, `fleetd agent status` and jobs."""

    socket: Path | None = None
    """Path of the Unix socket; None: `agent.sock` in the state directory. Jobs need a path that they can reach."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.socket is None:
            return
        if not self.socket.is_absolute():
            raise ValueError(f"socket: {str(self.socket)!r:.80} is no absolute path; write for example {SOCKET}")
        if (size := len(os.fsencode(self.socket))) > SOCKET_BYTES_MAX:
            raise ValueError(
                f"socket: a path of {size} bytes; the kernel allows {SOCKET_BYTES_MAX}, choose a shorter one"
            )


class StatusSocket:
    """Serves what `document()` returns until it is closed."""

    def __init__(self, path: Path, document: Callable[[], dict[str, Any]]) -> None:
        self._path = path
        self._document = document
        self._open = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> bool:
        """Listen. False, with a line in the log, when that cannot be done: the agent goes on without."""
        try:
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK(self._path.lstat().st_mode):  # of an agent that was killed; nothing else is removed
                    self._path.unlink()
            self._server = await asyncio.start_unix_server(self._serve, path=self._path, limit=1024)
            self._path.chmod(0o666)
        except OSError as error:
            _log.error("no_status_socket", path=str(self._path), why=str(error))
            await self.close()
            return False
        return True

    async def close(self) -> None:
        """Stop listening and take the socket away; idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    async def _serve(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open += 1
        try:
            async with asyncio.timeout(_WRITE_S):
                writer.write(json.dumps(self._document()).encode() + b"\n")
                await writer.drain()
        except (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()
