"""The wrong elements of a result: counted, located and told bit by bit, against results that are known to be right."""

import pytest
import torch

from burnin.spec import Case, Elements, Inject
from burnin.workloads import Context
from burnin.workloads import gemm as gemm_module
from burnin.workloads.elements import ADDRESSES_MAX, Comparison
from burnin.workloads.gemm import GemmExact, GemmVote
from burnin.workloads.step import Step

CPU = torch.device("cpu")
SEED = 3


def context(inject: Inject | None = None) -> Context:
    return Context(backend="sim", device=CPU, inject=inject, alive=lambda: None)


EXACT = GemmExact().cases(context())


def examine(
    case: Case, inject: Inject | None, *, right: str | None, tiles: tuple[int, ...] = (), launches: int = 40
) -> Elements | None:
    workload = GemmExact() if case.exact else GemmVote()
    return workload.examine(context(inject), case, seed=SEED, launches=launches, right=right, tiles=tiles)


def golden(case: Case) -> str:
    (only,) = (
        (GemmExact() if case.exact else GemmVote())
        .ballot(context(), case, iteration=0, seed=SEED, launches=1)
        .fingerprints
    )
    return only[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.float8_e4m3fn, torch.float64])
def test_flipped_bits_are_counted_and_their_period_is_found(dtype: torch.dtype) -> None:
    right = torch.ones(6, 40, dtype=torch.float32).to(dtype)
    wrong = right.clone()
    words = wrong.view(torch.uint8).view(-1, right.element_size())
    words[5::12, 0] ^= 0b1000_0010  # bits 1 and 7 of every 12th element, from the sixth on
    comparison = Comparison(40)
    comparison.add(wrong, right)
    times = len(range(5, 240, 12))
    assert comparison.elements() == Elements(
        count=times, compared=240, bits=((1, times), (7, times)), period=12, first=(0, 5)
    )


def test_pieces_add_up_to_the_whole() -> None:
    right = torch.zeros(8, 30, dtype=torch.int32)
    wrong = right.clone()
    wrong[1, 3], wrong[7, 29] = -1, 1 << 30
    whole, pieces = Comparison(30), Comparison(30)
    whole.add(wrong, right)
    for row in (4, 0):
        for column in (20, 0):
            part = (slice(row, row + 4), slice(column, column + 20))
            pieces.add(wrong[part], right[part], row=row, column=column)
    assert whole.elements() == pieces.elements()
    found = whole.elements()
    assert found is not None
    assert (found.count, found.period, found.first) == (2, 7 * 30 + 29 - 33, (1, 3))
    assert dict(found.bits)[30] == 2


def test_nothing_wrong_is_nothing_and_one_wrong_element_has_no_period() -> None:
    right = torch.zeros(4, 4)
    comparison = Comparison(4)
    comparison.add(right, right.clone())
    assert comparison.elements() is None
    wrong = right.clone()
    wrong[2, 1] = -0.0
    comparison.add(wrong, right)
    assert comparison.elements() == Elements(count=1, compared=32, bits=((31, 1),), period=None, first=(2, 1))


def test_addresses_are_bounded() -> None:
    right = torch.zeros(1, 2 * ADDRESSES_MAX)
    comparison = Comparison(2 * ADDRESSES_MAX)
    comparison.add(right + 1, right)
    found = comparison.elements()
    assert found is not None
    assert (found.count, found.period) == (2 * ADDRESSES_MAX, 1)


@pytest.mark.parametrize("case", EXACT, ids=[case.name for case in EXACT])
def test_a_persistent_fault_is_compared_with_the_truth(case: Case) -> None:
    fault = Inject(gpu=0, fault="F13", rate=1.0, seed=1)
    found = examine(case, fault, right=golden(case))
    assert found is not None
    assert found.count in {2, 4, 6, 8}
    assert [times for _, times in found.bits] == [found.count]  # the same single bit in each of them
    assert found.period is not None


def test_an_intermittent_fault_is_compared_with_a_right_launch_of_the_same_gpu() -> None:
    (case, *_) = GemmVote().cases(context())
    found = examine(case, Inject(gpu=0, fault="F04", rate=0.5, seed=1), right=golden(case))
    assert found is not None
    assert found.compared == 256 * 320
    assert found.count == 1
    assert examine(case, Inject(gpu=0, fault="F04", rate=1.0, seed=1), right=golden(case)) is None


def test_a_healthy_gpu_shows_nothing() -> None:
    assert examine(EXACT[0], None, right=golden(EXACT[0]), launches=3) is None


def test_only_the_tiles_in_question_are_computed_or_those_that_the_proof_points_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = EXACT[0]  # 256 x 320: two rows of three tiles
    fault = Inject(gpu=0, fault="F10", rate=1.0, seed=1)
    everything = examine(case, fault, right=None)
    assert everything is not None
    tile = everything.first[0] // 128 * 3 + everything.first[1] // 128
    named = examine(case, fault, right=None, tiles=(tile,))
    assert named is not None
    assert (named.compared, named.first) == (128 * (128 if tile % 3 < 2 else 64), everything.first)
    monkeypatch.setattr(gemm_module, "TILES_MAX", 4)
    band = examine(case, fault, right=None)
    assert band is not None
    assert (band.compared, band.first) == (128 * 320, everything.first)


def test_a_step_keeps_no_tensors_to_compare() -> None:
    (case,) = Step().cases(context())
    assert Step().examine(context(), case, seed=1, launches=1, right=None, tiles=()) is None
