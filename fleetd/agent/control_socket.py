"""The agent's second Unix socket: the few things that may be asked of it. Mode 0600: the agent's own user, and root.

One JSON line in, one JSON line out, then the connection ends. Requests: `{"do": "release", "seconds": 120}` and
`{"do": "attach"}`; answer: `{"schema": …, "ok": bool, "why": text}`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fleetd.agent.unix_socket import UnixSocket

SCHEMA = "fleetd.agent.control/1"
CONNECTIONS_MAX = 4
"""More at a time are closed at once."""
_LINE_BYTES_MAX = 4096
_READ_S = 1.0

Answer = Callable[[dict[str, Any]], Awaitable[str]]
"""Carries out a request: "" when it is done, else why it is not. Raises ValueError on one that is none."""


class ControlSocket(UnixSocket):
    """Takes requests until it is closed."""

    def __init__(self, path: Path, answer: Answer) -> None:
        super().__init__(
            path,
            self._converse,
            name="control",
            mode=0o600,
            connections_max=CONNECTIONS_MAX,
            line_bytes_max=_LINE_BYTES_MAX,
        )
        self._answer = answer

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_READ_S):
            line = await reader.readline()  # ValueError: longer than any request
        why = await self._carry_out(line)
        writer.write(json.dumps({"schema": SCHEMA, "ok": not why, "why": why}).encode() + b"\n")

    async def _carry_out(self, line: bytes) -> str:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("it is no JSON object")  # noqa: TRY004, TRY301 - as much no request as the others
            return await self._answer(request)
        except (ValueError, RecursionError) as error:
            return f"that is no request: {error}"
