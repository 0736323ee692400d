"""`fleetd demo --world`: a day as JSON lines, the same for the same seed; mistakes in one line."""

import json

import pytest
from click.testing import CliRunner, Result

from fleetd.cli.demo import command


def day(*words: str) -> Result:
    return CliRunner().invoke(command, ["--world", "6", "--hours", "3", *words])


def test_a_day_is_told_in_json_lines_on_a_pipe() -> None:
    result = day()
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    *told, summary = lines
    assert {"planted", "quarantine"} <= {line["kind"] for line in told}
    assert all(line["why"] for line in told)
    assert [line["at_s"] for line in told] == sorted(line["at_s"] for line in told)
    assert (summary["kind"], summary["hosts"], summary["virtual_hours"]) == ("summary", 6, 3.0)
    assert summary["quarantines"] == sum(line["kind"] == "quarantine" for line in told)


def test_the_same_seed_is_the_same_day_and_another_one_is_not() -> None:
    assert day("--seed", "5").stdout == day("--seed", "5").stdout != day("--seed", "6").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dir", "somewhere"], "--dir is for the demo with real processes"),
        (["--policy", "no-such-policy"], "no-such-policy"),
        (["--world", "0"], "0"),
        (["--hours", "nan"], "--hours"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], said: str) -> None:
    result = day(*words)
    assert result.exit_code == 2
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.output


@pytest.mark.parametrize("words", [["--hours", "3"], ["--seed", "7"], ["--policy", "strict"]])
def test_what_only_a_world_understands_is_not_ignored_without_one(words: list[str]) -> None:
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith("add --world N")
