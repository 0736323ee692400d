"""The shipped policies are sound, and `fleetd policy check` says what is wrong with others."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from burnin.tests import LEVELS
from fleetd.cli.policy import command
from fleetd.config import load_policy, read_policy
from fleetd.core.accuse import CARRIED_OUT
from fleetd.core.policy import Stage
from fleetd.core.policycheck import check

POLICIES = Path(__file__).parents[2] / "policies"
SHIPPED = sorted(POLICIES.glob("*.yaml"))
BROKEN = Path(__file__).parent / "broken"

WITH_PROBLEMS = """\
apiVersion: fleetd/v1
kind: Policy
qualify: {level: smoke, timeout_seconds: 9, attempts: 1}
proofs: {}
budgets:
  quarantines: {max_ratio: 0, at_least: 0, max_in_window: 1, window_seconds: 1}
rules:
  - name: all
    when: {finding: burnin}
    then: notify
  - name: late
    when: {finding: burnin, fault_class: [link]}
    then: quarantine
"""


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_policies_are_sound(path: Path) -> None:
    assert check(load_policy(path), levels=LEVELS, actuator_actions=CARRIED_OUT) == ()
    run = CliRunner().invoke(command, ["check", str(path)])
    assert (run.exit_code, run.stderr) == (0, "")
    assert "no problems" in run.stdout


def test_all_three_are_shipped_and_observe_enforces_nothing() -> None:
    assert [p.name for p in SHIPPED] == ["default.yaml", "observe.yaml", "strict.yaml"]
    assert {rule.stage for rule in load_policy(POLICIES / "observe.yaml").rules} == {Stage.OBSERVE}


def test_problems_are_lines_on_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(WITH_PROBLEMS)
    out = tmp_path / "out.json"
    run = CliRunner().invoke(command, ["check", str(path), "--json", str(out)])
    assert run.exit_code == 1
    assert [line.split(": ")[0] for line in run.stderr.splitlines()] == [f"{path}:{n}" for n in (6, 12, 13)]
    report = json.loads(out.read_text())
    assert report["exit_code"] == 1
    assert [p["path"] for p in report["problems"]] == ["budgets.quarantines", "rules[1].when", "rules[1].then"]
    assert [p["line"] for p in report["problems"]] == [6, 12, 13]


def test_a_malformed_policy_is_exit_2_in_one_line() -> None:
    path = BROKEN / "unknown_key.yaml"
    run = CliRunner().invoke(command, ["check", str(path), "--json", "-"])
    assert run.exit_code == 2
    assert run.stderr == f"{path}:3: unknown key `qualfy`; did you mean `qualify`?\n"
    report = json.loads(run.stdout)
    assert (report["exit_code"], report["problems"][0]["line"]) == (2, 3)


def test_a_report_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    run = CliRunner().invoke(command, ["check", str(SHIPPED[0]), "--json", str(tmp_path / "no" / "x.json")])
    assert run.exit_code == 2
    assert run.stderr.startswith("fleetd: cannot write")
    assert len(run.stderr.splitlines()) == 1


def test_lines_of_parts_that_are_not_there_are_those_around_them() -> None:
    document = read_policy(POLICIES / "default.yaml")
    assert document.line_of("rules[0].stage") == document.line_of("rules[0]")
    assert document.line_of("nowhere.at[3].all") == document.line_of("")
