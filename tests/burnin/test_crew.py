"""Threads of the CPU: the same results, in the same order, whoever computes them."""

import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from burnin.checksum import checksum
from burnin.crew import WORKERS_MAX, spread
from burnin.golden import Product, refute
from burnin.seed import fill_integers


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@given(st.lists(st.integers(), max_size=50), st.sampled_from([1, 3, 64]))
def test_results_come_in_the_order_of_the_pieces(pieces: list[int], threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert list(spread(lambda piece: piece * 2, pieces)) == [piece * 2 for piece in pieces]
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
def test_pieces_are_computed_side_by_side() -> None:
    together = threading.Barrier(4)  # passes only when four wait at once
    assert sorted(spread(lambda _: together.wait(timeout=60), range(4))) == [0, 1, 2, 3]


def test_no_more_workers_than_memory_bears() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(64)
    try:
        names = set(spread(lambda _: threading.current_thread().name, range(200)))
    finally:
        torch.set_num_threads(before)
    assert 1 <= len(names) <= WORKERS_MAX


@pytest.mark.usefixtures("four_threads")
def test_torch_uses_one_thread_in_each_of_ours_and_all_in_the_callers() -> None:
    assert set(spread(lambda _: torch.get_num_threads(), range(8), torch_inside=True)) == {1}
    assert torch.get_num_threads() == 4
    seen: list[int] = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [4]


@pytest.mark.usefixtures("four_threads")
def test_the_first_failure_in_order_is_told() -> None:
    def work(piece: int) -> int:
        if piece in {2, 3}:
            raise ValueError(f"piece {piece}")
        return piece

    results = spread(work, range(100))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="piece 2"):
        next(results)


@pytest.mark.usefixtures("four_threads")
def test_a_proof_and_a_checksum_do_not_depend_on_threads() -> None:
    m, k, n, most = 900, 1200, 1100, 100

    def rows(key: int):  # noqa: ANN202
        def make(first: int, after: int) -> torch.Tensor:
            piece = torch.empty(after - first, k)
            fill_integers(piece, key, most, start=first * k)
            return piece

        return make

    a, bt = rows(1), rows(2)
    product = Product(a_rows=a, bt_rows=bt, m=m, n=n, k=k, magnitude=most)
    right = (a(0, m).to(torch.float64) @ bt(0, n).to(torch.float64).t()).to(torch.float32)
    wrong = right.clone()
    wrong[871, 3] += 1
    wrong[899, 5] += 1
    sums, refuted = [], []
    for threads in (1, 4):
        torch.set_num_threads(threads)
        assert refute(right, product, seed=9, alive=lambda: None) is None
        refuted.append(refute(wrong, product, seed=9, alive=lambda: None))
        sums.append(checksum(right, 5))
    assert refuted[0] == refuted[1] is not None
    assert sums[0] == sums[1]
