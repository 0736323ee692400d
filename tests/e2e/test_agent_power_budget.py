"""A real agent, a real power guard, one C library under both, and a controller that shares a budget out over gRPC."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fleetd.controller.power_config import PowerTree
from fleetd.core.power.books import HostPower
from fleetd.core.power.tree import Area
from tests.e2e.agent_bench import agent
from tests.e2e.power_controller import serving
from tests.powerguard.governor_bench import tuned
from tests.powerguard.guard_bench import SAFE, Bench

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library"),
]
BASE = 1500.0
TREE = PowerTree(
    areas=(Area(name="r1", budget_watts=BASE + 2 * 660.0),),
    hosts=(HostPower(name="h1", area="r1", safe_watts=BASE + 2 * SAFE, max_watts=BASE + 2 * 700.0),),
    ttl_s=6.0,
    grace_s=5.0,
)
CAPPED = 659.0
"""Its part of the budget, less what a driver may round."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # a socket's path has 108 characters
        yield Path(short)


def test_an_agent_boosts_as_far_as_its_lease_and_falls_without_the_controller(folder: Path) -> None:
    (folder / "guard").mkdir()
    guard = Bench(folder / "guard")
    socket = str(folder / "guard" / "guard.sock")
    power = {"mode": "boost", "envelope": "h200", "set_point": str(tuned(folder / "point.json")), "guard": socket}
    power |= {"settle_seconds": 0.01, "host_base_watts": BASE}
    with ExitStack() as stack:
        stack.callback(guard.close)
        guard.start()
        fleet = stack.enter_context(ExitStack())
        port, _ = fleet.enter_context(serving(folder, TREE, settled=True))
        uplink = {"address": f"127.0.0.1:{port}", "insecure": True}
        host = stack.enter_context(agent(folder, gpus=2, start=False, power=power, uplink=uplink))
        host.environ |= {name: guard.environ[name] for name in ("FAKE_NVML", "LD_LIBRARY_PATH")}
        host.start()
        guard.until(CAPPED)
        host.until(lambda told: told["power"]["budget"]["in_force_watts"] == BASE + 2 * CAPPED, "read back")
        text = host.metrics()[1]
        assert "fleetd_power_budget_lease_live 1.0" in text
        assert f"fleetd_power_budget_cap_watts {BASE + 2 * 660.0}" in text
        status = ("power", "status", "--socket", str(host.status), "--guard", socket)
        shown = host.cli(*status).stdout
        assert "power budget: lease of 2820 W for" in shown
        assert "its share of the budgets above it" in shown
        assert "2820" in host.cli("power", "tree", "--insecure", "--controller", f"127.0.0.1:{port}").stdout
        assert int((folder / "state" / "power-lease.epoch").read_text()) > 0
        fleet.close()  # the controller is gone; the lease lapses
        guard.until(SAFE)
        host.until(lambda told: told["power"]["budget"]["lapses_total"] == 1, "lapsed")
        shown = host.cli(*status).stdout
        assert "power budget: no lease" in shown
        assert "no lease of the power budget: the controller has not answered" in shown
        assert "fleetd_power_budget_lease_live 0.0" in host.metrics()[1]
