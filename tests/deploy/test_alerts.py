"""The rules of deploy/prometheus under promtool: each alert fires when it should, and never otherwise."""

import re
from pathlib import Path

import pytest
import yaml

from fleetd.core.alerts import read
from fleetd.model.finding import Severity
from fleetd.model.telemetry import FAMILIES
from tests.deploy.promql import (
    ALERTS,
    PROMETHEUS,
    RECORDS,
    RULE_FILES,
    RULE_TESTS,
    names_in,
    queries,
    rules,
    run,
)

BASE = "https://fleetd.example/RUNBOOK.md#"
ON_ABSENCE = {"FleetdControllerDown"}
"""Alerts whose meaning is that something is not there."""
SELECTOR = re.compile(r"([a-z_]+)(?:\{([^{}]*)\})?\[\w+\]")
"""A range of a counter, in increase(), rate() or changes()."""
MATCHER = re.compile(r'(\w+)(=~|!=|!~|=)"([^"]*)"')


def test_the_rules_are_valid_and_promtool_has_nothing_to_say() -> None:
    code, said = run("promtool", "check", "rules", "--lint=all", "--lint-fatal", *RULE_FILES)
    assert code == 0, said
    assert said.count("SUCCESS") == len(RULE_FILES)


@pytest.mark.parametrize("file", RULE_TESTS, ids=lambda file: file.stem)
def test_alerts_fire_and_end_as_their_unit_tests_say(file: Path) -> None:
    code, said = run("promtool", "test", "rules", file)
    assert code == 0, said


def test_every_alert_is_tested_before_it_fires_while_it_does_and_after() -> None:
    phases: dict[str, list[bool]] = {}
    for file in RULE_TESTS:
        for one in yaml.safe_load(file.read_text())["tests"]:
            for check in one["alert_rule_test"]:
                phases.setdefault(check["alertname"], []).append(bool(check["exp_alerts"]))
    assert set(phases) == set(ALERTS)
    for alert, fires in phases.items():
        first = fires.index(True)
        assert False in fires[:first], f"{alert}: not tested to be quiet before"
        assert False in fires[first:], f"{alert}: not tested to end"


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_an_alert_says_how_bad_it_is_what_it_is_and_where_to_read_on(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"warning", "error"}, "the words of fleetd; what no human must do is no alert"
    assert rule["annotations"]["runbook_url"] == BASE + alert.lower()
    assert "\n" not in rule["annotations"]["summary"].strip()


def test_a_time_to_wait_has_its_reason_above_it() -> None:
    for file in RULE_FILES:
        lines = file.read_text().splitlines()
        for place, line in enumerate(lines):
            if (found := re.fullmatch(r"\s+- alert: (\w+)", line)) and "for" in ALERTS[found[1]]:
                assert lines[place - 1].strip().startswith("#"), (
                    f"{file.name}: {found[1]}: why {ALERTS[found[1]]['for']}?"
                )


def check(tmp_path: Path, series: dict[str, str], at: list[str], *, firing: set[str]) -> None:
    """Have promtool look at all alerts at these times, and find only `firing` ones."""
    quiet = sorted(set(ALERTS) - firing)
    groups = [group["name"] for file in RULE_FILES for group in yaml.safe_load(file.read_text())["groups"]]
    test = {
        "rule_files": [str(file) for file in RULE_FILES],
        "group_eval_order": sorted(groups, key=lambda name: name != "fleetd-records"),  # records first
        "evaluation_interval": "5m",
        "tests": [
            {
                "interval": "5m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [{"eval_time": t, "alertname": a, "exp_alerts": []} for a in quiet for t in at],
            }
        ],
    }
    file = tmp_path / "t.yml"
    file.write_text(yaml.safe_dump(test))
    code, said = run("promtool", "test", "rules", file)
    assert code == 0, said


def test_what_is_absent_raises_no_alarm_but_the_one_that_says_so(tmp_path: Path) -> None:
    check(tmp_path, {}, ["1h", "2d"], firing=ON_ABSENCE)


