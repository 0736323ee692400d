"""The published schema of the report: every report keeps it, recorded or fresh, and it says neither more nor less."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from burnin import schema
from burnin.cli import command
from burnin.schedule import Kind
from burnin.spec import SCHEMA, ExitCode, FaultClass, Verdict
from burnin.telling.report import EXIT_CODES, MAX_TILES
from tests.burnin.report_runs import CPU, FAULTY, report_of

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "burnin").glob("*.json"))
PUBLISHED: dict[str, Any] = json.loads(schema.text())
CHECK = jsonschema.Draft202012Validator(PUBLISHED)
pytestmark = pytest.mark.timeout(600)


def complaints(report: Any) -> list[str]:
    return [f"{one.json_path}: {one.message}" for one in CHECK.iter_errors(report)]


def test_it_is_a_schema_of_its_draft_and_printed_as_it_is() -> None:
    jsonschema.Draft202012Validator.check_schema(PUBLISHED)
    done = CliRunner().invoke(command, ["schema"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, PUBLISHED)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_recorded_report_keeps_it(path: Path) -> None:
    assert complaints(json.loads(path.read_text())) == []


@pytest.mark.parametrize("arguments", [FAULTY, CPU], ids=["sim", "cpu"])
def test_a_fresh_report_keeps_it_and_has_all_of_its_keys(
    arguments: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    report = report_of(arguments, tmp_path_factory)
    assert complaints(report) == []
    for where, said, keys in objects(PUBLISHED, report, "report"):
        known = {name for name, one in said["properties"].items() if not one.get("deprecated")}
        more = keys - known if "additionalProperties" not in said else set()
        assert (known - keys, more) == (set(), set()), where


def objects(said: dict[str, Any], value: Any, where: str) -> Iterator[tuple[str, dict[str, Any], set[str]]]:
    """(place, schema, keys) of every object in a report whose keys the schema lists."""
    for choice in (said, *said.get("oneOf", ())):
        if "$ref" in choice:
            yield from objects(PUBLISHED["$defs"][choice["$ref"].rpartition("/")[2]], value, where)
        if isinstance(value, list) and "items" in choice:
            for one in value:
                yield from objects(choice["items"], one, f"{where}[]")
        if isinstance(value, dict) and "properties" in choice:
            yield where, choice, set(value)
            for name, one in value.items():
                yield from objects(choice["properties"].get(name, {}), one, f"{where}.{name}")


def test_its_words_are_the_words_of_the_code() -> None:
    assert PUBLISHED["properties"]["schema"]["const"] == SCHEMA
    assert PUBLISHED["$defs"]["verdict"]["enum"] == [one.value for one in Verdict]
    assert PUBLISHED["$defs"]["class"]["enum"] == [one.value for one in FaultClass]
    assert PUBLISHED["$defs"]["signature"]["properties"]["tiles"]["maxItems"] == MAX_TILES
    codes = {
        one["if"]["properties"]["verdict"]["const"]: one["then"]["properties"]["exit_code"]
        for one in PUBLISHED["allOf"]
    }
    assert codes == {verdict.value: {"const": int(code)} for verdict, code in EXIT_CODES.items()}
    assert PUBLISHED["properties"]["exit_code"]["enum"] == sorted(set(ExitCode) - {ExitCode.USAGE})
    kinds = PUBLISHED["properties"]["schedule"]["items"]["properties"]["kind"]["description"]
    assert all(kind.value in kinds for kind in Kind)


def test_every_number_says_its_unit_or_what_it_counts() -> None:
    """A quantity whose name has no unit needs a description that says what it is; so does everything else."""
    missing = [
        name for name, one in PUBLISHED["properties"].items() if not ({"description", "$ref", "const"} & set(one))
    ]
    for kind, one in PUBLISHED["$defs"].items():
        missing += [
            f"{kind}.{name}"
            for name, part in one.get("properties", {}).items()
            if not ({"description", "$ref"} & set(part))
        ]
    assert missing == []


BREAKS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no verdict": lambda report: report.pop("verdict"),
    "a verdict of another world": lambda report: report.update(verdict="ok"),
    "a failure with the exit code of a pass": lambda report: report.update(exit_code=0),
    "an exit code for misuse": lambda report: report.update(exit_code=2),
    "a negative time": lambda report: report.update(elapsed_s=-1.0),
    "a seed that is a text": lambda report: report.update(seed="11"),
    "another schema": lambda report: report.update(schema="fleetd.burnin.report/2"),
    "a class of another world": lambda report: report["culprits"][0].update({"class": "cosmic"}),
    "a GPU without an id": lambda report: report["gpus"][0].update(gpu=""),
    "a rate without a unit": lambda report: report["tests"][3]["rates"].update(speed=1.0),
    "a bit that is no number": lambda report: report["signatures"][0].update(elements={"bits": {"x": 1}}),
    "a checksum cut short": lambda report: report["signatures"][0].update(got=["12"]),
    "a signature that nobody can repeat": lambda report: report["signatures"][0].pop("reproduce"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_report_that_breaks_it_is_refused(name: str) -> None:
    report = json.loads(next(path for path in GOLDEN if path.stem == "h200-x2-inject-f03").read_text())
    BREAKS[name](report)
    assert complaints(report)


def test_what_is_added_later_does_not_break_it() -> None:
    report = json.loads(GOLDEN[0].read_text()) | {"new": {"of": "next year"}}
    report["gpus"][0]["fan_ratio"] = 0.5
    assert complaints(report) == []
