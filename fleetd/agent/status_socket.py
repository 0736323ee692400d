"""The agent's Unix socket: read-only, one JSON document a connection. It asks no driver and starts nothing.

Anybody on the host may connect (mode 0666): a job that sees its GPU fail shall learn why, though the kernel log is not
its to read. Nothing is read from the connection, so nothing can be asked for but this.
"""

import asyncio
import json
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

_log = structlog.get_logger(__name__)

CONNECTIONS_MAX = 16
"""More at a time are closed at once: who asks again is answered in a millisecond."""
_WRITE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusConfig:
    """Where the agent answers `fleetd check`, `fleetd agent status` and jobs."""

    socket: Path | None = None
    """Path of the Unix socket; None: `agent.sock` in the state directory. Jobs need a path that they can reach."""


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
