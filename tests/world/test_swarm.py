"""Worlds drawn from a seed: all checks hold, the same seed gives the same journal, a failure can be seen again."""

import os
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


HASH_SEEDS = ("0", "1")


def output(hash_seed: str, *arguments: str) -> bytes:
    """What a Python process prints in which sets and dictionaries of text have another order."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    ).stdout


def test_the_same_seed_gives_the_same_journal_whatever_the_hash_seed() -> None:
    code = (
        "import sys; from fleetd.world.swarm import run\n"
        "for seed in (3, 5): sys.stdout.buffer.write(run(seed).dump + b'end\\n')"
    )
    first, *others = (output(hash_seed, "-c", code) for hash_seed in HASH_SEEDS)
    journals = first.split(b"end\n")[:2]
    assert all(journal.count(b"\n") > 10 for journal in journals)
    assert len(set(journals)) == 2
    for other in others:
        assert other == first  # all bytes of all rows, not a digest of them


def test_the_same_seed_gives_the_same_day_on_the_terminal_whatever_the_hash_seed() -> None:
    demo = ("-m", "fleetd", "demo", "--world", "4", "--hours", "1", "--seed", "4")
    first, *others = (output(hash_seed, *demo) for hash_seed in HASH_SEEDS)
    assert first.count(b"\n") > 5
    for other in others:
        assert other == first


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
