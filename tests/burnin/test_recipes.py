"""Every test that consists of recipes, on a simulated GPU: repeatable, proved where exact, struck where planted."""

import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from burnin.inject import FAULTS, eligible
from burnin.spec import Ballot, Case, Inject
from burnin.tests import TESTS
from burnin.workloads import Context
from burnin.workloads.attention import Attention, attend
from burnin.workloads.eigh import Eigh, inside_bounds
from burnin.workloads.embedding import SIZE_CPU, Embedding, bags, gather, scatter
from burnin.workloads.integers import Integers, computed
from burnin.workloads.recipes import Prepared, Recipe, Recipes
from burnin.workloads.reduction import Reduction
from burnin.workloads.sfu import Sfu

WORKLOADS: dict[str, type[Recipes]] = {one.test: one for one in (Attention, Integers, Sfu, Embedding, Reduction, Eigh)}


def context(inject: Inject | None = None) -> Context:
    return Context(backend="sim", device=torch.device("cpu"), inject=inject, alive=lambda: None)


def planted(fault: str, rate: float = 1.0) -> Context:
    return context(Inject(gpu=0, fault=fault, rate=rate, seed=1))


CASES = [case for workload in WORKLOADS.values() for case in workload().cases(context())]
EXACT = [case for case in CASES if case.exact]


def named(case: Case) -> str:
    return f"{case.test} {case.name}"


each_case = pytest.mark.parametrize("case", CASES, ids=named)
each_exact_case = pytest.mark.parametrize("case", EXACT, ids=named)


def ballot(case: Case, ctx: Context, *, seed: int = 3, launches: int = 3) -> Ballot:
    return WORKLOADS[case.test]().ballot(ctx, case, iteration=1, seed=seed, launches=launches)


def test_the_table_names_these_workloads() -> None:
    for test, workload in WORKLOADS.items():
        assert TESTS[test].workload == f"{workload.__module__}:{workload.__name__}"
        cases = [case for case in CASES if case.test == test]
        assert cases
        assert len({case.name for case in cases}) == len(cases)
        assert TESTS[test].exact == all(case.exact for case in cases)


@each_case
def test_a_ballot_repeats_itself_and_depends_on_the_seed(case: Case) -> None:
    one, again = ballot(case, context()), ballot(case, context())
    assert replace(one, elapsed_s=0.0) == replace(again, elapsed_s=0.0)
    assert (one.launches, one.fired, len(one.fingerprints), one.fingerprints[0][1]) == (3, 0, 1, 3)
    assert one.fingerprints != ballot(case, context(), seed=4).fingerprints  # at least the weights of the sum differ
    assert one.bytes * 20 >= TESTS[case.test].min_bytes


@each_exact_case
def test_the_golden_is_what_a_sane_device_gives(case: Case) -> None:
    for seed in (3, 4):
        proof = WORKLOADS[case.test]().prove(context(), case, seed=seed)
        assert proof.fingerprint == ballot(case, context(), seed=seed).fingerprints[0][0]


@pytest.mark.parametrize("fault", ["F01", "F03", "F04", "F05", "F10", "F13"])
@each_exact_case
def test_a_broken_result_is_refuted_and_its_elements_found(case: Case, fault: str) -> None:
    proof = WORKLOADS[case.test]().prove(planted(fault), case, seed=3)
    assert proof.fingerprint is None
    assert "differ from the CPU's, first [" in proof.why
    found = WORKLOADS[case.test]().examine(planted(fault), case, seed=3, launches=2, right=None, tiles=())
    assert found is not None
    assert found.count > 0
    assert found.bits


@each_case
def test_a_persistent_fault_changes_the_ballot(case: Case) -> None:
    good, bad = ballot(case, context()), ballot(case, planted("F03"))
    assert (bad.fired, len(bad.fingerprints)) == (3, 1)
    assert bad.fingerprints != good.fingerprints


@each_case
def test_an_intermittent_fault_is_compared_with_a_right_launch(case: Case) -> None:
    right = ballot(case, context()).fingerprints[0][0]
    workload = WORKLOADS[case.test]()
    found = workload.examine(planted("F04", 0.2), case, seed=3, launches=60, right=right, tiles=())
    assert found is not None
    assert found.count == 1
    assert WORKLOADS[case.test]().examine(context(), case, seed=3, launches=2, right=right, tiles=()) is None


