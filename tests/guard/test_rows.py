"""Lists of addresses that are kept on the device: every launch reads its own, whatever came before."""

from typing import Any

import pytest

pytest.importorskip("triton")

import torch
from hypothesis import given
from hypothesis import strategies as st

from burnin.kernels import many

CPU = torch.device("cpu")
LISTS = st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3).map(tuple), max_size=40)
"""Few different addresses, so that lists come again, and more lists than there are rows."""


class Kernel:
    """Sees what a launch would read from its row. On a CPU a copy is done at once, in order, as on one stream."""

    def __init__(self) -> None:
        self.read: list[tuple[int, ...]] = []

    def __call__(self, tables: torch.Tensor, row: int, count: int, *_: Any) -> None:
        self.read.append(tuple(tables.flatten()[row * count : (row + 1) * count].tolist()))


@given(LISTS)
def test_a_launch_reads_the_addresses_of_its_own_call(calls: list[tuple[int, ...]]) -> None:
    kernel, sizes = Kernel(), (8, 8, 8)
    plan = many.plan_of(sizes, CPU)
    plan.start.append(kernel)
    plans = {(sizes, CPU, 0): plan}
    for addresses in calls:
        sums = many.launch(addresses, sizes, key=1, device=CPU, stream=0, plans=plans)
        assert sums.tolist() == [0, 0, 0]
    assert kernel.read == calls


@given(LISTS)
def test_the_last_few_lists_are_there_and_no_older_one(calls: list[tuple[int, ...]]) -> None:
    rows = many.Rows(many.ROWS)
    held: list[tuple[int, ...]] = []
    """By when they were used, the last one last."""
    for addresses in calls:
        row = rows.find(addresses)
        assert (row is not None) == (addresses in held)
        if row is None:
            row = rows.take()
            assert rows.take() == row, "what was not filled is still free"
            rows.filled(row, addresses)
        held = ([one for one in held if one != addresses] + [addresses])[-many.ROWS :]
        assert rows.find(addresses) == row
    for addresses in held:
        assert rows.find(addresses) is not None


def test_a_copy_that_fails_loses_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = many.plan_of((8,), CPU)
    with monkeypatch.context() as patch:
        patch.setattr(many.torch, "empty", _no_memory)
        for address in range(2 * many.ROWS):
            with pytest.raises(RuntimeError, match="no pinned memory"):
                many.row_of(plan, (address,))
    assert len({many.row_of(plan, (address,)) for address in range(many.ROWS)}) == many.ROWS


def test_a_stream_has_plans_of_its_own_and_there_are_not_too_many() -> None:
    plans: dict[Any, many.Plan] = {}
    for stream in range(2 * many.PLANS_MAX):
        many.launch((0,), (0,), key=1, device=CPU, stream=stream, plans=plans)
        assert ((0,), CPU, stream) in plans
        assert len(plans) <= many.PLANS_MAX
    assert len({id(plan.tables) for plan in plans.values()}) == len(plans)


def _no_memory(*_: Any, **__: Any) -> torch.Tensor:
    raise RuntimeError("no pinned memory")
