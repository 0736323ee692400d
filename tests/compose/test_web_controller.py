"""`fleetd controller` with `web:`: the page is there, and goes with it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fleetd.web.tokens import new_token

CONFIG = """
apiVersion: fleetd/v1
kind: Controller
state_dir: {state}
server: {{listen: "127.0.0.1:0", insecure: true}}
exporter: {{listen: "127.0.0.1:0"}}
web: {web}
"""


def _config(folder: Path, web: str) -> Path:
    state = folder / "state"
    state.mkdir()
    path = folder / "controller.yaml"
    path.write_text(CONFIG.format(state=state, web=web))
    return path


@pytest.fixture(name="controller")
def _controller(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    token, line = new_token("alice", "operator", entropy="e" * 43)
    (tmp_path / "tokens").write_text(line)
    web = f'{{listen: "127.0.0.1:0", insecure: true, tokens: {tmp_path / "tokens"}}}'
    command = [sys.executable, "-m", "fleetd", "controller", "--config", str(_config(tmp_path, web))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        yield process, token
        process.kill()


def test_the_page_is_served_until_the_controller_stops(controller: tuple[subprocess.Popen[str], str]) -> None:
    process, token = controller
    assert process.stderr is not None
    port = None
    for line in process.stderr:
        said = json.loads(line)
        if said["event"] == "web listening":
            port = said["port"]
        if said["event"] == "listening":
            break
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
        assert client.get("/readyz").text == "ok\n"
        assert client.get("/api/v1/fleet").json()["hosts"] == 0
        assert client.get("/api/v1/policy").json()["name"] == "default"
        text = client.get("/metrics").text
        assert re.search(r'^fleetd_hosts\{state="healthy"\} 0\.0$', text, re.MULTILINE)
        assert "fleetd_build_info" in text
        openmetrics = client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
        assert openmetrics.text.endswith("# EOF\n")
        assert (
            client.post("/api/v1/automation/stop", json={"reason": "a test"}).json()["stopped"]["who"]
            == "operator:alice"
        )
        with client.stream("GET", "/api/v1/events") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("retry")
            process.terminate()
            for _ in lines:
                pass
    assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("web", "code", "said"),
    [
        (
            '{listen: "0.0.0.0:7480", insecure: true}',
            2,
            "controller.yaml:7: web: insecure: 0.0.0.0:7480 is not the loopback",
        ),
        ("{insecure: true, token: x}", 2, "did you mean `tokens`"),
        ("{insecure: true, tokens: none}", 1, "the tokens cannot be read: No such file"),
        ("{cert: none, key: none, ca: none}", 1, "cannot read none"),
    ],
)
def test_a_web_that_cannot_be_served_is_one_line(tmp_path: Path, web: str, code: int, said: str) -> None:
    command = [sys.executable, "-m", "fleetd", "controller", "--config", str(_config(tmp_path, web))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("fleetd: ")
    assert said in last
    assert "Traceback" not in ended.stderr
