"""The README's fleet of one, typed as it stands there: a shell, a controller, an agent, and what an operator asks."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fleetd.loopback import free_ports

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PORTS = ("7443", "9466", "9467", "7480")
SECONDS = 180
HEALTHY = "until fleetd host list | tee /dev/stderr | grep -q healthy; do read -rt 1 <> <(:) || :; done\n"


def _typed() -> str:
    """Both blocks of the section, with waiting between them and ports that are free here."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("### A fleet of one")[1].split("\n### ")[0]
    first, second = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    asking, rest = second.split("\n", 1)  # the first line says as whom
    script = f"{first.replace('. .venv/bin/activate', ':')}\n{asking}\n{HEALTHY}set -ex\n{rest}"
    for port, free in zip(PORTS, free_ports(len(PORTS)), strict=True):
        assert port in script or port == "7443"
        script = script.replace(port, str(free))
        if port == "7443":
            script = f"export FLEETD_CONTROLLER=127.0.0.1:{free}\n{script}"
    return script


def test_the_fleet_of_one(tmp_path: Path) -> None:
    bin_folder = Path(sys.executable).parent
    environ = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    with subprocess.Popen(
        ["bash", "-c", _typed()], cwd=tmp_path, env=environ, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as shell:  # fmt: skip
        try:
            said, told = shell.communicate(timeout=SECONDS)
        finally:
            with suppress(ProcessLookupError):  # nobody is left, if all went well
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, told[-2000:]
    assert "gpu-001: quarantined: operator:me holds the host: a look" in said
    assert "burn-in `smoke` passed" in said
    assert "gpu-001: probation" in said
    assert "gpu-001: ready" in said
    assert said.count("fleetd_gpu_power_watts{") == 8
    assert '"verb": "release"' in (tmp_path / "try" / "controller" / "orders.jsonl").read_text(encoding="utf-8")
