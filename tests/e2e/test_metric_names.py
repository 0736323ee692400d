"""Rules and dashboards name metrics that exist: a controller and agents of both vendors run, and show them."""

import re
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fleetd.loopback import HostPlan, Loopback
from fleetd.system import RealClock
from tests.deploy.promql import RECORDS, names_in, queries, rules

WAIT_S = 120.0
OF_PROMETHEUS = {"up", "ALERTS"}
"""Metrics that Prometheus makes itself."""
IN_TROUBLE_OR_ABOVE_OBSERVE = {
    # A part that never spoke of its power smoothing has no sample (`fleetd.exporter.power`; tests/exporter).
    "fleetd_power_smoothing_lost",
    # Only with a job of Slurm's or a pod on the GPU (tests/e2e/test_agent_metrics.py).
    "fleetd_gpu_job_info",
}
"""Names that a fleet which is well and only observes its power does not show, each with where it is tested."""
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
PLACE = {"pool": "train", "rack": "r1"}


def wanted() -> dict[str, str]:
    """Each metric that is named, and where."""
    found = {name: f"rule {rule.get('alert') or rule['record']}" for rule in rules() for name in names_in(rule["expr"])}
    found |= {name: panel for panel, expression in queries() for name in names_in(expression)}
    return {name: where for name, where in found.items() if name not in OF_PROMETHEUS and name not in RECORDS}


def pages_of(fleet: Loopback) -> set[str]:
    """Every metric that a process of the fleet shows now."""
    text = "".join(fleet.metrics(name) for name in ("controller", *fleet.plans))
    return set(re.findall(r"^([a-zA-Z_:][\w:]*)[{ ]", text, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """What the pages show of a fleet of both vendors, with an envelope, a power tree, a kernel log and a lost GPU."""
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
        fleet.start_all()
        yield watched(fleet, log)


def reconfigure(file: Path, **more: object) -> None:
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **more}, sort_keys=False))


def watched(fleet: Loopback, log: Path) -> set[str]:
    """All names that were shown, until there is nothing to wait for; a GPU falls off the bus on the way."""
    clock, found, missing = RealClock(), set[str](), set[str]()
    pause, _ = socket.socketpair()  # nobody writes to it: a wait between two looks
    until_s = clock.elapsed_s() + WAIT_S
    with pause, _:
        while clock.elapsed_s() < until_s:
            found |= pages_of(fleet)
            missing = set(wanted()) - found - IN_TROUBLE_OR_ABOVE_OBSERVE
            if not missing:
                break
            if "fleetd_gpu_row_remap_failed_ratio" in found and not log.stat().st_size:  # h01 knows its GPUs
                address = "00fa:1b:00"  # of the fake host's last GPU, as the kernel writes it
                log.write_text(f"[12.0] NVRM: Xid (PCI:{address}): 79, pid=1, GPU has fallen off the bus.\n")
            select.select([pause], [], [], 0.5)
    return found


def test_every_metric_that_is_named_is_there(shown: set[str]) -> None:
    missing = {name: where for name, where in wanted().items() if name not in shown | IN_TROUBLE_OR_ABOVE_OBSERVE}
    assert not missing


def test_what_is_said_to_be_absent_is_absent(shown: set[str]) -> None:
    assert not IN_TROUBLE_OR_ABOVE_OBSERVE & shown, "then it needs no exception"
    assert set(wanted()) >= IN_TROUBLE_OR_ABOVE_OBSERVE


def test_names_are_found_in_an_expression() -> None:
    expression = (
        'sum by (a) (rate(b_total{c="d_e", f=~"g|h"}[5m])) > on (i) group_left (j) k:l:m and 1e3 * up{n!=""} / 2'
    )
    assert names_in(expression) == {"b_total", "k:l:m", "up"}
