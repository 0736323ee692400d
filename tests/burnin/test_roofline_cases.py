"""What is expected of the cases of `rate`, of which parts, and whom that may call slow."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burnin.parts import shelf
from burnin.roofline.cases import DEVICE_COPY, Model, gemm_of
from burnin.spec import Ballot, Case, Device, FaultClass, Verdict
from burnin.verdict.evidence import Cast, Evidence
from burnin.verdict.health import Felt
from burnin.verdict.judge import judge
from burnin.verdict.rates import Expectation, remarks, with_rates
from burnin.workloads.plans import Plan
from burnin.workloads.rate import SLOW
from tests.burnin.roofline_parts import complete

GOLDEN = Path(__file__).parents[1] / "golden" / "burnin"
SKU = "NVIDIA H200"
CASES = ("bf16 library 8192x16384x8192 rounded", "fp8e4m3 library 8192x32768x8192", DEVICE_COPY, "host to device")
FELT = Felt(power_limit_watts=700.0, limits=("software power cap",), readings=3)


def device(*, index: int = 0, sku: str = SKU, units: int = 132) -> Device:
    return Device(gpu=f"g{index}", index=index, sku=sku, sm_count=units, memory_bytes=1, vote_key="k")


def case(name: str) -> Case:
    dtype = "bytes" if "library" not in name else name.split(maxsplit=1)[0]
    return Case(test="rate", name=name, dtype=dtype, exact=False, rate_name="r_flops_per_second", slow_below=SLOW)


def asked(model: Model, name: str, *, of: Device | None = None, felt: Felt = FELT) -> Expectation:
    return model(of or device(), case(name), felt)


def evidence(rates: dict[str, float], *, gpus: int = 8, felt: Felt = FELT) -> Evidence:
    """A host whose GPUs all reach the same."""
    devices = tuple(device(index=index) for index in range(gpus))
    casts = tuple(
        Cast(
            gpu=one.gpu,
            test="rate",
            ballot=Ballot(
                case=name, iteration=0, seed=1, fingerprints=(("1" * 16, 1),), launches=1, bytes=1, flops=10**15,
                elapsed_s=10**15 / rate,
            ),
            felt=felt,
        )
        for one in devices
        for name, rate in rates.items()
    )  # fmt: skip
    return Evidence(devices=devices, cases={("rate", name): case(name) for name in rates}, quotas={}, casts=casts)


@pytest.mark.parametrize(("dtype", "rounded", "output"), [("bf16", True, 2), ("fp16", False, 4), ("fp64", False, 8)])
def test_a_case_of_the_suite_is_read_as_the_product_it_is(dtype: str, rounded: bool, output: int) -> None:
    plan = Plan(dtype=dtype, path="library", m=8, k=16, n=24, rounded=rounded)
    gemm = gemm_of(case(plan.name))
    assert gemm is not None
    assert (gemm.m, gemm.n, gemm.k, gemm.dtype, gemm.output_bytes) == (8, 24, 16, dtype, output)
    assert gemm.flops == plan.flops
    assert torch.empty(0, dtype=plan.output).element_size() == output


def test_what_is_no_plain_product_of_the_library_has_no_model() -> None:
    for plan in (
        Plan(dtype="bf16", path="triton", m=8, k=16, n=24, rounded=False),
        Plan(dtype="bf16", path="library", m=8, k=16, n=24, rounded=False, pattern="zeros"),
    ):
        assert gemm_of(case(plan.name)) is None
    assert asked(Model((complete(),)), "bf16 triton 8x16x24").rate is None


def test_a_scored_part_is_expected_something_of_and_says_what_bounds_it() -> None:
    model = Model((complete(error_p90=0.2),))
    told = asked(model, CASES[0])
    assert told.rate == pytest.approx(660e12, rel=0.1)
    assert told.error == 0.2
    assert "bound by power limit" in told.why
    assert asked(model, DEVICE_COPY).rate == pytest.approx(0.88 * 4.8e12)
    assert asked(model, "host to device").rate is None  # the link is the host's, too
    assert asked(model, CASES[0], felt=replace(FELT, power_limit_watts=500.0)).rate < told.rate  # type: ignore[operator]


@pytest.mark.parametrize(
    ("model", "of", "felt", "why"),
    [
        (Model(()), device(), FELT, "no constants for this part"),
        (Model((complete(),)), device(sku="NVIDIA H200 NVL"), FELT, "no constants for this part (NVIDIA H200 NVL)"),
        (Model((complete(),)), device(units=66), FELT, "66 of 132 units"),
        (Model((complete(error_p90=None),)), device(), FELT, "were not scored on hardware"),
        (Model((replace(complete(), fitted=None),)), device(), FELT, "were not scored on hardware"),
        (Model((complete(),)), device(), Felt(), "the power limit cannot be read"),
    ],
)
def test_of_what_nobody_measured_nothing_is_expected_and_the_reason_is_told(
    model: Model, of: Device, felt: Felt, why: str
) -> None:
    told = asked(model, CASES[0], of=of, felt=felt)
    assert told.rate is None
    assert why in told.why


def test_a_dtype_that_was_never_measured_is_not_expected() -> None:
    told = asked(Model((complete(),)), "fp64 library 4096x4096x4096")
    assert (told.rate, told.why) == (None, "fp64 was never measured on NVIDIA H200 SXM 141 GB")


def test_a_host_that_is_slow_as_a_whole_fails_by_a_scored_model_and_says_why() -> None:
    found = evidence({CASES[0]: 330e12})
    model = Model((complete(),))
    after = with_rates(judge(found), found, model)
    assert after.verdict is Verdict.FAIL
    assert {gpu.fault for gpu in after.culprits} == {FaultClass.SLOW}
    assert len(after.culprits) == 8
    for words in ("of the 6", "bound by power limit", "MHz at 700 W", "its power limit is 700 W", "software power cap"):
        assert words in after.culprits[0].why
    assert remarks(found, model) == ()


def test_the_same_host_passes_where_nobody_scored_the_part() -> None:
    found = evidence({CASES[0]: 330e12})
    model = Model((complete(error_p90=None),))
    assert with_rates(judge(found), found, model) == judge(found)
    (told,) = remarks(found, model)
    assert "were not scored on hardware" in told
    assert "slow as a whole is not seen" in told


def test_a_lower_power_limit_is_no_fault_of_the_gpu() -> None:
    """The power governor of this project sets such limits."""
    model = Model((complete(),))
    limited = replace(FELT, power_limit_watts=400.0)
    reached = asked(model, CASES[0], felt=limited).rate
    assert reached is not None
    assert reached < 0.7 * (asked(model, CASES[0]).rate or 0.0)
    found = evidence({CASES[0]: 0.95 * reached}, felt=limited)
    assert with_rates(judge(found), found, model).verdict is Verdict.PASS
    found = evidence({CASES[0]: 0.95 * reached})
    assert with_rates(judge(found), found, model).verdict is Verdict.FAIL


@settings(deadline=None, max_examples=25)
@given(share=st.floats(0.1, 2.0), error=st.floats(0.0, 0.5))
def test_blame_follows_the_threshold_less_the_error(share: float, error: float) -> None:
    model = Model((complete(error_p90=error),))
    found = evidence({DEVICE_COPY: share * 0.88 * 4.8e12}, gpus=1)
    failed = with_rates(judge(found), found, model).verdict is Verdict.FAIL
    if abs(share - SLOW * (1.0 - error)) > 1e-6:
        assert failed == (share < SLOW * (1.0 - error))


def test_no_real_run_of_healthy_h200s_is_called_slow_by_the_shipped_constants() -> None:
    """Even as if they were scored already, with less allowance than the model's target for its error."""
    h200 = shelf.load("h200")
    assert h200.fitted is not None
    model = Model((replace(h200, fitted=replace(h200.fitted, error_p90=h200.fitted.error_p90 or 0.1)),))
    report: dict[str, Any] = json.loads((GOLDEN / "h200-x2-quick.json").read_text())
    gpus = next(test for test in report["tests"] if test["id"] == "rate")["gpus"]
    checked = 0
    for gpu in gpus:
        for key, rate in gpu["rates"].items():
            name = re.sub("^rate_|_(flops|bytes)_per_second$", "", key).replace("_", " ")
            told = asked(model, name)
            if told.rate is not None:
                checked += 1
                assert rate > SLOW * (1.0 - told.error) * told.rate, key
    assert checked >= 4 * len(gpus)
