"""A controller that cannot open all its doors: one line, exit code 1, whichever it was."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fleetd.system import RealClock
from fleetd.uplink.pki import DevPki, make_dev_pki

CONFIG = """
apiVersion: fleetd/v1
kind: Controller
state_dir: {folder}/state
server: {{listen: "127.0.0.1:{server}", ca: {pki}/ca.crt, cert: {pki}/controller.crt, key: {pki}/controller.key}}
exporter: {{listen: "127.0.0.1:{exporter}"}}
web: {{listen: "127.0.0.1:{web}", insecure: true}}
enrolment: {{ca: {pki}/ca.crt, ca_key: {pki}/ca.key, listen: "127.0.0.1:{enrolment}"}}
"""
DOORS = ("server", "exporter", "web", "enrolment")


@pytest.fixture(name="pki", scope="module")
def _pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "pki"
    make_dev_pki(folder, DevPki(hosts=("h1",), operators=(), viewers=(), sans=()), now_s=RealClock().wall_s())
    return folder


@pytest.mark.parametrize("taken", DOORS)
def test_an_address_that_is_taken_is_one_line(tmp_path: Path, pki: Path, taken: str) -> None:
    (tmp_path / "state").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = dict.fromkeys(DOORS, 0) | {taken: other.getsockname()[1]}
        path = tmp_path / "controller.yaml"
        path.write_text(CONFIG.format(folder=tmp_path, pki=pki, **ports))
        command = [sys.executable, "-m", "fleetd", "controller", "--config", str(path)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert (ended.returncode, len(said)) == (1, 1), ended.stderr
    assert f"127.0.0.1:{ports[taken]}" in said[0]
