"""`fleetd power tree` against a controller that shares budgets out, and against one that does not; and its metrics."""

import json
import re
from pathlib import Path

from click.testing import CliRunner, Result

from fleetd.cli import main
from fleetd.controller.metrics import ControllerCollector
from fleetd.model.ids import HostName
from fleetd.model.power_lease import Ask
from tests.agent.power_hosts import MOST, SAFE, declared
from tests.e2e.power_controller import serving

H0, H1 = HostName("h0"), HostName("h1")


def question(host: HostName, demand_watts: float, *, uncapped: str = "") -> Ask:
    return Ask(
        host=host,
        epoch=1,
        seq=1,
        demand_watts=demand_watts,
        applied_seq=0,
        holds_watts=5000.0,
        safe_watts=SAFE,
        uncapped=uncapped,
    )


def run(port: int, *words: str) -> Result:
    return CliRunner().invoke(main, ["power", "tree", *words, "--insecure", "--controller", f"127.0.0.1:{port}"])


def test_the_tree_for_people_machines_and_prometheus(tmp_path: Path) -> None:
    with serving(tmp_path, declared(3, budget=3 * MOST), settled=False) as (port, controller):
        controller.power.ask(H0, question(H0, 6000.0))
        controller.power.ask(H1, question(H1, 6000.0, uncapped="its governor only observes"))
        shown = run(port)
        assert shown.exit_code == 0
        words = (
            "domain",
            "  r0",
            "h1: reserved at its maximum: its governor only observes\n",
            "safe cap\n",
        )
        assert [word for word in words if word not in shown.stdout] == []
        assert re.search(r"nobody is raised for another 1[2-5]\d s", shown.stdout), "151 s, less what has passed"
        body = json.loads(run(port, "--json", "-").stdout)
        assert body["schema"] == "fleetd.power.tree/1"
        assert [area["name"] for area in body["areas"]] == ["domain", "r0"]
        assert [host["reserved_watts"] for host in body["hosts"]] == [5000.0, MOST, SAFE]
        assert 0 < body["hosts"][0]["left_s"] <= 66.0
        assert body["hosts"][2]["lease_watts"] is None
        values = {
            (s.name, s.labels.get("area")): s.value
            for family in ControllerCollector(controller).collect()
            for s in family.samples
        }
        assert values["fleetd_power_area_budget_watts", "r0"] == 3 * MOST
        assert values["fleetd_power_area_reserved_watts", "domain"] == 5000.0 + MOST + SAFE
        assert values["fleetd_power_area_demand_watts", "domain"] == 6000.0 + MOST + SAFE
        assert values["fleetd_power_area_stranded_watts", "r0"] == 0.0
        assert values["fleetd_power_hosts_uncapped", None] == 1.0
        assert values["fleetd_power_grants_total", None] == 2.0


def test_without_budgets_it_says_so_and_shows_no_metric(tmp_path: Path) -> None:
    with serving(tmp_path, None, settled=False) as (port, controller):
        refused = run(port)
        assert refused.exit_code == 1
        assert refused.stderr == (
            "fleetd: this controller shares no power budget out; name a tree in its configuration: `power: tree`\n"
        )
        assert not [f for f in ControllerCollector(controller).collect() if f.name.startswith("fleetd_power")]


def test_without_a_controller_it_cannot_tell() -> None:
    result = run(1)
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1
