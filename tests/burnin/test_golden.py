import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burnin import golden
from burnin.golden import PRIME, Product, exact_magnitude, refute, times_mod
from burnin.seed import fill_integers

M, K, N, A = 70, 50, 40, 127


def operand(rows: int, key: int) -> torch.Tensor:
    values = torch.empty(rows, K)
    fill_integers(values, key, A)
    return values


def product() -> tuple[Product, torch.Tensor]:
    a, bt = operand(M, 1), operand(N, 2)
    plan = Product(
        a_rows=lambda first, after: a[first:after],
        bt_rows=lambda first, after: bt[first:after],
        m=M,
        n=N,
        k=K,
        magnitude=A,
    )
    return plan, (a.to(torch.float64) @ bt.to(torch.float64).t()).to(torch.float32)


def verdict(output: torch.Tensor, seed: int = 5) -> str | None:
    refuted = refute(output, product()[0], seed=seed, alive=lambda: None)
    if refuted is None:
        return None
    assert 0 <= refuted.row < M
    return refuted.why


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_the_right_product_is_proved(dtype: torch.dtype) -> None:
    assert verdict(product()[1].to(dtype)) is None


def test_every_planted_error_of_one_element_is_refuted() -> None:
    right = product()[1]
    for number in range(0, M * N, 13):
        row, column = divmod(number, N)
        for delta in (1, -1, 1024):
            wrong = right.clone()
            wrong[row, column] += delta
            why = verdict(wrong, seed=number)
            assert why is not None
            assert f"row {row} " in why or "cannot be sums" in why


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 0.5, 2.0**24, -1e30])
def test_what_cannot_be_a_sum_is_named(value: float) -> None:
    wrong = product()[1]
    wrong[3, 4] = value
    why = verdict(wrong)
    assert why is not None
    assert "[3, 4]" in why
    assert f"{value:g}" in why


def test_the_sign_of_a_zero_is_part_of_the_proof() -> None:
    zeros = Product(
        a_rows=lambda first, after: torch.zeros(after - first, K),
        bt_rows=lambda first, after: torch.zeros(after - first, K),
        m=M,
        n=N,
        k=K,
        magnitude=A,
    )
    output = torch.zeros(M, N)
    assert refute(output, zeros, seed=1, alive=lambda: None) is None
    output[60, 7] = -0.0
    refuted = refute(output, zeros, seed=1, alive=lambda: None)
    assert refuted is not None
    assert refuted.row == 60
    assert "[60, 7] = -0" in refuted.why


def test_structured_errors_are_refuted() -> None:
    right = product()[1]
    for wrong in (right.roll(1, dims=0), right.roll(1, dims=1), right * 0, -right, right.flip(0)):
        assert verdict(wrong) is not None


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "BLOCK_BYTES", 8 * 64 * 9)
    right = product()[1]
    calls = []
    assert refute(right, product()[0], seed=5, alive=lambda: calls.append(1)) is None
    assert len(calls) > 10
    right[69, 39] += 1
    why = verdict(right)
    assert why is not None
    assert "row 69 " in why


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_times_mod_equals_python_integers(data: st.DataObject) -> None:
    columns = data.draw(st.integers(1, 9))
    bound = data.draw(st.sampled_from([1, 127, 2**24, 2**30, 2**48]))
    cells = data.draw(st.lists(st.integers(-bound, bound), min_size=columns, max_size=columns))
    vector = data.draw(st.lists(st.integers(0, PRIME - 1), min_size=columns, max_size=columns))
    got = times_mod(torch.tensor([cells], dtype=torch.float64), torch.tensor(vector).view(-1, 1), bound)
    assert int(got) == sum(c * v for c, v in zip(cells, vector, strict=True)) % PRIME


def test_sizes_outside_the_proof_are_refused() -> None:
    plan, right = product()
    with pytest.raises(ValueError, match="shape"):
        refute(right[:-1], plan, seed=1, alive=lambda: None)
    with pytest.raises(ValueError, match="too large"):
        refute(
            right,
            Product(a_rows=plan.a_rows, bt_rows=plan.bt_rows, m=M, n=N, k=K, magnitude=2**13),
            seed=1,
            alive=lambda: None,
        )
    with pytest.raises(ValueError, match="not exact"):
        times_mod(torch.zeros(1, 4, dtype=torch.float64), torch.zeros(4, 1, dtype=torch.int64), 2**52)


@pytest.mark.parametrize("k", [1, 77, 192, 777, 8192, 14336])
@pytest.mark.parametrize("dtype", list(golden.SIGNIFICAND_BITS))
def test_magnitudes_keep_every_sum_exact(k: int, dtype: torch.dtype) -> None:
    magnitude = exact_magnitude(dtype, k)
    assert k * magnitude**2 <= 2**24
    if dtype.itemsize > 1 or magnitude <= 16:
        assert torch.arange(magnitude + 1, dtype=torch.float64).to(dtype).to(torch.float64).tolist() == list(
            range(magnitude + 1)
        )


def test_sums_that_fit_no_integer_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        exact_magnitude(torch.float32, 2**25)
