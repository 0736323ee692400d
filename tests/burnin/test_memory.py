import time
from dataclasses import replace

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


RETENTION = "retention"


def holding() -> Context:
    return replace(context(), retention_s=4.0)


def test_retention_is_a_case_only_where_a_time_is_given() -> None:
    assert [case.name for case in Hbm().cases(holding())] == [*(case.name for case in CASES), RETENTION]
    assert RETENTION not in {case.name for case in CASES}


def test_what_leaks_only_while_it_is_held_is_found_by_retention_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit 9 of one word falls to zero whenever memory is left alone for a second."""
    chunks = [torch.zeros(CHUNK_WORDS_CPU, dtype=torch.int32) for _ in range(CHUNKS_CPU)]
    held: list[float] = []

    def hold(ctx: Context, seconds: float) -> None:
        del ctx
        held.append(seconds)
        chunks[1][77] &= ~(1 << 9)

    monkeypatch.setattr(memory, "_chunks", lambda _: chunks)
    monkeypatch.setattr(memory, "_hold", hold)
    for case in Hbm().cases(holding()):
        ballot = Hbm().ballot(holding(), case, iteration=0, seed=3, launches=2)
        right = Hbm().prove(holding(), case, seed=3).fingerprint
        assert right is not None
        counts = dict(ballot.fingerprints)
        if case.name == RETENTION:
            assert counts[right] == 1  # the second launch holds nothing
            assert len(counts) == 2
        else:
            assert ballot.fingerprints == ((right, 2),)
    assert held == [2.0, 2.0]  # once as it is, once inverted: the bit is a one in one of the two


def test_later_iterations_do_not_hold_again() -> None:
    case = next(case for case in Hbm().cases(holding()) if case.name == RETENTION)
    begun_s = time.monotonic()
    ctx = replace(context(), backend="cpu", retention_s=1e4)
    Hbm().ballot(ctx, case, iteration=1, seed=3, launches=2)
    assert time.monotonic() - begun_s < 250.0


def test_a_hold_waits_and_feeds_the_watchdog() -> None:
    fed: list[None] = []
    case = next(case for case in Hbm().cases(holding()) if case.name == RETENTION)
    ctx = Context(
        backend="cpu", device=torch.device("cpu"), inject=None, alive=lambda: fed.append(None), retention_s=0.8
    )
    begun_s = time.monotonic()
    ballot = Hbm().ballot(ctx, case, iteration=0, seed=3, launches=1)
    assert time.monotonic() - begun_s >= 0.8
    assert len(fed) > 4
    assert ballot.launches == 1
