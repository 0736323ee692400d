"""The service unit of the agent fits the agent."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fleetd.agent.status_client import SOCKET, control_socket

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "fleetd-agent.service"
LEFT_OUT = (
    *("PrivateDevices", "DevicePolicy", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "MemoryDenyWriteExecute"),
    *("PrivateNetwork", "IPAddressDeny", "PrivateUsers"),
)


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_every_protection_that_is_left_out_has_its_reason() -> None:
    comments = "\n".join(line for line in UNIT.read_text().splitlines() if line.startswith("#"))
    for name in LEFT_OUT:
        assert re.search(rf"\b{name}\b[^\n]*: left out[,.]", comments), name
        assert name not in settings(), f"{name} is set: take the reason away"


def test_s34_nothing_is_killed_inside_a_driver_call() -> None:
    found = settings()
    assert found["KillMode"] == ["process"], "a stuck helper is never killed, only the main process may be"
    assert "SendSIGKILL" not in found, "the main process, which makes no driver call, may be killed"
    assert float(found["TimeoutStopSec"][0]) > 2.0, "longer than the agent takes"


def test_it_starts_what_there_is_and_finds_its_sockets() -> None:
    found = settings()
    assert found["ExecStart"][0].split()[1:3] == ["agent", "--config"]
    assert Path("/run") / found["RuntimeDirectory"][0] == SOCKET.parent == control_socket(SOCKET).parent
    assert found["Type"] == ["notify"]
    assert "HUP" in found["ExecReload"][0]
    assert "2" in found["RestartPreventExitStatus"], "the exit code of a refused configuration"


def test_an_agent_that_renews_its_certificate_may_write_where_it_is() -> None:
    """All of /etc is read-only for the unit but this."""
    (own,) = settings()["ReadWritePaths"]
    folder = own.removeprefix("-")
    assert own.startswith("-"), "a host without it starts, too"
    assert f"d {folder} 0700 fleetd fleetd -" in (FOLDER / "fleetd.tmpfiles.conf").read_text().splitlines()


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="needs systemd-sysusers")
def test_its_user_can_be_made(tmp_path: Path) -> None:
    command = ["systemd-sysusers", "--dry-run", f"--root={tmp_path}", str(FOLDER / "fleetd.sysusers.conf")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "fleetd" in done.stdout + done.stderr
