"""The agent's Unix socket: read-only, one JSON document a connection. It asks no driver and starts nothing.

Anybody on the host may connect (mode 0666): a job that sees its GPU fail shall learn why, though the kernel log is not
its to read. Nothing is read from the connection, so nothing can be asked for but this.
"""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetd.agent.status_client import SOCKET
from fleetd.agent.unix_socket import UnixSocket

SOCKET_BYTES_MAX = 99
"""The kernel has 107 for the path of a Unix socket, and the control socket's is 8 longer: `…-control`."""
CONNECTIONS_MAX = 16
"""More at a time are closed at once: who asks again is answered in a millisecond."""
_WRITE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusConfig:
    """Where the agent answers `fleetd check`, `fleetd agent status` and jobs."""

    socket: Path | None = None
    """Path of the Unix socket; None: where the commands look for it (`status_client.default_socket`)."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.socket is None:
            return
        if not self.socket.is_absolute() or not self.socket.name:
            raise ValueError(f"socket: {str(self.socket)!r:.80} is no absolute path; write for example {SOCKET}")
        if (size := len(os.fsencode(self.socket))) > SOCKET_BYTES_MAX:
            raise ValueError(
                f"socket: a path of {size} bytes; the kernel allows {SOCKET_BYTES_MAX}, choose a shorter one"
            )


class StatusSocket(UnixSocket):
    """Serves what `document()` returns until it is closed."""

    def __init__(self, path: Path, document: Callable[[], dict[str, Any]]) -> None:
        super().__init__(
            path, self._tell, name="status", mode=0o666, connections_max=CONNECTIONS_MAX, line_bytes_max=1024
        )
        self._document = document

    async def _tell(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_WRITE_S):
            writer.write(json.dumps(self._document()).encode() + b"\n")
            await writer.drain()
