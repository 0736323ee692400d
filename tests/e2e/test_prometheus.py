"""Rules and dashboards on a real fleet: a controller, agents of both vendors, and a Prometheus that scrapes them."""

import json
import re
import select
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from fleetd.cli.duration import seconds
from fleetd.loopback import HostPlan, Loopback, free_ports
from fleetd.system import RealClock
from tests.deploy.promql import RECORDS, RULE_FILES, names_in, queries, rules

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
WAIT_S = 120.0
OF_PROMETHEUS = {"up", "ALERTS"}
"""Metrics that Prometheus makes itself."""
IN_TROUBLE_OR_ABOVE_OBSERVE = {
    # A part that never spoke of its power smoothing has no sample (`fleetd.exporter.power`; tests/exporter).
    "fleetd_power_smoothing_lost",
    # Only with a job of Slurm's or a pod on the GPU (tests/e2e/test_agent_metrics.py).
    "fleetd_gpu_job_info",
}
"""Names that this fleet does not show, each with where it is tested."""
EMPTY = {"fleetd-host: Who uses them?", "fleetd-burnin: What do training jobs suspect?"}
"""Panels that have nothing to show here: no job runs. In test_everything.py one does."""
PLACE = {"pool": "train", "rack": "r1"}


def wanted() -> dict[str, str]:
    """Each metric that is named, and where."""
    found = {name: f"rule {rule.get('alert') or rule['record']}" for rule in rules() for name in names_in(rule["expr"])}
    found |= {name: panel for panel, expression in queries() for name in names_in(expression)}
    return {name: where for name, where in found.items() if name not in OF_PROMETHEUS and name not in RECORDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """A fleet and its Prometheus."""

    fleet: Loopback
    port: int
    kernel_log: Path

    def names(self) -> set[str]:
        """Every metric that a process of the fleet shows now."""
        text = "".join(self.fleet.metrics(name) for name in ("controller", *self.fleet.plans))
        return set(re.findall(r"^([a-zA-Z_:][\w:]*)[{ ]", text, flags=re.MULTILINE))

    def ask(self, path: str, **parameters: str) -> Any:
        """What Prometheus's API answers; an error is an answer. None: it does not answer yet."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(parameters)}", timeout=20) as answer:
                return json.load(answer)
        except HTTPError as error:
            return json.load(error)
        except URLError:
            return None

    def results(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query; empty also while Prometheus starts."""
        said = self.ask("query", query=expression)
        assert said is None or said["status"] == "success", f"{expression}: {said['error']}"
        return said["data"]["result"] if said else []


def wait_for(missing: Callable[[], object]) -> object:
    """Look until nothing is missing; returns what still is after a long time."""
    clock = RealClock()
    until_s = clock.elapsed_s() + WAIT_S
    pause, other = socket.socketpair()  # nobody writes to it: a wait between two looks
    with pause, other:
        while (left := missing()) and clock.elapsed_s() < until_s:
            select.select([pause], [], [], 0.5)
    return left


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A fleet of both vendors with an envelope, a power tree and a kernel log; a GPU falls off the bus."""
    folder = tmp_path_factory.mktemp("fleet")
    tree = folder / "tree.yaml"
    areas = [{"name": "hall", "budget_watts": 30000}]
    hosts = [{"hosts": "h[01-02]", "area": "hall", "safe_watts": 3000, "max_watts": 4000}]
    tree.write_text(yaml.safe_dump({"apiVersion": "fleetd/v1", "kind": "PowerTree", "areas": areas, "hosts": hosts}))
    plans = (HostPlan(name="h01", vendor="nvidia", gpus=2), HostPlan(name="h02", vendor="amd", gpus=2))
    with Loopback(folder, plans, now_s=RealClock().wall_s(), controller={"power": {"tree": str(tree)}}) as fleet:
        log = folder / "kernel.log"
        log.touch()
        more = {"kernel_log": {"source": str(log)}, "power": {"envelope": "h200", "host_base_watts": 2500.0}}
        reconfigure(folder / "h01.yaml", place=PLACE, **more)
        reconfigure(folder / "h02.yaml", place=PLACE)
        with prometheus(folder, fleet) as port:
            fleet.start_all()
            stand = Stand(fleet=fleet, port=port, kernel_log=log)
            ready = {"fleetd_gpu_row_remap_failed_ratio", "fleetd_gpu_bad_pages_total"}
            assert not wait_for(lambda: ready - stand.names()), "both agents know their GPUs"
            address = "00fa:1b:00"  # of the last GPU of a fake host, as the kernel writes it
            log.write_text(f"[12.0] NVRM: Xid (PCI:{address}): 79, pid=1, GPU has fallen off the bus.\n")
            yield stand


def reconfigure(file: Path, **more: object) -> None:
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **more}, sort_keys=False))


@contextmanager
def prometheus(folder: Path, fleet: Loopback) -> Iterator[int]:
    """A Prometheus with our rules, whose service discovery is a list."""
    ports = fleet.metrics_ports
    agents = [{"targets": [f"127.0.0.1:{ports[h]}"], "labels": {"host": h, **PLACE}} for h in fleet.plans]
    controller = [{"targets": [f"127.0.0.1:{ports['controller']}"]}]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(faster(file, folder)) for file in RULE_FILES],
        "scrape_configs": [
            {"job_name": "fleetd-agent", "static_configs": agents},
            {"job_name": "fleetd-controller", "static_configs": controller},
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with running(folder) as port:
        yield port


@contextmanager
def running(folder: Path) -> Iterator[int]:
    """A Prometheus on a folder with its configuration; yields its port."""
    program = shutil.which("prometheus")
    assert program, "prometheus is not installed: make deps"
    (port,) = free_ports(1)
    where = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    with (
        (folder / "prometheus.log").open("wb") as log,
        subprocess.Popen(
            [program, *where, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
        ) as process,
    ):
        try:
            yield port
        finally:
            process.terminate()


def faster(file: Path, folder: Path, *, patience: float = 1.0) -> Path:
    """The same rules, evaluated every second: no test waits for half a minute. `patience`: share of each `for` left."""
    body = yaml.safe_load(file.read_text())
    for group in body["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = f"{seconds(rule['for']) * patience:.0f}s"
    copy = folder / f"rules-{file.name}"
    copy.write_text(yaml.safe_dump(body, sort_keys=False))
    return copy


def test_every_metric_that_is_named_is_there(stand: Stand) -> None:
    seen: set[str] = set()

    def missing() -> dict[str, str]:
        seen.update(stand.names())
        return {name: where for name, where in wanted().items() if name not in seen | IN_TROUBLE_OR_ABOVE_OBSERVE}

    assert not wait_for(missing)
    assert not IN_TROUBLE_OR_ABOVE_OBSERVE & seen, "then it needs no exception"
    assert set(wanted()) >= IN_TROUBLE_OR_ABOVE_OBSERVE


def test_every_query_of_every_panel_returns_data(stand: Stand) -> None:
    empty = {(panel, expression) for panel, expression in queries() if panel not in EMPTY}

    def missing() -> set[tuple[str, str]]:
        empty.difference_update({one for one in empty if stand.results(one[1])})
        return empty

    assert not wait_for(missing)


def test_the_rules_run_and_the_lost_gpu_is_the_only_alarm(stand: Stand) -> None:
    def missing() -> bool:
        return not stand.results('ALERTS{alertname="FleetdFatalFault",alertstate="firing"}')

    assert not wait_for(missing)
    [lost] = stand.results('ALERTS{alertstate="firing",severity="error"}')
    labels = {name: lost["metric"][name] for name in ("alertname", "host", "gpu", "code", "pool")}
    assert labels == {
        "alertname": "FleetdFatalFault",
        "host": "h01",
        "gpu": "SIM-h01-01",
        "code": "nvidia.xid.79",
        "pool": "train",
    }
    groups = stand.ask("rules")["data"]["groups"]
    assert not [(rule["name"], rule["lastError"]) for group in groups for rule in group["rules"] if "lastError" in rule]
