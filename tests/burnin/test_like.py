"""Directed runs: what a report says of a failure, and how warm a GPU is to be."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from burnin.like import TRIES_MAX, Aim, Toward, aims, near, read, toward
from burnin.spec import SCHEMA, SpecError
from burnin.tests import TESTS
from burnin.verdict.health import Felt, Spread
from tests.burnin.judge_evidence import votes

GOLDEN = Path(__file__).parents[1] / "golden" / "burnin"


def signature(**more: Any) -> dict[str, Any]:
    base = {"test": "int", "case": "c", "seed": 7, "gpu": "GPU-1", "temperature_celsius": None, "power_watts": None}
    return base | more


def report(*signatures: dict[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA, "signatures": list(signatures)}


def test_the_aims_are_the_tests_that_failed_with_cases_seeds_temperature_and_power() -> None:
    warm = {
        "temperature_celsius": {"min": 60, "mean": 70.0, "max": 75},
        "power_watts": {"min": 1, "mean": 690.0, "max": 9},
    }
    warmer = {"temperature_celsius": {"min": 60, "mean": 74.0, "max": 75}, "power_watts": None}
    found = aims(
        report(
            signature(**warm),
            signature(**warmer, seed=8),
            signature(test="sfu", gpu="GPU-2"),
            signature(test="selftest"),
        ),
        [test for test in TESTS if test != "selftest"],
    )
    assert found == (
        Aim(test="int", cases=("c",), seeds=(7, 8), gpus=("GPU-1",), celsius=72.0, watts=690.0),
        Aim(test="sfu", cases=("c",), seeds=(7,), gpus=("GPU-2",), celsius=None, watts=None),
    )


def test_a_report_of_a_real_failure_aims_at_it(tmp_path: Path) -> None:
    told = json.loads((GOLDEN / "h200-x2-inject-f04.json").read_text())
    path = tmp_path / "report.json"
    path.write_text(json.dumps(told | {"schema": SCHEMA}))
    found = read(path, TESTS)
    assert {one.test for one in found} <= set(TESTS)
    assert all(one.gpus and one.seeds and one.cases for one in found)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no whole report"),
        ("[]", "no report of a burn-in"),
        ('{"schema": "other"}', "no report of a burn-in"),
        (json.dumps(report()), "nothing to be like"),
        (json.dumps(report({"test": "int"})), "no whole report"),
        (json.dumps(report(signature(test="unheard"))), "nothing to be like"),
    ],
)
def test_what_is_no_report_of_a_failure_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=rf"^--like .*report.json: .*{why}"):
        read(path, TESTS)


AIM = Aim(test="int", cases=(), seeds=(), gpus=("GPU-1",), celsius=70.0, watts=None)


@pytest.mark.parametrize(
    ("celsius", "tries", "step"),
    [
        ({"GPU-1": 40.0, "GPU-0": 70.0}, 0, Toward.WORK),
        ({"GPU-1": 69.0, "GPU-0": 30.0}, 0, Toward.HERE),
        ({"GPU-1": 80.0}, 0, Toward.REST),
        ({"GPU-1": 40.0}, TRIES_MAX, Toward.HERE),
        ({"GPU-1": None}, 0, Toward.HERE),
        ({"GPU-9": 40.0}, 0, Toward.WORK),  # the GPU was swapped
        ({}, 0, Toward.HERE),
    ],
)
def test_the_gpu_that_failed_is_brought_to_its_temperature(
    celsius: dict[str, float | None], tries: int, step: Toward
) -> None:
    assert toward(AIM, celsius, tries) is step


def test_how_near_a_slice_came_is_told() -> None:
    celsius, watts = Spread(min=60, mean=68.0, max=70), Spread(min=1, mean=650.0, max=9)
    warm = Felt(temperature_celsius=celsius, power_watts=watts, readings=1)
    casts = [replace(cast, felt=warm if cast.gpu == "gpu1" else Felt()) for cast in votes(2, {})]
    aim = replace(AIM, gpus=("gpu1",), watts=690.0)
    assert near(aim, casts) == "directed at int: 68 °C now, 70 °C then; 650 W now, 690 W then"
    assert near(replace(aim, gpus=("gpu0",)), casts) == "directed at int: 70 °C then; 690 W then"
    assert near(replace(aim, celsius=None, watts=None), casts).endswith(
        "neither temperature nor power is known of then"
    )
