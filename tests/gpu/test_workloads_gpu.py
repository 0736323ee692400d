"""On a real GPU: every case of the workloads runs, repeats itself, and the exact ones are proved on the CPU."""

import pytest
import torch

from burnin.spec import Inject
from burnin.workloads import Context
from burnin.workloads.gemm import GemmExact, GemmVote
from burnin.workloads.plans import exact_plans, vote_plans
from burnin.workloads.step import Step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def context(inject: Inject | None = None) -> Context:
    return Context(backend="cuda", device=torch.device("cuda:0"), inject=inject, alive=lambda: None)


EXACT = [plan.name for plan in exact_plans("cuda", torch.device("cuda:0"))] if torch.cuda.is_available() else []
VOTE = [plan.name for plan in vote_plans("cuda", torch.device("cuda:0"))] if torch.cuda.is_available() else []


@pytest.mark.parametrize("name", EXACT)
def test_every_exact_case_is_proved(name: str) -> None:
    workload, ctx = GemmExact(), context()
    case = next(case for case in workload.cases(ctx) if case.name == name)
    proof = workload.prove(ctx, case, seed=11)
    ballot = workload.ballot(ctx, case, iteration=0, seed=11, launches=5)
    assert ballot.fingerprints == ((proof.fingerprint, 5),), proof.why


@pytest.mark.parametrize("name", VOTE)
def test_every_vote_case_repeats_itself(name: str) -> None:
    workload, ctx = GemmVote(), context()
    case = next(case for case in workload.cases(ctx) if case.name == name)
    one, two = (workload.ballot(ctx, case, iteration=0, seed=11, launches=5) for _ in range(2))
    assert one.fingerprints == two.fingerprints
    assert len(one.fingerprints) == 1


def test_a_planted_fault_changes_rounded_outputs() -> None:
    workload, clean, struck = GemmVote(), context(), context(Inject(gpu=0, fault="F01", rate=1, seed=1))
    case = workload.cases(clean)[0]
    good = workload.ballot(clean, case, iteration=0, seed=11, launches=2)
    bad = workload.ballot(struck, case, iteration=0, seed=11, launches=2)
    assert bad.fired == 2
    assert bad.fingerprints != good.fingerprints
    assert sum(x != y for x, y in zip(good.tiles, bad.tiles, strict=True)) == 1


def test_a_step_repeats_itself() -> None:
    workload, ctx = Step(), context()
    ballot = workload.ballot(ctx, workload.cases(ctx)[0], iteration=0, seed=11, launches=5)
    assert len(ballot.fingerprints) == 1


@pytest.mark.parametrize(("rate", "compared"), [(1.0, 128 * 8192), (0.3, 8192 * 8192)])
def test_the_wrong_elements_of_a_large_product_are_found(rate: float, compared: int) -> None:
    workload, clean = GemmExact(), context()
    case = workload.cases(clean)[0]
    right = workload.ballot(clean, case, iteration=0, seed=11, launches=1).fingerprints[0][0]
    struck = context(Inject(gpu=0, fault="F03", rate=rate, seed=1))
    found = workload.examine(struck, case, seed=11, launches=100, right=right, tiles=())
    assert found is not None
    assert found.compared == compared  # the tiles of one row of them, or all that a right launch can be compared with
    assert len(found.bits) > 1
    assert found.period is not None
