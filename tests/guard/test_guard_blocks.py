"""What the benchmarks of the guard make of their measurements: the arithmetic, on numbers that are made up."""

import importlib.util
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "bench" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


guard_blocks, guard_peak = load("guard_blocks"), load("guard_peak")
EVERY, PEERS, STEP_S, CHECK_S, EXACT_S, QUIET = 20, 10, 0.05, 0.1, 0.3, 0.002


class Machine:
    """Steps take what they take, slower and slower; every seventh block meets a neighbour that doubles its time."""

    def __init__(self, *, neighbour: bool) -> None:
        self.now_s = 0.0
        self.checks = 0
        self._blocks: Iterator[int] = count()
        self._neighbour = neighbour

    def run(self, kind: str) -> tuple[float, str]:
        took_s = EVERY * STEP_S
        if kind != "plain":
            took_s *= 1 + QUIET
        if kind == "check":
            self.checks += 1
            took_s += CHECK_S
            if not self.checks % PEERS:
                kind = "exact"
                took_s += EXACT_S
        number = next(self._blocks)
        took_s *= 1 + 1e-4 * number
        if self._neighbour and number % 7 == 3:
            took_s *= 2
        self.now_s += took_s
        return took_s, kind

    def measured(self, seconds: float = 60.0) -> list[object]:
        found: list[object] = guard_blocks.blocks(self.run, least=PEERS, seconds=seconds, monotonic=lambda: self.now_s)
        return found


@pytest.mark.parametrize("neighbour", [False, True])
def test_a_check_costs_what_it_costs_whatever_drifts_and_whoever_disturbs(neighbour: bool) -> None:
    told = guard_blocks.overheads(Machine(neighbour=neighbour).measured(), every=EVERY, peer_every=PEERS)
    steps = (CHECK_S + EXACT_S / PEERS) / STEP_S
    slack = 0.3 if neighbour else 0.01
    assert told["quiet"] == pytest.approx(QUIET, abs=slack * 0.01)
    assert told["check_steps"] == pytest.approx(steps, rel=slack)
    assert guard_blocks.overhead(told, 20) == pytest.approx(QUIET + steps / 20, rel=slack)
    assert guard_blocks.overhead(told, 500) == pytest.approx(QUIET + steps / 500, rel=slack)


def test_it_ends_with_the_time_but_not_before_each_kind_was_there() -> None:
    machine = Machine(neighbour=False)
    found = machine.measured(seconds=0.0)
    assert len(found) == 2 * PEERS
    assert machine.checks == PEERS
    slow = Machine(neighbour=False)
    assert 2 * PEERS < len(slow.measured(seconds=60.0)) == 2 * slow.checks
    assert 60 <= slow.now_s < 64, "three blocks of about a second are the last"


def test_a_kind_that_never_comes_is_said_and_not_waited_for_without_end() -> None:
    found = guard_blocks.blocks(lambda kind: (1.0, kind), least=4, seconds=0.0, monotonic=lambda: 0.0)
    assert len(found) == 2 * 3 * 4
    with pytest.raises(ValueError, match="no block was measured that is exact"):
        guard_blocks.overheads(found, every=EVERY, peer_every=PEERS)


def test_what_is_there_at_the_peak() -> None:
    def event(action: str, addr: int, size: int) -> dict[str, object]:
        return {"action": action, "addr": addr, "size": size}

    events = [
        event("alloc", 1, 100), event("alloc", 2, 30), event("free_requested", 2, 30), event("free_completed", 2, 30),
        event("alloc", 2, 50), event("free_completed", 9, 4), event("alloc", 3, 5), event("alloc", 4, 5),
        event("free_completed", 1, 100), event("alloc", 1, 90),
    ]  # fmt: skip
    assert guard_peak.live_at_peak(events) == {100: 1, 50: 1, 5: 2}
    plain = {"allocated": 512, "requested": 100, "live": guard_peak.live_at_peak(events[:1])}
    guarded = {"allocated": 2048, "requested": 160, "live": guard_peak.live_at_peak(events)}
    assert guard_peak.difference(plain, guarded) == {
        "extra_bytes": 1536, "extra_requested_bytes": 60, "more": {50: 1, 5: 2}, "less": {},
    }  # fmt: skip
