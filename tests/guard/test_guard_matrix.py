"""The injection matrix, in short: every kind of fault once in each kind of job. `make bench-guard`: at length."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest


def harness() -> Any:
    path = Path(__file__).with_name("gang_guard.py")
    spec = importlib.util.spec_from_file_location("gang_guard", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gang_guard"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(900)
def test_every_fault_gets_its_class_and_its_culprit(tmp_path: Path) -> None:
    gang = harness()
    kinds = list(gang.RIGHT)
    told = gang.run_trials(tmp_path, (1, "plain", kinds), (4, "ddp,fsdp2", kinds), trials=1, seed=11)
    assert len(told) == 3 * len(kinds) - 2
    assert [one for one in map(gang.mistake, told) if one] == []
    assert all(not one["unchecked"] for one in told)


@pytest.mark.timeout(900)
def test_a_rank_that_fails_in_a_check_leaves_the_others_unchecked_and_never_hanging(tmp_path: Path) -> None:
    gang = harness()
    starved, ddp, fsdp2, hsdp, *died = gang.run_trials(
        tmp_path, (2, "fsdp2", ["starved"]), (4, "ddp,fsdp2,hsdp", ["broken"]),
        (3, "ddp", ["death"]), (3, "fsdp2", ["death"]), trials=1, seed=1,
    )  # fmt: skip
    what_one_rank_cannot_check_none_does_and_all_go_on(starved)
    for told, breaks in ((ddp, 4), (fsdp2, 7), (hsdp, 7)):
        a_replay_that_breaks_off_on_one_rank_is_ended_at_once_and_training_goes_on_as_if_it_had_not_been(told, breaks)
    for told in died:
        a_rank_that_dies_in_a_replay_leaves_the_others_unchecked(told)


def what_one_rank_cannot_check_none_does_and_all_go_on(told: dict[str, Any]) -> None:
    assert told["findings"] == []
    assert list(told["unchecked"].values()) == [1]
    assert told["notes"] == []
    assert told["last_verified_step"] == told["steps"]


def a_replay_that_breaks_off_on_one_rank_is_ended_at_once_and_training_goes_on_as_if_it_had_not_been(
    told: dict[str, Any], breaks: int
) -> None:
    assert told["findings"] == []
    assert told["unchecked"] == {"the replay failed on rank 3": breaks}
    assert told["of_plain"] == {}
    assert told["as_unbroken"] is True
    assert told["last_verified_step"] == told["steps"]
    assert told["slowest_s"] < 60, "far below every deadline, of which the shortest is 120 s"


def a_rank_that_dies_in_a_replay_leaves_the_others_unchecked(told: dict[str, Any]) -> None:
    assert told["loss"] > 0
    assert told["findings"] == []
    assert told["unchecked"] != {}
    assert told["last_verified_step"] in {None, told["steps"] - 2}
