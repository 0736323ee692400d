"""The agent's second Unix socket: the few things that may be asked of it. Mode 0600: the agent's own user, and root.

One JSON line in, one JSON line out, then the connection ends. Requests: `{"do": "release", "seconds": 120}` and
`{"do": "attach"}`; answer: `{"schema": …, "ok": bool, "why": text}`.
"""

import asyncio
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

_log = structlog.get_logger(__name__)

SCHEMA = "fleetd.agent.control/1"
CONNECTIONS_MAX = 4
"""More at a time are closed at once."""
_LINE_BYTES_MAX = 4096
_READ_S = 1.0

Answer = Callable[[dict[str, Any]], Awaitable[str]]
"""Carries out a request: "" when it is done, else why it is not. Raises ValueError on one that is none."""


class ControlSocket:
    """Takes requests until it is closed."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self._path = path
        self._answer = answer
        self._open = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> bool:
        """Listen. False, with a line in the log, when that cannot be done: the agent goes on without."""
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK(self._path.lstat().st_mode):  # of an agent that was killed; nothing else is removed
                    self._path.unlink()
            os.fchmod(channel.fileno(), 0o600)  # before it is bound: Linux gives the file this mode from the start
            channel.bind(str(self._path))
            self._server = await asyncio.start_unix_server(self._serve, sock=channel, limit=_LINE_BYTES_MAX)
        except OSError as error:
            channel.close()
            _log.error("no_control_socket", path=str(self._path), why=str(error))
            return False
        return True

    async def close(self) -> None:
        """Stop listening and take the socket away; idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open += 1
        try:
            async with asyncio.timeout(_READ_S):
                line = await reader.readline()
            why = await self._carry_out(line)
            writer.write(json.dumps({"schema": SCHEMA, "ok": not why, "why": why}).encode() + b"\n")
        except (OSError, TimeoutError, ValueError):  # a ValueError of readline: longer than any request
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()

    async def _carry_out(self, line: bytes) -> str:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("it is no JSON object")  # noqa: TRY004, TRY301 - as much no request as the others
            return await self._answer(request)
        except (ValueError, RecursionError) as error:
            return f"that is no request: {error}"
