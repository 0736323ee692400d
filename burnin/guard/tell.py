"""Telling the agent on this host, over its Unix socket. Without an agent nothing is lost but the telling."""

import json
import logging
import os
import socket
from dataclasses import asdict
from pathlib import Path

from burnin.spec import GUARD_SCHEMA, GuardFinding

SOCKET = Path("/run/fleetd/agent-guard.sock")
"""Where the agent listens, unless FLEETD_GUARD_SOCKET says otherwise."""
SEND_S = 0.2
"""Longest wait: telling is worth no more of a training step."""
_log = logging.getLogger("burnin.guard")


def socket_path() -> Path:
    """Return where the agent listens."""
    return Path(os.environ.get("FLEETD_GUARD_SOCKET", SOCKET))


def line_of(finding: GuardFinding) -> bytes:
    """Return a finding as it is sent."""
    return json.dumps({"schema": GUARD_SCHEMA, **asdict(finding)}).encode() + b"\n"


def tell_agent(finding: GuardFinding, path: Path | None = None) -> bool:
    """Send one finding; returns whether the agent took it. Raises nothing and waits for at most `SEND_S` twice."""
    path = path or socket_path()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(SEND_S)
            channel.connect(str(path))
            channel.sendall(line_of(finding))
            answer = channel.recv(4096)
        said = json.loads(answer or b"{}")
    except (OSError, ValueError, RecursionError) as error:  # whoever listens there may say anything
        _log.info("the agent was not told (%s): %s", path, error)
        return False
    return isinstance(said, dict) and bool(said.get("ok"))
