"""Grafana's dashboards: as they are made, in Grafana's units, with queries that Prometheus can parse."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.promql import DASHBOARDS, GRAFANA, RULE_FILES, STANDS_FOR, names_in, panels, queries, run

COLUMNS = 24
UNITS = {
    "watt": "_watts",
    "celsius": "_celsius",
    "hertz": "_hertz",
    "bytes": "_bytes",
    "Bps": "_bytes_per_second",
}
"""Units of Grafana in which a metric is shown as it is, and how its name ends then."""


def test_the_dashboards_are_what_the_script_makes(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("generate_dashboards", GRAFANA / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.generate(tmp_path)
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    kept = {file.name: file.read_text() for file in (GRAFANA / "dashboards").iterdir()}
    assert made == kept, "changed on purpose? python deploy/grafana/generate.py"


def test_every_query_is_one(tmp_path: Path) -> None:
    asked = list(queries())
    rules = [{"record": f"q{number}", "expr": expression} for number, (_, expression) in enumerate(asked)]
    file = tmp_path / "q.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": rules}]}))
    code, said = run("promtool", "check", "rules", file)
    assert code == 0, said
    assert f"{len(asked)} rules found" in said


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_a_dashboard_leads_on_and_its_queries_use_the_variables_that_it_offers(uid: str) -> None:
    dashboard = DASHBOARDS[uid]
    assert dashboard["uid"] == uid
    assert dashboard["title"].startswith("fleetd / ")
    links = {link["title"]: link for link in dashboard["links"]}
    assert links["fleetd"]["tags"] == dashboard["tags"] == ["fleetd"], "a menu of all the others"
    [base] = {url for file in RULE_FILES for url in re.findall(r"runbook_url: (\S+)#", file.read_text())}
    assert links["RUNBOOK"]["url"] == base
    offered = {f"${variable['name']}" for variable in dashboard["templating"]["list"]}
    used = {word for panel in dashboard["panels"] for t in panel["targets"] for word in re.findall(r"\$\w+", t["expr"])}
    assert used <= offered & set(STANDS_FOR)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            assert variable.get("allValue") == (".*" if variable["includeAll"] else None), "All: also without the label"
    for panel in dashboard["panels"]:
        assert all(t["datasource"]["uid"] == "${source}" for t in panel["targets"])


def test_a_panel_asks_a_question_and_says_how_to_read_the_answer() -> None:
    for uid, panel in panels():
        where = f"{uid}: {panel['title']}"
        assert panel["title"].endswith("?"), where
        assert panel["description"].endswith("."), where
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len(set(legends)) == len(legends), where


def test_a_table_with_gpus_has_their_hosts_which_its_links_need() -> None:
    for uid, panel in panels():
        for target in panel["targets"]:
            columns = re.findall(r"by \(([^)]*)\)", target["expr"])
            if panel["type"] == "table" and columns and "gpu" in columns[0].split(", "):
                assert "host" in columns[0].split(", "), f"{uid}: {panel['title']}"


def test_units_are_those_of_the_metrics() -> None:
    for uid, panel in panels():
        unit = panel["fieldConfig"]["defaults"].get("unit")
        assert unit or panel["type"] in {"table", "state-timeline"}, f"{uid}: {panel['title']}: no unit"
        for target in panel["targets"]:
            for name in names_in(target["expr"]) - {"fleetd_gpu_info"}:
                bare = name.split(":")[1] if ":" in name else name
                if unit in UNITS:
                    assert bare.endswith(UNITS[unit]), f"{uid}: {panel['title']}: {name} in {unit}"
                elif bare.endswith(tuple(UNITS.values())) and not target["expr"].startswith("count"):
                    pytest.fail(f"{uid}: {panel['title']}: {name} in {unit}")


def test_panels_fill_the_width_and_do_not_overlap() -> None:
    for uid, dashboard in DASHBOARDS.items():
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, f"{uid}: {panel['title']} lies on another"
            taken |= cells
        assert {x for x, _ in taken} == set(range(COLUMNS)), uid
        assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_provisioning_is_yaml_that_names_prometheus() -> None:
    [sources] = (GRAFANA / "provisioning" / "datasources").iterdir()
    assert [one["type"] for one in yaml.safe_load(sources.read_text())["datasources"]] == ["prometheus"]
    [boards] = (GRAFANA / "provisioning" / "dashboards").iterdir()
    assert [one["type"] for one in yaml.safe_load(boards.read_text())["providers"]] == ["file"]


def test_names_are_found_in_an_expression() -> None:
    expression = (
        'sum by (a) (rate(b_total{c="d_e", f=~"g|h"}[5m])) > on (i) group_left (j) k:l:m and 1e3 * up{n!=""} / 2'
    )
    assert names_in(expression) == {"b_total", "k:l:m", "up"}