@pytest.mark.parametrize(
    ("fault", "name", "expected"),
    [
        ("F07.exp2", "fp32 library", ["exp2", "softmax"]),
        ("F07.exp2", "conversions 16 bit", None),
        ("F07.convert", "fp32 library", None),
        ("F07.dq", "bf16 jagged 2x32", ["dq"]),
        ("F07.convert", "conversions 8 bit", ["bf16 to fp8e4m3", "bf16 to fp8e5m2"]),
    ],
)
def test_a_fault_of_one_operation_strikes_it_alone(fault: str, name: str, expected: list[str] | None) -> None:
    case = next(case for case in CASES if case.name == name and case.test in {"sfu", "attention"})
    assert eligible(FAULTS[fault], case) is (expected is not None)
    good, bad = ballot(case, context()), ballot(case, planted(fault))
    wrong = [name for (name, one), (_, other) in zip(good.trace, bad.trace, strict=True) if one != other]
    assert expected is None or wrong == expected


@each_case
def test_only_exact_cases_have_a_golden(case: Case) -> None:
    if not case.exact:
        with pytest.raises(ValueError, match="no golden"):
            WORKLOADS[case.test]().prove(context(), case, seed=3)
    with pytest.raises(ValueError, match="no case"):
        ballot(replace(case, name="x"), context())


class Dead(Recipes):
    """Launches that write nothing."""

    test = "dead"

    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        del ctx

        def prepare(ctx: Context, seed: int) -> Prepared:
            del seed
            return Prepared(outputs={"x": torch.empty(64, 64, device=ctx.device)}, launch=lambda: None)

        return (Recipe(name="c", dtype="fp32", exact=False, prepare=prepare),)


def test_a_test_that_writes_nothing_is_no_test() -> None:
    with pytest.raises(RuntimeError, match="none of 3 launches wrote x"):
        Dead().ballot(context(), Dead().cases(context())[0], iteration=0, seed=1, launches=3)


def test_integer_functions_are_what_they_are_called() -> None:
    words = torch.tensor([0, 1, -1, 0x12345678], dtype=torch.int32)
    found = computed(words)
    wide = np.array([w & 0xFFFF_FFFF for w in words.tolist()], dtype=object)
    for at, word in enumerate(wide):
        state = word << 32 | word
        for _ in range(64):
            state = (state * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        assert int(found["mad"][at]) & (1 << 64) - 1 == state
        assert int(found["popcount"][at]) == state.bit_count()
        assert int(found["crc"][at]) & 0xFFFF_FFFF == crc32c(int(word).to_bytes(4, "little"))
    assert len(set(found["sha"].tolist())) == 4
    assert zlib.crc32(b"123456789") != crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C


def crc32c(data: bytes) -> int:
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


def test_attention_is_what_autograd_says() -> None:
    lengths = (9, 1, 5)
    q, k, v, do = (torch.randn(sum(lengths), 2, 8, dtype=torch.float64) for _ in range(4))
    found = attend((q, k, v, do), lengths, torch.float64)
    leaves = [one.clone().requires_grad_() for one in (q, k, v)]
    begin, pieces = 0, []
    for length in lengths:
        piece = [one[begin : begin + length].transpose(0, 1) for one in leaves]
        pieces.append(torch.nn.functional.scaled_dot_product_attention(*piece, is_causal=True).transpose(0, 1))
        begin += length
    o = torch.cat(pieces)
    for got, right in zip(found, (o, *torch.autograd.grad(o, leaves, do)), strict=True):
        torch.testing.assert_close(got, right.detach())


def test_bounds_of_eigenvectors_refuse_what_is_none() -> None:
    matrix = torch.randn(40, 40, dtype=torch.float64).float()
    matrix += matrix.t().clone()
    values, vectors = torch.linalg.eigh(matrix)
    assert inside_bounds(matrix, values, vectors).tolist() == [1, 1]
    assert inside_bounds(matrix, values * 1.001, vectors).tolist() == [0, 1]
    assert inside_bounds(matrix, values, vectors * 1.001)[1] == 0
    assert inside_bounds(matrix, values, vectors * float("nan")).tolist() == [0, 0]


def test_gather_and_scatter_are_each_others_transposes() -> None:
    table = torch.randn(SIZE_CPU.tables * SIZE_CPU.rows, SIZE_CPU.width, dtype=torch.float64).float().requires_grad_()
    drawn = bags(SIZE_CPU, "zipf", 5, table.device)
    gradient = torch.randn(len(drawn.indices), SIZE_CPU.width)
    summed = table[drawn.indices].sum(dim=1)
    torch.testing.assert_close(gather(table.detach(), drawn), summed.detach())
    (by_autograd,) = torch.autograd.grad(summed, table, gradient)
    assert by_autograd is not None
    torch.testing.assert_close(scatter(gradient, drawn), by_autograd[drawn.touched])
    assert int(by_autograd.abs().sum(dim=1).ne(0).sum()) == len(drawn.touched)


def test_zipf_has_hot_rows_and_uniform_has_none() -> None:
    hottest = {law: int(bags(SIZE_CPU, law, 5, torch.device("cpu")).starts.diff().max()) for law in ("zipf", "uniform")}
    assert hottest["zipf"] > 4 * hottest["uniform"]
