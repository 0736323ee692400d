"""The controller's unit fits the controller: what it starts, what it is told, where it may write."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from fleetd.config.example import example
from fleetd.uplink.config import ServerConfig

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "fleetd-controller.service"
PATIENCE_S = 60.0


def settings() -> dict[str, str]:
    lines = [line for line in UNIT.read_text().splitlines() if re.match(r"[A-Z]\w*=", line)]
    return dict(line.split("=", 1) for line in lines)


def test_it_starts_what_there_is_with_the_file_of_the_example() -> None:
    found = settings()
    assert found["ExecStart"] == "/opt/fleetd/bin/fleetd controller --config /etc/fleetd/controller.yaml"
    state = f"/var/lib/{found['StateDirectory']}"
    assert f"\nstate_dir: {state}\n" in example("Controller")
    assert f"HOME={state}" in found["Environment"]
    assert found["StateDirectoryMode"] == "0700"
    assert found["RestartPreventExitStatus"] == "2", "the exit code of a refused configuration, and of nothing else"


def test_every_agent_has_room() -> None:
    """A connection is a file: fewer than there may be agents would turn some away for ever."""
    config = ServerConfig(insecure=True)
    assert int(settings()["LimitNOFILE"]) > 2 * config.agents_max


def test_it_has_no_privilege_at_all() -> None:
    found = settings()
    assert (found["CapabilityBoundingSet"], found["AmbientCapabilities"]) == ("", "")
    assert (found["NoNewPrivileges"], found["UMask"], found["PrivateDevices"]) == ("yes", "0077", "yes")
    assert found["User"] not in {"root", "fleetd"}, "not the agent's: it would have the agent's reach"


def test_the_service_manager_is_told_that_it_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    config = tmp_path / "controller.yaml"
    (tmp_path / "state").mkdir()
    config.write_text(
        f"apiVersion: fleetd/v1\nkind: Controller\nstate_dir: {tmp_path / 'state'}\n"
        "server: {listen: '127.0.0.1:0', insecure: true}\nexporter: {listen: '127.0.0.1:0'}\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        environ = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000"}
        command = [sys.executable, "-P", "-m", "fleetd", "controller", "--config", str(config)]
        with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as process:
            try:
                assert [manager.recv(100) for _ in range(4)] == [b"READY=1", *[b"WATCHDOG=1"] * 3]
                process.send_signal(signal.SIGTERM)
                while (said := manager.recv(100)) == b"WATCHDOG=1":
                    pass
                assert said == b"STOPPING=1"
                assert process.wait(PATIENCE_S) == 0
            finally:
                process.kill()
