"""A GPU that is alone, and the CPU that accuses it: two cores have to say the same (F21)."""

import os
from dataclasses import replace

import pytest

from burnin.asking import opinions_needed
from burnin.spec import FaultClass, Verdict
from burnin.verdict.evidence import Evidence, Shown
from burnin.verdict.judge import judge
from burnin.verdict.opinions import witnesses
from burnin.workloads import hostcpu
from tests.burnin.judge_evidence import BAD, EXACT, GOOD, blamed, evidence, proof, votes


def by(core: int, fingerprint: str | None) -> Shown:
    shown = proof(0, fingerprint, retest=True)
    return replace(shown, proof=replace(shown.proof, core=core))


def alone(*proofs: Shown, said: str = GOOD, cores: tuple[int, ...] = (4, 7)) -> Evidence:
    casts = votes(1, {0: said}, iteration=0) + votes(1, {0: said}, retest=True)
    return evidence(1, casts=casts, proofs=proofs, cores=cores)


@pytest.mark.parametrize("said", [None, BAD])
def test_an_accusation_is_checked_by_two_cores(said: str | None) -> None:
    known = alone(proof(0, said))
    assert opinions_needed(known) == (((EXACT, "c", 1), 4), ((EXACT, "c", 1), 7))
    result = judge(known)
    assert (result.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})
    assert "no second core of the host's CPU confirms it" in result.why


def test_nothing_is_asked_as_long_as_the_gpu_is_right_or_has_company() -> None:
    assert opinions_needed(alone(proof(0, GOOD))) == ()
    assert judge(alone(proof(0, GOOD))).verdict is Verdict.PASS
    company = evidence(2, casts=votes(2, {}, iteration=0), proofs=(proof(0, None),), cores=(4, 7))
    assert opinions_needed(company) == ()
    assert opinions_needed(alone(proof(0, None), cores=())) == ()


def test_two_cores_convict() -> None:
    known = alone(proof(0, None), by(4, None), by(7, None), said=BAD)
    assert opinions_needed(known) == ()
    assert set(blamed(judge(known))) == {"gpu0"}
    golden = alone(proof(0, GOOD), by(4, GOOD), by(7, GOOD), said=BAD)
    assert blamed(judge(golden)) == {"gpu0": FaultClass.CHIP_PERSISTENT}


@pytest.mark.parametrize("first", [None, BAD])
def test_a_core_that_stands_alone_accuses_in_vain(first: str | None) -> None:
    result = judge(alone(proof(0, first), by(4, first), by(7, GOOD)))
    assert (result.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})


def test_one_core_twice_is_one_core() -> None:
    assert blamed(judge(alone(proof(0, None), by(4, None), by(4, None)))) == {}


def test_witnesses_are_two_different_cores_by_the_seed() -> None:
    assert witnesses({3}, seed=1) == ()
    chosen = {witnesses(range(8), seed=seed) for seed in range(20)}
    assert len(chosen) > 5
    assert all(len(set(cores)) == 2 for cores in chosen)
    assert witnesses({5, 2}, seed=1) == witnesses({2, 5}, seed=1)


def test_only_one_core_works_and_all_are_given_back() -> None:
    allowed = os.sched_getaffinity(0)
    core = max(allowed)
    with hostcpu.only(core):
        assert os.sched_getaffinity(0) == {core}
    with pytest.raises(OSError, match="argument"), hostcpu.only(4095):
        pass
    assert os.sched_getaffinity(0) == allowed
