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


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("world", "shape"), [(1, "plain"), (4, "ddp"), (4, "fsdp2")])
def test_every_fault_gets_its_class_and_its_culprit(tmp_path: Path, world: int, shape: str) -> None:
    gang = harness()
    told = gang.run_trials(tmp_path, world, shape, trials=1, seed=11, kinds=list(gang.RIGHT))
    assert len(told) == len(gang.RIGHT) - (2 if world == 1 else 0)
    assert [one for one in map(gang.mistake, told) if one] == []
    assert all(not one["unchecked"] for one in told)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("shape", ["ddp", "fsdp2"])
def test_a_rank_that_dies_in_a_replay_leaves_the_others_unchecked_and_never_hanging(tmp_path: Path, shape: str) -> None:
    gang = harness()
    (told,) = gang.run_trials(tmp_path, 3, shape, trials=1, seed=1, kinds=["death"])
    assert told["loss"] > 0
    assert told["findings"] == []
    assert told["unchecked"] != {}
    assert told["last_verified_step"] in {None, told["steps"] - 2}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("shape", ["ddp", "fsdp2"])
def test_what_one_rank_cannot_check_none_does_and_all_go_on(tmp_path: Path, shape: str) -> None:
    gang = harness()
    (told,) = gang.run_trials(tmp_path, 2, shape, trials=1, seed=1, kinds=["starved"])
    assert told["findings"] == []
    assert list(told["unchecked"].values()) == [1]
    assert told["notes"] == []
    assert told["last_verified_step"] == told["steps"]