def selected(metric: str, matchers: str) -> str:
    """A series that a selector finds."""
    labels = {"host": "h1", "gpu": "GPU-1", "instance": "i1", "rack": "r1"}
    for name, how, value in MATCHER.findall(matchers or ""):
        labels[name] = {"=": value, "=~": value.split("|")[0]}.get(how, "another")
    return metric + "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def test_a_restart_is_no_event_for_any_counter(tmp_path: Path) -> None:
    counters = {
        selected(metric, matchers)
        for rule in rules()
        for metric, matchers in SELECTOR.findall(rule["expr"])
        if metric.endswith("_total")
    }
    assert len(counters) > 10, counters
    series = dict.fromkeys(sorted(counters), "1000x30 _x2 0x30")
    series |= {selected("process_start_time_seconds", f'job="{j}"'): "100x30 _x2 200x30" for j in jobs()}
    series |= {f'up{{job="{j}",host="h1"}}': "1x30 0x1 1x31" for j in jobs()}
    check(tmp_path, series, ["150m", "165m", "170m", "4h"], firing=set())


def jobs() -> set[str]:
    return {found for rule in rules() for found in re.findall(r'job="([^"]+)"', rule["expr"])}


def test_prometheus_scrapes_what_the_rules_speak_of(tmp_path: Path) -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert {job["job_name"] for job in config["scrape_configs"]} == jobs()
    assert config["rule_files"] == ["rules/*.yml"]
    (tmp_path / "prometheus.yml").write_text((PROMETHEUS / "prometheus.yml").read_text())
    (tmp_path / "rules").symlink_to(PROMETHEUS / "rules")
    for secret in ("fleetd-viewer.token", "fleetd-ca.crt"):
        (tmp_path / secret).touch()
    code, said = run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert code == 0, said


def test_what_a_large_fleet_may_leave_out_is_asked_for_by_nobody() -> None:
    text = (PROMETHEUS / "prometheus.yml").read_text()
    (regex,) = re.findall(r"^ +# +regex: (fleetd_\S+)$", text, re.MULTILINE)
    dropped = {f"fleetd_gpu_{f.name}" for f in FAMILIES if re.fullmatch(regex, f"fleetd_gpu_{f.name}")}
    assert len(dropped) == 4
    asked = {name for rule in rules() for name in names_in(rule["expr"])}
    assert not dropped & (asked | {name for _, query in queries() for name in names_in(query)})


def test_alertmanager_routes_and_holds_back_as_it_says() -> None:
    config = PROMETHEUS / "alertmanager.yml"
    code, said = run("amtool", "check-config", config)
    assert code == 0, said
    for labels, receivers in (
        (["severity=warning", "fleetd_hook=finding"], "fleetd,tickets"),
        (["severity=error", "fleetd_hook=finding"], "fleetd,pager"),
        (["severity=error", "alertname=FleetdGpuComputesWrong"], "pager"),
        (["severity=warning"], "tickets"),
    ):
        code, said = run("amtool", "config", "routes", "test", f"--config.file={config}", *labels)
        assert code == 0
        assert receivers in said.splitlines()  # beside a warning about a flag
    named = {
        name
        for rule in yaml.safe_load(config.read_text())["inhibit_rules"]
        for matcher in (*rule["source_matchers"], *rule["target_matchers"])
        for name in re.findall(r"Fleetd\w+", matcher)
    }
    assert named <= set(ALERTS)


HANDED_IN = sorted(name for name, rule in ALERTS.items() if "fleetd_hook" in rule["labels"])


@pytest.mark.parametrize("alert", HANDED_IN)
def test_the_hook_understands_which_host_and_gpu_an_alert_means(alert: str) -> None:
    checks = [c for f in RULE_TESTS for one in yaml.safe_load(f.read_text())["tests"] for c in one["alert_rule_test"]]
    fired = next(c["exp_alerts"][0] for c in checks if c["alertname"] == alert and c["exp_alerts"])
    labels = {**fired["exp_labels"], "alertname": alert}
    said = read({"alerts": [{"status": "firing", "labels": labels, "startsAt": "2026-01-01T00:00:00Z"}]})
    assert said.refused == ()
    assert [(a.host, a.gpu, a.severity) for a in said.alerts] == [("h1", labels.get("gpu"), Severity.WARNING)]


def test_fleetd_does_not_hear_its_own_conclusions_as_evidence() -> None:
    assert HANDED_IN, "else the receiver is for nothing"
    for alert in HANDED_IN:
        said = {name for name in names_in(ALERTS[alert]["expr"]) if name not in RECORDS}
        said |= {n for name in names_in(ALERTS[alert]["expr"]) & set(RECORDS) for n in names_in(RECORDS[name]["expr"])}
        said -= {"up"}  # Prometheus's own word: the agent answers
        assert all(name.startswith("fleetd_gpu_") and name != "fleetd_gpu_held" for name in said), alert
