"""Bounds that every right result keeps: who broke one is bad, unless everybody did."""

from dataclasses import replace

import pytest
import torch

from burnin.asking import retests_needed
from burnin.spec import FaultClass, Inject, Verdict
from burnin.verdict.evidence import Cast
from burnin.verdict.judge import judge
from burnin.workloads import Context
from burnin.workloads.eigh import Eigh
from tests.burnin.judge_evidence import BAD, FLOAT, GOOD, WORSE, Results, blamed, evidence, retested, votes


def beyond(casts: tuple[Cast, ...], *gpus: int, launches: int = 4) -> tuple[Cast, ...]:
    """The casts, with `launches` of these GPUs outside of the bound."""
    names = {f"gpu{gpu}" for gpu in gpus}
    return tuple(
        replace(cast, ballot=replace(cast.ballot, outside=launches)) if cast.gpu in names else cast for cast in casts
    )


@pytest.mark.parametrize("count", [2, 3, 8])
def test_one_of_several_is_persistent_when_it_does_it_again(count: int) -> None:
    wrong: Results = {0: BAD}
    casts = beyond(votes(count, wrong, test=FLOAT) + retested(count, wrong, test=FLOAT), 0)
    result = judge(evidence(count, casts=casts))
    assert blamed(result) == {"gpu0": FaultClass.CHIP_PERSISTENT}
    assert [gpu.verdict for gpu in result.gpus].count(Verdict.PASS) == count - 1


def test_it_needs_no_vote_where_keys_differ() -> None:
    casts = beyond(votes(3, {}, test=FLOAT) + retested(3, {}, test=FLOAT), 2)
    assert blamed(judge(evidence(3, keys="abc", casts=casts))) == {"gpu2": FaultClass.CHIP_PERSISTENT}


def test_once_is_transient_and_asks_for_a_retest() -> None:
    casts = beyond(votes(2, {1: ((GOOD, 3), (BAD, 1))}, test=FLOAT), 1, launches=1)
    assert retests_needed(evidence(2, casts=casts)) == ((FLOAT, "c", 1),)
    result = judge(evidence(2, casts=casts + retested(2, {}, test=FLOAT)))
    assert blamed(result) == {"gpu1": FaultClass.CHIP_TRANSIENT}
    assert result.culprits[0].strikes == 1
    assert "1 of 4 launches are outside of the bound" in result.culprits[0].why


@pytest.mark.parametrize(("count", "bad"), [(2, (0, 1)), (8, range(8)), (8, range(5)), (3, (0, 1))])
def test_most_at_once_is_the_library_even_when_all_agree(count: int, bad: range) -> None:
    wrong: Results = dict.fromkeys(bad, BAD)
    casts = beyond(votes(count, wrong, test=FLOAT) + retested(count, wrong, test=FLOAT), *bad)
    result = judge(evidence(count, casts=casts))
    assert (result.verdict, blamed(result)) == (Verdict.FAIL, {})
    assert result.tests[0].fault is FaultClass.CONFIGURATION


def test_a_whole_kind_at_once_is_its_library() -> None:
    casts = beyond(votes(8, {6: BAD, 7: BAD}, test=FLOAT), 6, 7)
    assert blamed(judge(evidence(8, keys="aaaaaabb", casts=casts))) == {}
    differ = beyond(votes(8, {6: BAD, 7: WORSE}, test=FLOAT), 6, 7)
    assert set(blamed(judge(evidence(8, casts=differ)))) == {"gpu6", "gpu7"}


def test_most_gpus_unsteady_excuses_nobody_who_breaks_a_bound() -> None:
    mixed: Results = dict.fromkeys(range(3), ((GOOD, 3), (BAD, 1)))
    casts = beyond(votes(4, mixed, test=FLOAT) + retested(4, mixed, test=FLOAT), 2, launches=1)
    assert set(blamed(judge(evidence(4, casts=casts)))) == {"gpu2"}


def test_a_gpu_that_is_alone_is_blamed_when_the_library_kept_the_bound_elsewhere() -> None:
    always = beyond(votes(1, {}, test=FLOAT) + retested(1, {}, test=FLOAT), 0)
    result = judge(evidence(1, casts=always))
    assert (result.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})
    assert "it may be the library" in result.why
    inside = votes(1, {}, test=FLOAT, iteration=2, seed=2)
    assert blamed(judge(evidence(1, casts=always + inside))) == {"gpu0": FaultClass.CHIP_PERSISTENT}


@pytest.mark.parametrize(("fault", "outside"), [(None, 0), ("F12", 3), ("F10", 3)])
def test_eigh_counts_launches_outside_after_the_fault_struck(fault: str | None, outside: int) -> None:
    inject = Inject(gpu=0, fault=fault, rate=1.0, seed=1) if fault else None
    ctx = Context(backend="sim", device=torch.device("cpu"), inject=inject, alive=lambda: None)
    workload = Eigh()
    for case in workload.cases(ctx):
        cast = workload.ballot(ctx, case, iteration=0, seed=3, launches=3)
        assert (cast.outside, cast.trace[-1][0]) == (outside, "bounds")
