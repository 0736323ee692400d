"""`fleetd policy test`: the shipped timelines hold, and what does not hold is named with its line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from burnin.tests import LEVELS as BURNIN_LEVELS
from fleetd.cli.policy import command
from fleetd.config import ConfigError, read_policy_test
from fleetd.core.policy import LEVELS

TIMELINES = Path(__file__).parents[2] / "policies" / "tests"

HEADER = "apiVersion: fleetd/v1\nkind: PolicyTest\npolicy: default\ntimeline:\n"
WRONG = (
    HEADER
    + """\
  - at: 0
    hosts: [h1]
    hello: {gpus: 2}
    expect: {state: healthy, orders: [quarantine], withheld: [release], why: moonshine, states: {h9: new}}
"""
)


def test_the_shipped_timelines_hold(tmp_path: Path) -> None:
    run = CliRunner().invoke(command, ["test", str(TIMELINES), "--json", str(tmp_path / "o")])
    assert (run.exit_code, run.stderr) == (0, "")
    assert run.stdout == f"{len(list(TIMELINES.glob('*.yaml')))} tests as expected\n"
    assert json.loads((tmp_path / "o").read_text())["problems"] == []


def test_what_is_not_as_expected_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(WRONG)
    run = CliRunner().invoke(command, ["test", str(path)])
    assert run.exit_code == 1
    lines = run.stderr.splitlines()
    assert len(lines) == 5
    assert all(line.startswith(f"{path}:5: ") for line in lines)
    for words in ("it is qualifying", "nobody knows", "got [burnin]", "withheld [release], got []", "`moonshine`"):
        assert words in run.stderr


def test_a_policy_can_be_put_in_the_place_of_those_that_the_tests_name() -> None:
    run = CliRunner().invoke(command, ["test", str(TIMELINES / "bad-gpu.yaml"), "--policy", "observe"])
    assert run.exit_code == 1
    assert "expected quarantined, it is suspect" in run.stderr


def test_a_policy_is_found_beside_its_test(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text((TIMELINES.parent / "observe.yaml").read_text())
    folder = tmp_path / "tests"
    folder.mkdir()
    text = (TIMELINES / "observe.yaml").read_text().replace("policy: observe", "policy: ../own.yaml")
    (folder / "t.yaml").write_text(text)
    assert CliRunner().invoke(command, ["test", str(folder)]).exit_code == 0


def test_a_folder_without_tests_is_a_mistake(tmp_path: Path) -> None:
    run = CliRunner().invoke(command, ["test", str(tmp_path), "--json", "-"])
    assert run.exit_code == 2
    assert "no *.yaml" in run.stderr
    assert json.loads(run.stdout)["exit_code"] == 2


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("  - at: 0\n    hosts: [h]\n    hello: {}\n    fleet: stop\n", "one step has one event"),
        ("  - at: 0\n    hello: {}\n", "`hello` needs `hosts`"),
        ("  - at: 9\n  - at: 1\n", "in the order of their times"),
        ("  - at: 0\n    hosts: [h]\n    helo: {}\n", "did you mean `hello`"),
        ("  - at: 0\n    hosts: [h]\n    operator: dance\n", "`dance` is none of"),
        ("  []\n", "at least one"),
    ],
)
def test_a_malformed_timeline_is_one_line(tmp_path: Path, steps: str, words: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(HEADER + steps)
    with pytest.raises(ConfigError, match=words) as refused:
        read_policy_test(path)
    assert "\n" not in str(refused.value)
    assert CliRunner().invoke(command, ["test", str(path)]).exit_code == 2


def test_the_levels_of_the_burnin_stand_in_the_order_of_the_core() -> None:
    assert [level for level in LEVELS if level in BURNIN_LEVELS] == list(BURNIN_LEVELS)
