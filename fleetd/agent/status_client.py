"""Asking a running agent over its Unix socket: standard library only, so that a check takes milliseconds."""

import json
import socket
from pathlib import Path
from typing import Any

SOCKET = Path("/run/fleetd/agent.sock")
"""Where the packaged service has it."""
_BYTES_MAX = 4 << 20
_SCHEMA = "fleetd.agent.status/1"


class NoAnswer(Exception):  # noqa: N818 - it says what happened
    """The agent cannot be asked, or does not answer; one line that says what to do."""


def ask(path: Path, *, timeout_s: float) -> dict[str, Any]:
    """Return the agent's status document. Raises NoAnswer. Each wait of the few is bounded by `timeout_s`."""
    read = bytearray()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(timeout_s)
            channel.connect(str(path))
            while not read.endswith(b"\n") and len(read) <= _BYTES_MAX:
                chunk = channel.recv(1 << 16)
                if not chunk:
                    break
                read += chunk
    except TimeoutError:
        raise NoAnswer(f"the agent at {path} does not answer within {timeout_s:g} s; look at its log") from None
    except OSError as error:
        raise NoAnswer(f"no agent at {path}: {error.strerror or error}; is it running, is --socket right?") from None
    try:
        found = json.loads(read)
    except ValueError:
        raise NoAnswer(f"what listens at {path} is no agent, or too busy; try again") from None
    if not isinstance(found, dict) or found.get("schema") != _SCHEMA:
        raise NoAnswer(f"the agent at {path} speaks another version than this command; restart it after the upgrade")
    return found
