"""The record of exposure: added up, whole at any moment, never trusted when it is damaged."""

import json
import multiprocessing
from pathlib import Path

import pytest

from burnin.exposure import ExposureError, add, exposure_of, read
from tests.burnin.judge_evidence import EXACT, FLOAT, evidence, votes


def test_exposure_is_the_time_of_launches_that_count() -> None:
    told = evidence(2, casts=votes(2, {}) + votes(2, {}, iteration=2) + votes(2, {}, test=FLOAT))
    assert exposure_of(told) == {
        ("gpu0", EXACT): 2.0, ("gpu1", EXACT): 2.0, ("gpu0", FLOAT): 1.0, ("gpu1", FLOAT): 1.0,
    }  # fmt: skip
    assert exposure_of(evidence(2)) == {}


def test_what_was_added_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "exposure.json"
    assert read(path) == {}
    assert add(path, {("GPU-0", "int"): 1.5}) == ""
    assert add(path, {("GPU-0", "int"): 2.0, ("GPU-1", "int"): 1.0}) == ""
    assert read(path) == {("GPU-0", "int"): 3.5, ("GPU-1", "int"): 1.0}
    assert [one.name for one in tmp_path.iterdir()] == ["exposure.json"]


def _add_many(path: Path) -> None:
    for _ in range(20):
        add(path, {("GPU-0", "int"): 1.0})


def test_two_that_add_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "exposure.json"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add_many, args=(path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert read(path) == {("GPU-0", "int"): 40.0}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": "other", "seconds": {}}',
        '{"schema": "fleetd.burnin.exposure/1", "seconds": {"g": {"t": -1}}}',
        '{"schema": "fleetd.burnin.exposure/1", "seconds": {"g": {"t": NaN}}}',
        '{"schema": "fleetd.burnin.exposure/1", "seconds": {"g": 1}}',
    ],
)
def test_a_damaged_record_is_put_aside_and_told(text: str, tmp_path: Path) -> None:
    path = tmp_path / "exposure.json"
    path.write_text(text)
    with pytest.raises(ExposureError, match="no record of exposure"):
        read(path)
    assert "put aside as exposure.json.damaged" in add(path, {("GPU-0", "int"): 1.0})
    assert read(path) == {("GPU-0", "int"): 1.0}
    assert (tmp_path / "exposure.json.damaged").read_text() == text


def test_a_host_whose_gpus_change_for_years_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "exposure.json"
    add(path, {(f"GPU-{n}", "int"): 1.0 for n in range(400)})
    assert len(json.loads(path.read_text())["seconds"]) == 256
