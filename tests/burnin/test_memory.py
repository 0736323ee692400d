import pytest
import torch

from burnin.spec import Case, Inject
from burnin.workloads import Context, memory
from burnin.workloads.memory import ADDRESS, CHUNK_WORDS_CPU, CHUNKS_CPU, MARCHES, RANDOM, SPACED, Hbm


def context(inject: Inject | None = None) -> Context:
    return Context(backend="sim", device=torch.device("cpu"), inject=inject, alive=lambda: None)


def planted(fault: str) -> Context:
    return context(Inject(gpu=0, fault=fault, rate=1, seed=1))


CASES = Hbm().cases(context())
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
def test_sound_memory_keeps_every_word(case: Case) -> None:
    ballot = Hbm().ballot(context(), case, iteration=0, seed=3, launches=2)
    proof = Hbm().prove(context(), case, seed=3)
    assert ballot.fingerprints == ((proof.fingerprint, 2),)
    assert ballot.bytes == 2 * 4 * CHUNKS_CPU * CHUNK_WORDS_CPU
    assert "every word" in proof.why
    assert Hbm().examine(context(), case, seed=3, launches=2, right=None, tiles=()) is None


@pytest.mark.parametrize("fault", ["F04", "F14", "F14.coupled", "F14.retention", "F15"])
@each_case
def test_broken_memory_is_found_and_located(case: Case, fault: str) -> None:
    good = Hbm().ballot(context(), case, iteration=0, seed=3, launches=1)
    bad = Hbm().ballot(planted(fault), case, iteration=0, seed=3, launches=2)
    if (
        bad.fired == 0
    ):  # a cell that sticks at what was written or a sector equal to its neighbour, is not seen by this pattern
        assert fault.startswith(("F14", "F15"))
        return
    assert {one for one, _ in bad.fingerprints} - {one for one, _ in good.fingerprints}
    proof = Hbm().prove(planted(fault), case, seed=3)
    elements = Hbm().examine(planted(fault), case, seed=3, launches=4, right=None, tiles=())
    if proof.fingerprint is None:
        assert "first at byte" in proof.why
    assert elements is None or elements.count > 0


@pytest.mark.parametrize("fault", ["F14", "F14.coupled", "F14.retention"])
def test_all_marches_together_find_each_kind_of_broken_cell(fault: str) -> None:
    refuted = [Hbm().prove(planted(fault), case, seed=3).fingerprint is None for case in CASES]
    assert any(refuted)


def test_a_check_that_sees_nothing_is_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(*arguments: object, **options: object) -> None:
        del arguments, options

    monkeypatch.setattr(memory, "_check", blind)
    with pytest.raises(RuntimeError, match="does not see a flipped bit"):
        Hbm().ballot(context(), CASES[0], iteration=0, seed=3, launches=1)


def test_the_patterns() -> None:
    start = (1 << 32) - 2
    assert memory.words(0, ADDRESS, 0, start, 4).tolist() == [0xFFFFFFFE, 0xFFFFFFFF, 1, 0]
    spaced = memory.words(5, SPACED, 3, 0, 40).tolist()
    assert [at for at, word in enumerate(spaced) if word == 5] == [3, 23]
    assert {word for word in spaced if word != 5} == {0xFFFFFFFA}
    assert len(set(memory.words(5, RANDOM, 0, 0, 1000).tolist())) == 1000
    assert {march.name for march in MARCHES} == {case.name for case in CASES}


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(ValueError, match="no case"):
        Hbm().prove(context(), Case(test="hbm", name="x", dtype="bytes", exact=True, rate_name="r"), seed=1)
