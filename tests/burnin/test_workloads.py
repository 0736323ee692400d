from dataclasses import replace

import pytest
import torch

from burnin.checksum import text
from burnin.keys import derive
from burnin.spec import Ballot, Case, Inject
from burnin.workloads import Context, Workload
from burnin.workloads.gemm import GemmExact, GemmVote
from burnin.workloads.launches import poison, strict_math, tally
from burnin.workloads.plans import ACCUMULATOR_BITS, DTYPES, SHAPE_LONG_8, Plan, exact_plans, vote_plans
from burnin.workloads.step import SIZE_CPU, Step

CPU = torch.device("cpu")
WORKLOADS = {"gemm.exact": GemmExact, "gemm.vote": GemmVote, "step": Step}


def context(inject: Inject | None = None) -> Context:
    return Context(backend="sim", device=CPU, inject=inject, alive=lambda: None)


def cases_of(test: str) -> tuple[Case, ...]:
    workload: Workload = WORKLOADS[test]()
    return workload.cases(context())


CASES = [case for test in WORKLOADS for case in cases_of(test)]
IDS = [f"{case.test} {case.name}" for case in CASES]
EXACT = [case for case in CASES if case.exact]


def ballot(case: Case, *, seed: int = 3, launches: int = 3, inject: Inject | None = None) -> Ballot:
    return WORKLOADS[case.test]().ballot(context(inject), case, iteration=2, seed=seed, launches=launches)


def same_bits(one: Ballot, other: Ballot) -> bool:
    return replace(one, elapsed_s=0.0) == replace(other, elapsed_s=0.0)


