"""The guard's small parts: anomalies, bounds, the ledger, settings, parity."""

import json
import math

import pytest
import torch

from burnin.guard import GuardConfig
from burnin.guard.anomaly import LEAST, Watch, robust_z
from burnin.guard.asked import Outcome
from burnin.guard.calibrate import Calibration, Unstable, odd_ranks
from burnin.guard.judge import CLEAN
from burnin.guard.parity import Point, RunError, compare, read_run
from burnin.guard.records import BLOCK, block_magnitudes, block_sums, outside
from burnin.guard.report import REASONS_MAX, Ledger, as_dict, as_text
from burnin.guard.settings import advice, deterministic_settings
from burnin.guard.trace import Operation, first_split, unstable


def test_a_jump_and_what_is_no_number_are_odd_and_drift_is_not() -> None:
    watch = Watch("loss")
    assert not any(watch.see(5.0 - 0.01 * number + 0.05 * (number % 3)) for number in range(200))
    assert "30" in watch.see(30.0)
    assert "nan" in watch.see(math.nan)
    assert "inf" in watch.see(-math.inf)
    young = Watch("loss")
    assert [young.see(1.0) for _ in range(LEAST - 1)] == [""] * (LEAST - 1)
    assert not young.see(100.0)
    assert young.see(100.0)


