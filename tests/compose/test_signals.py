"""Signals that a controller gets from people and other programs."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CONFIG = """
apiVersion: fleetd/v1
kind: Controller
state_dir: {folder}
server: {{listen: "127.0.0.1:0", insecure: true}}
exporter: {{listen: "127.0.0.1:0"}}
"""


def _heard(lines: Iterator[str], words: str) -> str:
    return next(line for line in lines if words in line)


def test_a_controller_that_is_told_to_reload_goes_on_and_says_that_it_does_not(tmp_path: Path) -> None:
    path = tmp_path / "controller.yaml"
    path.write_text(CONFIG.format(folder=tmp_path))
    command = [sys.executable, "-m", "fleetd", "controller", "--config", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        lines = iter(running.stderr)
        _heard(lines, '"listening"')
        for _ in range(2):
            running.send_signal(signal.SIGHUP)
            assert "restart" in _heard(lines, '"nothing reloaded"')
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
