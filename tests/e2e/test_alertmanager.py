"""The shipped alertmanager.yml in a real Alertmanager: what reaches the controller's hook, and what people."""

import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
import yaml

from fleetd.core.alerts import read
from fleetd.loopback import free_ports
from tests.deploy.promql import ALERTS, PROMETHEUS
from tests.e2e.test_prometheus import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
HEARD_S = 60.0


class Receivers:
    """Stands for every receiver: what was sent, by the receiver's name."""

    def __init__(self) -> None:
        self.heard: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()
                heard.put((self.path.rpartition("/")[2], body))

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{name}"


@contextmanager
def receivers() -> Iterator[Receivers]:
    there = Receivers()
    thread = threading.Thread(target=there.server.serve_forever)
    thread.start()
    try:
        yield there
    finally:
        there.server.shutdown()
        thread.join()
        there.server.server_close()


@contextmanager
def alertmanager(folder: Path, there: Receivers, *, hooks: Sequence[str] = ()) -> Iterator[str]:
    """The shipped file, with waits of a second and receivers that we hear; yields the API's address.

    `hooks`: of real controllers, in place of the one that the file tells, as it tells it.
    """
    config = yaml.safe_load((PROMETHEUS / "alertmanager.yml").read_text())
    for route in (config["route"], *config["route"]["routes"]):
        route.update({"group_wait": "1s", "group_interval": "1s"})
    for receiver in config["receivers"]:
        hook = receiver.setdefault("webhook_configs", [{}])[0]
        if hooks and receiver["name"] == "fleetd":
            receiver["webhook_configs"] = [{**hook, "url": url} for url in hooks]
            continue
        hook["url"] = there.url(receiver["name"])
        hook.pop("http_config", None)
    (folder / "am.yml").write_text(yaml.safe_dump(config))
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    assert program, "alertmanager is not installed: make deps"
    (port,) = free_ports(1)
    words = [f"--config.file={folder}/am.yml", f"--storage.path={folder}/am", "--cluster.listen-address="]
    with (
        (folder / "am.log").open("wb") as log,
        subprocess.Popen(
            [program, *words, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
        ) as process,
    ):
        try:
            yield f"http://127.0.0.1:{port}/api/v2/alerts"
        finally:
            process.terminate()


def fire(api: str, *alerts: dict[str, str]) -> bool:
    """Hand alerts in as Prometheus does; False while nobody listens."""
    body = [{"labels": labels, "annotations": {"summary": f"said by {labels['alertname']}"}} for labels in alerts]
    request = Request(api, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - loopback
    try:
        with urlopen(request, timeout=10) as answer:  # noqa: S310 - loopback
            return bool(answer.status == 200)
    except URLError:
        return False


def labels_of(alert: str, **more: str) -> dict[str, str]:
    """The labels with which a rule fires for a GPU."""
    rule = {name: value.replace("{{ $labels.gpu }}", "GPU-1") for name, value in ALERTS[alert]["labels"].items()}
    return {"alertname": alert, "host": "h1", "gpu": "GPU-1", "pool": "train", **rule, **more}


def test_the_hook_hears_what_only_a_long_memory_sees_and_people_hear_everything(tmp_path: Path) -> None:
    with receivers() as there, alertmanager(tmp_path, there) as api:
        alerts = (
            labels_of("FleetdGpuMemoryWearsOut"),
            labels_of("FleetdGpuComputesWrong", fault_class="chip-persistent"),
            labels_of("FleetdRackPowerBrake", rack="r1"),
            labels_of("FleetdPowerBrake", rack="r1"),
            labels_of("FleetdPowerBrake", rack="r2", host="h9"),
        )
        assert not wait_for(lambda: not fire(api, *alerts)), (tmp_path / "am.log").read_text()
        expected = {
            ("fleetd", "FleetdGpuMemoryWearsOut", "h1"),
            ("tickets", "FleetdGpuMemoryWearsOut", "h1"),
            ("pager", "FleetdGpuComputesWrong", "h1"),
            ("pager", "FleetdRackPowerBrake", "h1"),
            ("tickets", "FleetdPowerBrake", "h9"),
        }
        told: set[tuple[str, str, str]] = set()
        for_us: list[dict[str, Any]] = []
        while not told >= expected:
            name, body = there.heard.get(timeout=HEARD_S)
            told |= {(name, one["labels"]["alertname"], one["labels"]["host"]) for one in body["alerts"]}
            if name == "fleetd":
                for_us.append(body)
        assert told == expected, "the brake of a host in r1 is kept back by its rack's"
        [wears_out] = {alert for body in for_us for alert in read(body).alerts}
        assert (wears_out.host, wears_out.gpu, wears_out.name) == ("h1", "GPU-1", "FleetdGpuMemoryWearsOut")
        assert wears_out.said == "said by FleetdGpuMemoryWearsOut"
