"""Workloads over a simulated fabric, and what the evidence of wrong transfers amounts to."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

from burnin.collectives.algorithms import ALGORITHMS, LOOPBACK, algorithm_of
from burnin.collectives.checks import DISTINCT
from burnin.collectives.copies import Copy
from burnin.collectives.fabric import OPS, Contribution, Simulated
from burnin.collectives.reduce import CollectiveExact, CollectiveRepro
from burnin.coverage.host import Healthy
from burnin.coverage.plan import trials
from burnin.coverage.trials import carry_out, suite
from burnin.inject import Scene, scene
from burnin.spec import Ballot, Case, Device, FaultClass, Inject, Proof, Verdict
from burnin.tests import TESTS
from burnin.verdict.evidence import Cast, Evidence, Shown
from burnin.verdict.judge import Judgement, judge
from burnin.verdict.links import CLEAN
from burnin.workloads import Context, Workload

WORKLOADS: tuple[type[Workload], ...] = (CollectiveExact, CollectiveRepro, Copy)
GOOD = ((f"{CLEAN:016x}", 4),)


def context(inject: Inject | None = None, fabric: Simulated | None = None) -> Context:
    return Context(backend="sim", device=torch.device("cpu"), inject=inject, alive=lambda: None, fabric=fabric)


CASES = [(make, case) for make in WORKLOADS for case in make().cases(context())]
IDS = [f"{case.test} {case.name}" for _, case in CASES]


def cast(make: type[Workload], case: Case, ctx: Context, seed: int = 5) -> Ballot:
    with scene(Scene(case=case)):
        return make().ballot(ctx, case, iteration=0, seed=seed, launches=4)


@pytest.mark.parametrize(("make", "case"), CASES, ids=IDS)
@pytest.mark.parametrize("world", [2, 3, 8])
def test_what_arrives_on_a_sane_host_is_right_in_worlds_of_any_size(
    make: type[Workload], case: Case, world: int
) -> None:
    ballot = cast(make, case, context(fabric=Simulated(world)))
    assert ballot.fingerprints == GOOD
    assert {name for name, _ in ballot.trace} <= {DISTINCT, "bits"}
    assert min(ballot.bytes, ballot.flops, ballot.elapsed_s) > 0
    proof = make().prove(context(), case, seed=5)
    assert proof.fingerprint == GOOD[0][0]


@pytest.mark.parametrize(("make", "case"), [one for one in CASES if one[0] is not CollectiveRepro],
                         ids=[name for name in IDS if "repro" not in name])  # fmt: skip
@pytest.mark.parametrize("fault", ["F16", "F13", "F10", "F04"])
def test_any_damage_is_seen(make: type[Workload], case: Case, fault: str) -> None:
    for seed in range(3):
        ballot = cast(make, case, context(Inject(gpu=0, fault=fault, rate=1.0, seed=seed)))
        assert ballot.fired == 4
        assert GOOD[0][0] not in dict(ballot.fingerprints)
        assert ballot.trace


def test_a_float_result_out_of_the_bound_is_wrong_and_another_order_is_not() -> None:
    (bf16, fp32) = (c for c in CollectiveRepro().cases(context()) if c.name.startswith("all-reduce"))
    for case in (bf16, fp32):
        reordered = cast(CollectiveRepro, case, context(fabric=Simulated(8, reorder=True)))
        assert reordered.fingerprints == GOOD  # inside the bound of any order: nothing to hold against anybody
        assert int(dict(reordered.trace)[DISTINCT]) > 1
        assert dict(cast(CollectiveRepro, case, context()).trace)[DISTINCT] == "1"
        lost = cast(CollectiveRepro, case, context(Inject(gpu=0, fault="F10", rate=1.0, seed=1)))
        assert GOOD[0][0] not in dict(lost.fingerprints)
        nan = cast(CollectiveRepro, case, context(Inject(gpu=0, fault="F12", rate=1.0, seed=1)))
        assert GOOD[0][0] not in dict(nan.fingerprints)


class Idle(Simulated):
    """A library that returns at once."""

    def run(self, op: str, out: torch.Tensor, inputs: Contribution, *, root: int) -> None:
        pass


def test_a_collective_that_writes_nothing_is_no_wrong_result() -> None:
    for make, case in CASES:
        if make is not Copy:
            with pytest.raises(RuntimeError, match="nothing was computed"):
                cast(make, case, context(fabric=Idle(4)))


@pytest.mark.parametrize("order", range(1, 4))
def test_the_integers_of_every_dtype_are_free_of_order(order: int) -> None:
    """Each run of the reordering fabric adds in another order; all must give the bits of the float64 sum."""
    fabric = Simulated(8, reorder=True)
    for case in CollectiveExact().cases(context()):
        assert cast(CollectiveExact, case, context(fabric=fabric), seed=order).fingerprints == GOOD


def test_every_operation_and_dtype_runs_and_every_algorithm_is_named_by_its_cases() -> None:
    cases = CollectiveExact().cases(
        Context(backend="cuda", device=torch.device("cpu"), inject=None, alive=lambda: None)
    )
    default = {tuple(case.name.split()[:2]) for case in cases if algorithm_of(case.name, "cuda") == "default"}
    assert default == {(op, dtype) for op in OPS for dtype in ("int32", "fp32", "bf16", "fp16")}
    assert {algorithm_of(case.name, "cuda") for case in cases} == set(ALGORITHMS["cuda"])
    assert algorithm_of("pairs at once", "cuda") == "default"
    trees = {case.name.split()[0] for case in cases if "tree" in case.name}
    assert trees == {"all-reduce"}
    assert len({case.name for case in cases}) == len(cases)
    assert LOOPBACK["NCCL_NVLS_ENABLE"] == "0"
    assert not any("NVLS" in str(one.env) for one in ALGORITHMS["cuda"].values())


@pytest.mark.parametrize("without", ["copy", "collective.exact"])
def test_the_coverage_harness_finds_planted_faults_of_links_and_misses_them_without_the_tests(without: str) -> None:
    faults = {"copy": {"F16"}, "collective.exact": {"F17", "F18"}}[without]
    left_out = {test for test in TESTS if test not in {without, "int"}}
    healthy, planted = Healthy(), [trial for trial in trials(1, per_form=3) if trial.fault in faults]
    assert len(planted) >= 4
    for seen, patterns in ((True, left_out), (False, left_out | {without})):
        tests = suite(TESTS, "quick", healthy, tuple(patterns))
        for trial in planted:
            outcome = carry_out(trial, tests, healthy, seed=1, most=None)
            assert (outcome.detected, outcome.right, outcome.eligible) == (seen, seen, (without,) if seen else ())
            assert outcome.fault_class is (FaultClass.LINK if seen else FaultClass.NONE)


# --- from traces to a verdict ---

REDUCED = Case(test="collective.exact", name="all-reduce bf16", dtype="bf16", exact=True, rate_name="r")
MOVED = Case(test="collective.exact", name="all-to-all bf16", dtype="bf16", exact=True, rate_name="r")
COPIED = Case(test="copy", name="pairs alone", dtype="bytes", exact=True, rate_name="r")
REPEATED = Case(test="collective.repro", name="all-reduce bf16", dtype="bf16", exact=True, rate_name="r")
Traces = Mapping[Case, Mapping[int, tuple[tuple[str, str], ...]]]
RESULT = (("result", "3"),)


def verdict(traces: Traces, *, ranks: int = 8, host_cpu: str = "") -> Judgement:
    """Judge ballots that are clean but for the traces given: case → rank → trace."""
    devices = tuple(
        Device(gpu=f"G{n}", index=n, sku="s", sm_count=1, memory_bytes=1, vote_key="k") for n in range(ranks)
    )
    cases = (REDUCED, MOVED, COPIED, REPEATED)
    casts, proofs = [], []
    for case in cases:
        proof = Proof(case=case.name, seed=1, fingerprint=GOOD[0][0], why="known")
        proofs.append(Shown(gpu="G0", test=case.test, proof=proof))
        for rank, device in enumerate(devices):
            trace = traces.get(case, {}).get(rank, ())
            bad = any(name != DISTINCT for name, _ in trace)
            wrong = ((f"{sum(map(ord, str(trace))):016x}", 4),)
            ballot = Ballot(
                case=case.name,
                iteration=0,
                seed=1,
                launches=4,
                bytes=1,
                flops=1,
                elapsed_s=1.0,
                trace=trace,
                fingerprints=wrong if bad else GOOD,
            )
            casts.append(Cast(gpu=device.gpu, test=case.test, ballot=ballot))
    known = {(case.test, case.name): case for case in cases}
    evidence = Evidence(devices=devices, cases=known, quotas={}, casts=tuple(casts), proofs=tuple(proofs))
    return judge(replace(evidence, host_cpu=host_cpu))


def blamed(judgement: Judgement) -> dict[str, FaultClass]:
    return {gpu.gpu: gpu.fault for gpu in judgement.culprits}


LINK = FaultClass.LINK


def source(here: int, there: int, ranks: int = 8) -> tuple[str, str]:
    return (f"from +{(there - here) % ranks}", "1")


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_clean_host_passes(ranks: int) -> None:
    assert verdict({}, ranks=ranks).verdict is Verdict.PASS


def test_one_bad_link_names_both_of_its_ends_and_only_them() -> None:
    for there, here in ((2, 5), (7, 0), (0, 7)):
        for case in (COPIED, MOVED):
            judgement = verdict({case: {here: (source(here, there),)}})
            assert blamed(judgement) == {f"G{here}": LINK, f"G{there}": LINK}
            assert f"GPU {there} sends to GPU {here}" in judgement.why


def test_one_bad_endpoint_sends_or_receives_damage() -> None:
    for bad in range(8):
        others = [rank for rank in range(8) if rank != bad]
        sends = {rank: (source(rank, bad),) for rank in others}
        receives = {bad: tuple(source(bad, rank) for rank in others)}
        for cells in (sends, receives, sends | receives):
            assert blamed(verdict({COPIED: cells})) == {f"G{bad}": LINK}
        everyone = dict.fromkeys(range(8), RESULT)  # what it contributes damages the sums of all
        assert blamed(verdict({COPIED: sends, REDUCED: everyone})) == {f"G{bad}": LINK}


def test_one_ranks_wrong_result_is_that_rank() -> None:
    for bad in range(8):
        judgement = verdict({REDUCED: {bad: RESULT}, MOVED: {bad: (source(bad, (bad + 1) % 8),)}})
        assert blamed(judgement) == {f"G{bad}": LINK}
        assert judgement.verdict is Verdict.FAIL


def test_a_reduction_in_the_switch_blames_no_gpu() -> None:
    judgement = verdict({REDUCED: dict.fromkeys(range(8), RESULT)})
    assert (judgement.verdict, blamed(judgement)) == (Verdict.FAIL, {})
    assert "wrong on 8 of 8 GPUs alike: what reduces for all of them (the switch" in judgement.why
    assert {gpu.verdict for gpu in judgement.gpus} == {Verdict.NOT_JUDGED}
    some = verdict({REDUCED: dict.fromkeys(range(3, 7), RESULT)})  # a link of a ring spoils all behind it
    assert (some.verdict, blamed(some)) == (Verdict.FAIL, {})


def test_a_driver_that_breaks_all_pairs_blames_no_gpu() -> None:
    cells = {here: tuple(source(here, there) for there in range(8) if there != here) for here in range(8)}
    judgement = verdict({COPIED: cells})
    assert (judgement.verdict, blamed(judgement)) == (Verdict.FAIL, {})
    assert "IOMMU" in judgement.why
    assert next(test for test in judgement.tests if test.test == "copy").fault is FaultClass.CONFIGURATION


def test_one_gpus_way_to_the_host_and_the_hosts_memory_are_told_apart() -> None:
    assert blamed(verdict({COPIED: {3: (("from host", "1"), ("to host", "1"))}})) == {"G3": LINK}
    shared = verdict({COPIED: dict.fromkeys(range(8), (("from host", "1"),))})
    assert (shared.verdict, blamed(shared)) == (Verdict.FAIL, {})
    assert "the host's memory or its bus" in shared.why


def test_a_pattern_that_fits_several_gpus_is_not_judged() -> None:
    judgement = verdict({COPIED: {1: (source(1, 0),), 2: (source(2, 1),), 3: (source(3, 2),)}})
    assert (judgement.verdict, blamed(judgement)) == (Verdict.NOT_JUDGED, {})
    assert [gpu.gpu for gpu in judgement.gpus if gpu.verdict is Verdict.NOT_JUDGED] == ["G1", "G2"]


def test_another_order_of_a_sum_is_recorded_and_held_against_nobody() -> None:
    judgement = verdict({REPEATED: dict.fromkeys(range(8), ((DISTINCT, "3"),))})
    assert (judgement.verdict, blamed(judgement)) == (Verdict.PASS, {})
    repro = next(test for test in judgement.tests if test.test == "collective.repro")
    assert (repro.verdict, repro.fault) == (Verdict.PASS, FaultClass.COMM_NONDETERMINISM)
    assert "3 different results in 4 equal launches" in repro.why
    one = verdict({REPEATED: {2: ((DISTINCT, "3"),)}})
    assert (one.verdict, blamed(one)) == (Verdict.PASS, {})


def test_transfers_need_no_proof_of_the_hosts_cpu() -> None:
    cells = {rank: (source(rank, 4),) for rank in range(4)}
    assert blamed(verdict({COPIED: cells}, host_cpu="two cores differ")) == {"G4": LINK}