def test_a_series_that_does_not_move_makes_no_alarm_of_rounding() -> None:
    assert robust_z(1.0 + 1e-7, [1.0] * 30) < 1
    assert robust_z(2.0, [1.0] * 30) > 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_bound_lets_any_order_pass_and_no_flipped_high_bit(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    terms = [torch.randn(1000, generator=generator).to(dtype) / 4 for _ in range(4)]
    put = sum(torch.cat([block_sums(term), block_magnitudes(term)]) for term in terms)
    assert isinstance(put, torch.Tensor)
    assert put.shape == (2, -(-1000 // BLOCK))
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        total = terms[order[0]].clone()
        for index in order[1:]:
            total += terms[index]
        got = block_sums(total)[0]
        assert outside(put, got, world=4, dtype=dtype) == 0
        total[700] += 64
        assert outside(put, block_sums(total)[0], world=4, dtype=dtype) == 1
        total[700] = math.nan
        assert outside(put, block_sums(total)[0], world=4, dtype=dtype) == 1
    put[:, 2] = math.inf
    assert outside(put, block_sums(total)[0], world=4, dtype=dtype) == 0  # of infinite terms nothing can be said


def test_blocks_cross_no_border_between_parts() -> None:
    flat = torch.arange(600.0)
    sums = block_sums(flat, 2)
    assert sums.shape == (2, 2)
    assert sums.sum(1).tolist() == [sum(range(300)), sum(range(300, 600))]


def calibration(good: int = 3, bad: int = 1) -> Calibration:
    return Calibration(
        replays=10,
        ranks=2,
        names=tuple(f"n{number}" for number in range(good)),
        unstable=tuple(
            Unstable(name=f"u{number}", distinct=4, operations=("aten.index_add.default",), set="set this")
            for number in range(bad)
        ),
    )


def test_the_probability_counts_only_what_was_verified_and_is_reproducible() -> None:
    ledger = Ledger(calibration=calibration())
    assert ledger.probability_seen(0.1) == 0
    for step in (5, 10):
        ledger.add(Outcome(None, CLEAN), step)
    ledger.add(Outcome(None, None, ["why"]), 15)
    assert ledger.last_verified_step == 10
    assert ledger.probability_seen(0.1) == pytest.approx(1 - (1 - 0.075) ** 2)
    assert ledger.probability_seen(1.0) == pytest.approx(1 - 0.25**2)
    with pytest.raises(ValueError, match="rate"):
        ledger.probability_seen(2.0)
    assert Ledger().probability_seen(0.5) == 0


def test_the_report_says_what_is_not_checked() -> None:
    ledger = Ledger(steps=20, calibration=calibration(), notes=["a note"])
    ledger.add(Outcome(None, None, ["out of memory"]), 10)
    report = as_dict(ledger, shape="ddp", ranks=2, every=10, steady=False)
    assert json.loads(json.dumps(report))["unchecked"] == {"out of memory": 1}
    text = as_text(report)
    for part in ("3 of 4 tensors", "u0: 4 results, by aten.index_add.default", "set this", "out of memory", "a note"):
        assert part in text
    assert "nothing was checked" in as_text(as_dict(Ledger(), shape="plain", ranks=1, every=10, steady=True))
    for number in range(2 * REASONS_MAX):
        ledger.skip(f"reason {number}")
    assert len(ledger.unchecked) == REASONS_MAX + 1


def test_odd_ranks_need_three_that_reproduce() -> None:
    assert odd_ranks([[1, 1], [1, 0], [1, 1], [1, 1]]) == (1,)
    assert odd_ranks([[1, 0], [1, 1]]) == ()
    assert odd_ranks([[0, 1], [0, 1], [0, 1], [1, 1]]) == ()


def test_advice_knows_what_needs_the_strict_form() -> None:
    assert "strict" in advice("aten._scaled_dot_product_flash_attention_backward.default")
    assert "enable_cudnn_sdp(False)" in advice("aten._scaled_dot_product_cudnn_attention_backward.default")
    assert "bisect" in advice("aten.mystery.default")
    assert "bisect" in advice(None)
    compile(deterministic_settings(), "settings", "exec")


@pytest.mark.parametrize("wrong", [{"every": 0}, {"replays": 9}, {"deadline_s": 0.0}, {"deadline_s": math.nan}])
def test_a_configuration_that_cannot_work_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"every|replays|deadline_s"):
        GuardConfig(**wrong)  # type: ignore[arg-type]


def operation(name: str, before: int, after: int) -> Operation:
    return Operation(name=name, shapes="2x2", before=before, after=after)


def test_traces_part_where_equal_inputs_give_different_results() -> None:
    one = [operation("a", 1, 2), operation("b", 2, 3), operation("c", 3, 4)]
    assert first_split(one, one) is None
    other = [operation("a", 1, 2), operation("b", 2, 7), operation("c", 7, 8)]
    split = first_split(one, other)
    assert split is not None
    assert (split.index, split.name) == (1, "b")
    assert unstable(one, other) == ("b",)
    fed = first_split(one, [operation("a", 5, 6)])
    assert fed is not None
    assert "inputs differ" in fed.why
    assert first_split(one, one[:2]) is not None
    program = first_split(one, [operation("x", 1, 2)])
    assert program is not None
    assert "program" in program.why


def run(loss: float, ne: float | None = None, steps: int = 40) -> dict[int, Point]:
    return {step: Point(loss=loss + 1 / step, ne=ne) for step in range(1, steps + 1)}


def test_parity_by_loss_and_by_normalised_entropy() -> None:
    assert compare(run(2.0), run(2.0)).identical
    assert compare(run(2.0), run(2.005)).ok
    assert not compare(run(2.0), run(2.01)).ok
    assert compare(run(2.0, 0.8), run(2.0, 0.80009)).ok
    apart = compare(run(2.0, 0.8), run(2.0, 0.8002))
    assert not apart.ok
    assert apart.ne_difference == pytest.approx(2e-4)
    assert not compare(run(2.0), run(math.nan)).ok
    assert compare(run(2.0, 0.8), run(2.0)).ne_difference is None
    with pytest.raises(RunError, match="common"):
        compare({1: Point(loss=1, ne=None)}, {2: Point(loss=1, ne=None)})


def test_runs_are_read_and_what_is_no_run_is_told_with_its_line() -> None:
    lines = ['{"step": 1, "loss": 2}', "", '{"step": 1, "loss": 3, "ne": null}', '{"step": 2, "loss": 1.5, "ne": 0.5}']
    assert read_run(lines, "a") == {1: Point(loss=3.0, ne=None), 2: Point(loss=1.5, ne=0.5)}
    for bad in ("x", "[]", '{"step": 1}', '{"step": "a", "loss": 1}', "3"):
        with pytest.raises(RunError, match="a:1"):
            read_run([bad], "a")
    with pytest.raises(RunError, match="no steps"):
        read_run([], "a")