def test_case_names_are_unique_and_belong_to_their_test() -> None:
    names = [(case.test, case.name) for case in CASES]
    assert len(set(names)) == len(names)
    assert {case.test for case in CASES} == set(WORKLOADS)
    assert all(case.rate_name.endswith("_flops_per_second") and " " not in case.rate_name for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_same_seed_gives_the_same_ballot_and_another_seed_another(case: Case) -> None:
    one = ballot(case)
    assert same_bits(one, ballot(case))
    assert one.fingerprints != ballot(case, seed=4).fingerprints
    (fingerprint, count) = one.fingerprints[0]
    assert (len(one.fingerprints), len(fingerprint), count, one.launches) == (1, 16, 3, 3)
    assert (one.case, one.iteration, one.seed, one.fired) == (case.name, 2, 3, 0)
    assert min(one.bytes, one.flops, one.elapsed_s) > 0


@pytest.mark.parametrize("case", EXACT, ids=[case.name for case in EXACT])
def test_the_golden_is_what_a_sane_device_gives(case: Case) -> None:
    for seed in range(4):
        proof = GemmExact().prove(context(), case, seed=seed)
        assert proof.fingerprint == ballot(case, seed=seed).fingerprints[0][0], proof.why
        assert "proved" in proof.why


@pytest.mark.parametrize("fault", ["F01", "F03", "F04", "F10", "F11", "F13"])
@pytest.mark.parametrize("case", EXACT, ids=[case.name for case in EXACT])
def test_a_broken_prover_is_refuted(case: Case, fault: str) -> None:
    broken = Inject(gpu=0, fault=fault, rate=1, seed=1)
    proof = GemmExact().prove(context(broken), case, seed=3)
    assert proof.fingerprint is None
    assert "row" in proof.why


@pytest.mark.parametrize("case", [case for case in CASES if not case.exact], ids=lambda case: case.name)
def test_only_exact_cases_have_a_golden(case: Case) -> None:
    with pytest.raises(ValueError, match="no golden"):
        WORKLOADS[case.test]().prove(context(), case, seed=1)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_persistent_fault_gives_one_wrong_result(case: Case) -> None:
    struck = ballot(case, inject=Inject(gpu=0, fault="F03", rate=1, seed=1))
    assert struck.fired == 3
    assert len(struck.fingerprints) == 1
    assert struck.fingerprints != ballot(case).fingerprints


def test_an_intermittent_fault_shows_as_a_second_fingerprint_and_names_its_tile() -> None:
    case = CASES[0]
    good = ballot(case, launches=40)
    struck = ballot(case, launches=40, inject=Inject(gpu=0, fault="F03", rate=0.3, seed=1))
    counts = dict(struck.fingerprints)
    assert counts[good.fingerprints[0][0]] == 40 - struck.fired
    assert 0 < struck.fired < 40
    assert len(counts) == 2
    different = [number for number, pair in enumerate(zip(good.tiles, struck.tiles, strict=True)) if pair[0] != pair[1]]
    assert struck.fingerprints[0][0] == good.fingerprints[0][0]  # with this seed the first launch is not struck
    assert len(different) == 1


def test_a_retest_draws_anew_because_launches_are_counted_over_the_run() -> None:
    workload, case = GemmExact(), CASES[0]
    ctx = context(Inject(gpu=0, fault="F04", rate=0.3, seed=1))
    fired = [workload.ballot(ctx, case, iteration=0, seed=3, launches=10).fingerprints for _ in range(3)]
    assert len(set(fired)) > 1


def test_clean_launches_between_planted_ones_are_clean() -> None:
    workload, case = GemmExact(), CASES[0]
    planted = context(Inject(gpu=0, fault="F11", rate=1, seed=1))
    clean = workload.ballot(context(), case, iteration=0, seed=3, launches=2)
    struck = workload.ballot(planted, case, iteration=0, seed=3, launches=2)
    again = workload.ballot(context(), case, iteration=0, seed=3, launches=2)
    assert same_bits(clean, again)
    assert struck.fingerprints != clean.fingerprints


@pytest.mark.parametrize("seed", range(8))
def test_the_first_operation_that_differs_is_the_one_that_was_struck(seed: int) -> None:
    case = cases_of("step")[0]
    good, bad = ballot(case), ballot(case, inject=Inject(gpu=0, fault="F11", rate=1, seed=seed))
    operations = SIZE_CPU.operations()
    first = next(name for (name, one), (_, other) in zip(good.trace, bad.trace, strict=True) if one != other)
    assert first == operations[derive(seed, "op") % len(operations)]
    assert [name for name, _ in good.trace] == list(SIZE_CPU.trace())


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(ValueError, match="no case"):
        ballot(replace(CASES[0], name="fp4 library 1x1x1"))


def test_magnitudes_keep_sums_in_the_accumulator() -> None:
    shapes = [(8192, 8192, 8192), (4096, 14336, 4096), (1023, 777, 2049), (256, 192, 320)]
    for dtype in DTYPES:
        for m, k, n in shapes:
            plan = Plan(dtype=dtype, path="library", m=m, k=k, n=n, rounded=False)
            limit = 2 ** ACCUMULATOR_BITS.get(dtype, 24)
            assert plan.magnitude >= 1
            assert k * plan.magnitude**2 <= limit
    assert Plan(dtype="fp16", path="library", m=1, k=8192, n=1, rounded=True).magnitude == 15
    assert Plan(dtype="bf16", path="library", m=1, k=8192, n=1, rounded=False).magnitude == 45


def test_long_sums_of_random_bytes_fit_their_accumulator() -> None:
    assert SHAPE_LONG_8[1] * 128**2 < 2**31


def test_the_table_of_plans_is_read_once() -> None:
    class Counted(GemmVote):
        asked = 0

        def _plans(self, ctx: Context) -> tuple[Plan, ...]:
            self.asked += 1
            return super()._plans(ctx)

    workload, case = Counted(), cases_of("gemm.vote")[0]
    one, two = (workload.ballot(context(), case, iteration=0, seed=seed, launches=2) for seed in (1, 2))
    assert workload.asked == 1
    assert one.tiles != two.tiles
    assert all(0 <= value < 2**64 for value in one.tiles)


def test_plans_of_the_stand_ins_need_no_gpu() -> None:
    assert exact_plans("cpu", CPU) == exact_plans("sim", CPU)
    assert vote_plans("cpu", CPU) == vote_plans("sim", CPU)
    assert any(plan.rounded for plan in exact_plans("sim", CPU))


def test_poison_is_no_possible_result() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn):
        value = torch.zeros(4, 4, dtype=dtype)
        poison(value)
        assert bool(torch.isnan(value.to(torch.float32)).all())
    whole = torch.zeros(4, 4, dtype=torch.int32)
    poison(whole)
    assert int(whole.min()) > 2**30


def test_tally_counts_in_order_of_appearance() -> None:
    assert tally([7, 7, 9, 7, 8, 7]) == (((text(7), 4), (text(9), 1), (text(8), 1)), 4)
    assert tally([7, 7]) == (((text(7), 2),), 0)


def test_math_settings_are_put_back() -> None:
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    with strict_math(tf32=not before):
        assert matmul.allow_tf32 is not before
        assert not matmul.allow_bf16_reduced_precision_reduction
    assert matmul.allow_tf32 is before
