"""What is said of planted faults that were not found: whether they fired, where, and why nobody noticed."""

from dataclasses import replace

from burnin.spec import Ballot, Case, Inject, Verdict
from burnin.verdict.evidence import Cast, Death, DeathKind, Evidence
from burnin.verdict.judge import judge
from burnin.verdict.links import CLEAN, DISTINCT
from tests.burnin.judge_evidence import FLOAT, blamed, evidence, votes

FAULT = Inject(gpu=1, fault="F05", rate=0.5, seed=1)


def over_links(*, fired: int) -> Evidence:
    """Three ranks of a float reduction, all inside their bounds; what GPU 1 received was struck."""
    base = evidence(3, injected=(FAULT,))
    case = Case(test="collective.repro", name="all-reduce", dtype="fp32", exact=True, rate_name="r")
    ballot = Ballot(
        case=case.name,
        iteration=0,
        seed=1,
        fingerprints=((f"{CLEAN:016x}", 4),),
        launches=4,
        bytes=1,
        flops=1,
        elapsed_s=1.0,
        trace=((DISTINCT, "1"),),
    )
    casts = tuple(
        Cast(gpu=device.gpu, test=case.test, ballot=replace(ballot, fired=fired if device.index == 1 else 0))
        for device in base.devices
    )
    return replace(base, cases={**base.cases, (case.test, case.name): case}, casts=casts)


def test_a_fault_inside_the_bound_of_a_float_reduction_is_told_as_that() -> None:
    result = judge(over_links(fired=3))
    assert (result.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})
    assert result.why == (
        "self-test missed: injected fault F05 on GPU 1 changed 3 launches unnoticed in collective.repro, "
        "which takes any result inside its bound for right"
    )


def test_a_fault_that_a_vote_should_have_seen_has_no_such_excuse() -> None:
    links = over_links(fired=3)
    casts = votes(3, {}, test=FLOAT)
    struck = tuple(replace(c, ballot=replace(c.ballot, fired=2)) if c.gpu == "gpu1" else c for c in casts)
    result = judge(replace(links, casts=links.casts + struck))
    assert result.why == (
        "self-test missed: injected fault F05 on GPU 1 changed 5 launches unnoticed in collective.repro, gemm.vote"
    )


def test_a_fault_that_killed_the_process_did_not_fail_to_fire() -> None:
    why = "RuntimeError: none of 20 launches wrote its output: nothing was computed"
    death = Death(gpu="gpu1", test="int", kind=DeathKind.CRASH, why=why)
    result = judge(evidence(3, casts=votes(3, {}), injected=(FAULT,), deaths=(death, death)))
    assert result.verdict is Verdict.NOT_JUDGED
    assert result.why == f"injected fault F05 on GPU 1 left no result: its process crashed: {why}"
