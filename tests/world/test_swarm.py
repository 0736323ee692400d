"""Worlds drawn from a seed: all checks hold, the same seed gives the same journal, a failure can be seen again."""

import os
import re
import subprocess
import sys

import pytest

from fleetd.model.order import Quarantine
from fleetd.sim.gpu import Trouble
from fleetd.world import checks, swarm
from fleetd.world.__main__ import failure
from fleetd.world.world import World, WorldError
from tests.world.fakes_world import fleet

SEEDS = 20


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_drawn_world_keeps_what_must_hold(seed: int) -> None:
    assert failure(seed) == ""


def test_the_same_seed_gives_the_same_journal_whatever_the_hash_seed() -> None:
    code = "from fleetd.world.swarm import run; print([run(seed).fingerprint for seed in (3, 5, 8)])"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "2")
    }
    assert len(seen) == 1
    assert len(set(re.findall(r"[0-9a-f]{64}", seen.pop()))) == 3


def test_a_failure_is_reproduced_by_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    # A world without patience is broken: nothing has had the time to become well.
    monkeypatch.setattr(swarm, "CALM_SECONDS", 1.0)
    monkeypatch.setattr(swarm, "TROUBLED_SECONDS", 30.0)
    said = failure(7)
    assert said.splitlines()[-1] == f"reproduce: {sys.executable} -m fleetd.world --seed 7"
    assert len(said.splitlines()) > 1


def test_a_bug_in_a_process_ends_the_world_with_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(seed: int) -> World:
        world = fleet(seed=seed)
        world.at(60).do("a bug", lambda _: 1 / 0)
        return world

    monkeypatch.setattr(swarm, "draw", draw)
    said = failure(9)
    assert "at 60 s a process ended by itself: ZeroDivisionError" in said
    assert "Traceback" in said
    assert said.endswith("--seed 9")


def test_an_expectation_that_is_not_met_fails_the_world_in_words() -> None:
    world = fleet()
    world.at(600).plant("h02", 1, Trouble.LOST)
    world.expect(Quarantine, host="h02").between(0, 100)
    with pytest.raises(WorldError, match=r"expected Quarantine of h02 1 times between 0 and 100 s, found 0; .*60\d s"):
        world.run(seconds=900)


@pytest.mark.parametrize("name", [name for name in vars(checks) if name.startswith(("no_", "all_", "each_"))])
def test_every_check_has_a_name_that_says_what_holds(name: str) -> None:
    assert getattr(checks, name).__doc__
