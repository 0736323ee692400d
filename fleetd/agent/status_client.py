"""Asking a running agent over its Unix sockets: standard library only, so that a check takes milliseconds."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOCKET = Path("/run/fleetd/agent.sock")
"""Where an agent answers, and is asked, when nobody says otherwise."""
ENVIRON = "FLEETD_AGENT_SOCKET"
"""Names another place; for the agent and for whoever asks it."""
_BYTES_MAX = 4 << 20
SCHEMA = "fleetd.agent.status/1"
_CONTROL_SCHEMA = "fleetd.agent.control/1"


class NoAnswer(Exception):  # noqa: N818 - it says what happened
    """The agent cannot be asked, or does not answer; one line that says what to do."""


class Refused(Exception):  # noqa: N818 - it says what happened
    """The agent answered that it did not, or not wholly, do what it was told; one line that says why."""


def default_socket(environ: Mapping[str, str]) -> Path:
    """The status socket of an agent whose configuration names none: one rule for the agent and the commands."""
    return Path(environ.get(ENVIRON) or SOCKET)


def control_socket(status: Path) -> Path:
    """Where an agent takes requests that answers at `status`: beside it."""
    return status.with_name(f"{status.stem}-control{status.suffix}")


def tell(status: Path, request: dict[str, Any], *, timeout_s: float) -> None:
    """Have the agent that answers at `status` do something. Raises NoAnswer, Refused."""
    found = _converse(control_socket(status), json.dumps(request).encode() + b"\n", timeout_s, _CONTROL_SCHEMA)
    if found.get("ok") is not True:
        raise Refused(str(found.get("why") or "it gives no reason"))


def ask(path: Path, *, timeout_s: float) -> dict[str, Any]:
    """Return the agent's status document. Raises NoAnswer. Each wait of the few is bounded by `timeout_s`."""
    return _converse(path, b"", timeout_s, SCHEMA)


def _converse(path: Path, request: bytes, timeout_s: float, schema: str) -> dict[str, Any]:
    read = bytearray()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(timeout_s)
            channel.connect(str(path))
            if request:  # the status socket reads nothing, and may have hung up by now
                channel.sendall(request)
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
    except (ValueError, RecursionError):
        raise NoAnswer(f"what listens at {path} is no agent, or too busy; try again") from None
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise NoAnswer(f"the agent at {path} speaks another version than this command; restart it after the upgrade")
    return found
