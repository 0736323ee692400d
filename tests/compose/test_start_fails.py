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


def _started(folder: Path, text: str) -> tuple[int, list[str]]:
    """Exit code of a controller that ends by itself, and what it said besides its log."""
    (folder / "state").mkdir()
    path = folder / "controller.yaml"
    path.write_text(text)
    command = [sys.executable, "-m", "fleetd", "controller", "--config", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return ended.returncode, [line for line in ended.stderr.splitlines() if not line.startswith("{")]


def test_a_database_that_is_not_there_is_one_line(tmp_path: Path, pki: Path) -> None:
    """By then all doors are open: they are closed again."""
    pytest.importorskip("psycopg")
    store = f"store: postgresql://fleetd@{str(tmp_path).replace('/', '%2F')}/fleet\n"
    text = CONFIG.format(folder=tmp_path, pki=pki, **dict.fromkeys(DOORS, 0)) + store
    code, said = _started(tmp_path, text)
    assert (code, len(said)) == (1, 1), said
    assert said[0].startswith("fleetd: postgresql://")


@pytest.mark.parametrize("taken", DOORS)
def test_an_address_that_is_taken_is_one_line(tmp_path: Path, pki: Path, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = dict.fromkeys(DOORS, 0) | {taken: other.getsockname()[1]}
        code, said = _started(tmp_path, CONFIG.format(folder=tmp_path, pki=pki, **ports))
    assert (code, len(said)) == (1, 1), said
    assert f"127.0.0.1:{ports[taken]}" in said[0]
