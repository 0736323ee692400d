"""The tests of a report: what ran is told, and what of it did not is not told as passed."""

from dataclasses import replace

import pytest

from burnin.options import Options
from burnin.telling.page import to_html
from burnin.telling.report import build
from burnin.telling.result import NotRun, Result, State, conclude
from burnin.tests import TESTS
from tests.burnin.judge_evidence import EXACT, FLOAT, evidence, votes

REFUSED = NotRun(test=EXACT, why="int8 library 8x8x8: torch 1 has no _int_mm", required=True)


def concluded(*, finished: tuple[str, ...], not_run: tuple[NotRun, ...] = (), gpus: int = 3) -> Result:
    """A run of two tests on three GPUs, of which `gpus` voted in both."""
    state = State(backend="sim", not_run=list(not_run), test_elapsed_s=dict.fromkeys(finished, 1.0))
    casts = tuple(cast for test in (EXACT, FLOAT) for cast in votes(gpus, {}, test=test))
    state.evidence = evidence(3, casts=casts)
    state.devices = state.evidence.devices
    options = Options(backend="sim", level="smoke", seed=1, host="h")
    return conclude(state, options, (TESTS[EXACT], TESTS[FLOAT]), deaths=(), started_at_s=0.0, elapsed_s=1.0)


def test_a_test_of_which_the_library_refused_one_case_is_listed_with_what_it_did() -> None:
    report = build(concluded(finished=(EXACT, FLOAT), not_run=(REFUSED,)))
    told = {test["id"]: (test["verdict"], test["why"], test["launches"]) for test in report["tests"]}
    assert told == {EXACT: ("not_judged", REFUSED.why, 12), FLOAT: ("pass", "", 12)}
    assert [one["id"] for one in report["not_run"]] == [EXACT]


def test_a_case_that_nobody_required_leaves_the_test_as_it_is() -> None:
    report = build(concluded(finished=(EXACT, FLOAT), not_run=(replace(REFUSED, required=False),)))
    assert {test["id"]: test["verdict"] for test in report["tests"]} == {EXACT: "pass", FLOAT: "pass"}


def test_a_test_that_was_broken_off_is_no_test_that_never_began() -> None:
    report = build(concluded(finished=(EXACT,)))
    assert [test["id"] for test in report["tests"]] == [EXACT]
    assert [(one["id"], one["why"]) for one in report["not_run"]] == [(FLOAT, "the run ended in the middle of it")]
    assert report["verdict"] == "not_judged"


@pytest.mark.parametrize("gpus", [2, 3])
def test_what_was_felt_is_shown_of_every_gpu_that_took_part(gpus: int) -> None:
    report = build(concluded(finished=(EXACT, FLOAT), gpus=gpus))
    for test in report["tests"]:
        for gpu in test["gpus"]:
            gpu["power_watts"] = {"min": 600.0, "mean": 612.0, "max": 630.0}
    page = to_html(report)
    row = (
        f'<tr><th scope="row">{EXACT}</th>'
        + "<td>612\N{NO-BREAK SPACE}W</td>" * gpus
        + "<td></td>" * (3 - gpus)
        + "</tr>"
    )
    assert row in page
