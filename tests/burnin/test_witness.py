"""The CPU that proves the goldens may be the broken one: then no GPU is blamed by it, and none passes by it."""

import pytest

from burnin.spec import FaultClass, Verdict
from burnin.verdict.evidence import Evidence
from burnin.verdict.judge import judge
from tests.burnin.judge_evidence import BAD, EXACT, FLOAT, GOOD, blamed, evidence, proof, retested, votes


def doubted(known: Evidence, words: str) -> None:
    result = judge(known)
    assert (result.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})
    assert result.why.startswith("host CPU: ")
    assert words in result.why
    assert {gpu.verdict for gpu in result.gpus} == {Verdict.NOT_JUDGED}
    assert {test.test: test.verdict for test in result.tests}[EXACT] is Verdict.NOT_JUDGED


def test_its_own_test_voids_proofs() -> None:
    doubted(evidence(2, casts=votes(2, {}), proofs=(proof(0, GOOD),), host_cpu="cores 0 and 1 differ"), "cores 0 and 1")


def test_a_majority_needs_no_proof() -> None:
    result = judge(evidence(8, casts=votes(8, {1: BAD}) + votes(8, {}, test=FLOAT), host_cpu="cores 0 and 1 differ"))
    assert (result.verdict, set(blamed(result))) == (Verdict.FAIL, {"gpu1"})
    assert "host CPU: cores 0 and 1 differ" in result.why
    assert {test.test: test.verdict for test in result.tests} == {EXACT: Verdict.FAIL, FLOAT: Verdict.PASS}


@pytest.mark.parametrize("count", [2, 8])
def test_it_confirmed_nothing_that_all_agree_on(count: int) -> None:
    casts = votes(count, {}, iteration=0) + votes(count, {}, iteration=0, seed=2)
    proofs = tuple(proof(gpu, None, seed=seed) for gpu in range(count) for seed in (1, 2))
    doubted(evidence(count, casts=casts, proofs=proofs), f"none of 2 results that all {count} GPUs agree on")


def test_one_confirmation_makes_it_a_witness_again() -> None:
    casts = votes(2, {}, iteration=0) + votes(2, {}, iteration=0, seed=2)
    result = judge(evidence(2, casts=casts, proofs=(proof(0, None), proof(1, None), proof(0, GOOD, seed=2))))
    assert (result.verdict, blamed(result)) == (Verdict.FAIL, {})
    assert result.tests[0].fault is FaultClass.CONFIGURATION


@pytest.mark.parametrize("count", [2, 8])
def test_it_proved_what_nobody_computed(count: int) -> None:
    casts = votes(count, {}, iteration=0)
    doubted(evidence(count, casts=casts, proofs=(proof(0, BAD),)), f"none of {count} GPUs gave")


def test_a_single_gpu_has_nobody_to_agree_with() -> None:
    casts = votes(1, {}, iteration=0) + retested(1, {})
    result = judge(evidence(1, casts=casts, proofs=(proof(0, None), proof(0, None, seed=106, retest=True))))
    assert blamed(result) == {"gpu0": FaultClass.CHIP_PERSISTENT}


def test_gpus_that_disagree_are_no_alibi() -> None:
    casts = votes(2, {1: BAD}, iteration=0)
    result = judge(evidence(2, casts=casts, proofs=(proof(0, None), proof(1, None))))
    assert set(blamed(result)) == {"gpu0", "gpu1"}
