from dataclasses import replace

import pytest
import torch

from burnin.processes import wire
from burnin.spec import Case, Inject
from burnin.workloads import Context
from burnin.workloads import units as module
from burnin.workloads.units import STAND_IN_UNITS, SmVote


def context(inject: Inject | None = None) -> Context:
    return Context(backend="sim", device=torch.device("cpu"), inject=inject, alive=lambda: None)


CASES = SmVote().cases(context())
BROKEN = context(Inject(gpu=0, fault="F03", rate=1, seed=1))
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
def test_a_sane_chip_agrees_with_itself_and_with_the_cpu(case: Case) -> None:
    ballot = SmVote().ballot(context(), case, iteration=0, seed=3, launches=3)
    proof = SmVote().prove(context(), case, seed=3)
    assert ballot.fingerprints == ((proof.fingerprint, 3),)
    assert [name for name, _ in ballot.trace] == [f"sm{n:03d}" for n in range(STAND_IN_UNITS)]
    assert len({value for _, value in ballot.trace}) == 1
    assert (ballot.launches, ballot.fired) == (3, 0)
    assert SmVote().ballot(context(), case, iteration=0, seed=4, launches=3).fingerprints != ballot.fingerprints
    assert SmVote().examine(context(), case, seed=3, launches=2, right=None, tiles=()) is None


@each_case
def test_one_broken_unit_is_named(case: Case) -> None:
    good = SmVote().ballot(context(), case, iteration=0, seed=3, launches=2)
    bad = SmVote().ballot(BROKEN, case, iteration=0, seed=3, launches=2)
    assert bad.fired == 2
    assert len(bad.fingerprints) == 1
    assert bad.fingerprints != good.fingerprints
    different = [one[0] for one, other in zip(bad.trace, good.trace, strict=True) if one != other]
    assert len(different) == 1
    proof = SmVote().prove(BROKEN, case, seed=3)
    assert proof.fingerprint is None
    assert different[0] in proof.why
    elements = SmVote().examine(BROKEN, case, seed=3, launches=2, right=None, tiles=())
    assert elements is not None
    assert elements.count > 0


def test_a_unit_that_nobody_visited_makes_the_ballot_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_unit_count", lambda _ctx: STAND_IN_UNITS + 1)
    ballot = SmVote().ballot(context(), CASES[0], iteration=0, seed=3, launches=3)
    assert (ballot.launches, ballot.bytes, ballot.made) == (0, 0, 3)
    assert wire.ballot(wire.decode(wire.encode(wire.plain(ballot)))) == ballot  # and it is no crash of its process


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(ValueError, match="no case"):
        SmVote().prove(context(), replace(CASES[0], name="x"), seed=1)
