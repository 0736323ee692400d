"""The coverage harness: what it measures on today's tests, and that it notices when one of them is gone."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from burnin.cli import main
from burnin.coverage.host import GPUS, Healthy, unit_of
from burnin.coverage.plan import FORMS, SETS, WEIGHTS, Trial, left_out, trials
from burnin.coverage.run import Asked, measure
from burnin.coverage.score import DETECTION, FACTOR, Measured, by_model, decide, detection, summarise
from burnin.coverage.trials import QUICK_CASES, Outcome, Suite, all_trials, carry_out, clean_run, suite
from burnin.inject import FAULTS
from burnin.spec import Case, ExitCode, FaultClass, SpecError, Verdict
from burnin.tests import TESTS
from burnin.verdict.judge import Judgement

SEED, LEVEL = 1, "quick"


def quiet(done: int, of: int) -> None:
    del done, of


def planned(*faults: str, per_form: int = 3) -> tuple[Trial, ...]:
    return tuple(trial for trial in trials(SEED, per_form=per_form) if trial.fault in faults)


HEALTHY = Healthy()
"""What healthy GPUs answer, computed once for all tests here: it does not depend on what is planted or left out."""


def carried(
    trial_list: Sequence[Trial], without: tuple[str, ...] = (), *, healthy: Healthy = HEALTHY
) -> tuple[tuple[Outcome, ...], Suite]:
    tests = suite(TESTS, LEVEL, healthy, without)
    return all_trials(tuple(trial_list), tests, healthy, seed=SEED, most=QUICK_CASES, tick=quiet), tests


@pytest.mark.timeout(900)  # half a minute on a core of its own
def test_the_quick_form_meets_its_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "coverage.json"
    code = main(["coverage", "--quick", "--json", str(path)])
    report = json.loads(path.read_text())
    shown = capsys.readouterr().out
    assert report["exit_code"] == code
    faults = {one["fault"]: one for one in report["per_fault"]}
    assert set(faults) == set(WEIGHTS) | set(SETS)
    without_test = [name for name, one in faults.items() if one["weight"] and not one["tests"]]
    for name, one in faults.items():
        if one["tests"]:
            assert one["detection"] > 0.9, name
            assert one["fired"] >= one["detected"], name
            assert one["interval"][0] <= one["detected"] / one["trials"] <= one["interval"][1]
        assert name in shown
    assert report["best_peer"]["ratio"] >= FACTOR
    assert report["best_peer"]["weighted_detection"] == max(p["weighted_detection"] for p in report["peers"])
    assert {p["name"] for p in report["peers"]} == {"gpu-burn", "gpu-fryer", "dcgm-diagnostic", "rvs"}
    assert [one["name"] for one in report["ablations"]] == ["xor", "scalar"]
    assert all(one["weighted_detection"] < report["weighted_detection"] for one in report["ablations"])
    assert report["attribution"] == 1.0
    assert report["false_quarantines"] == 0
    assert all(one["kept"] for one in report["scenarios"])
    verdicts = {one["fault"]: one["verdict"] for one in report["scenarios"]}
    assert verdicts["F20"] == "fail"
    assert {verdict for fault, verdict in verdicts.items() if fault.startswith(("F21", "F22"))} == {"not_judged"}
    assert {one["fault"][:3] for one in report["scenarios"]} == {"F19", "F20", "F21", "F22"}
    assert report["clean_launches"] > 100
    assert report["false_verdict_upper_bound"] == pytest.approx(3 / report["clean_launches"], rel=0.01)
    if without_test:  # a model whose workload does not exist counts as missed, and is named
        assert all(name in " ".join(report["why"]) for name in without_test)
    else:
        assert (code, report["why"]) == (ExitCode.GOOD, [])
        assert report["weighted_detection"] >= DETECTION


PAIRS = [
    # (what is left out, a test that is gone or less without it, the fault that nothing else finds)
    (("*/int8*", "*/fp8*"), "gemm.exact", "F01"),
    (("*/bf16*", "*/fp16*"), "gemm.exact", "F03"),
    (("*/fp8*",), "gemm.exact", "F07"),
    (("sfu",), "sfu", "F07.exp2"),
    (("sfu",), "sfu", "F07.convert"),
    (("attention",), "attention", "F07.dq"),
]
PRESENT = [pair for pair in PAIRS if pair[1] in TESTS]


@pytest.mark.parametrize(("without", "test", "fault"), PRESENT)
def test_a_test_that_alone_finds_a_fault_is_missed(without: tuple[str, ...], test: str, fault: str) -> None:
    whole, tests = carried(planned(fault))
    assert any(name == test for name in tests.cases)
    part, _ = carried(planned(fault), without)
    assert all(outcome.detected for outcome in whole)
    lost = [before.trial for before, after in zip(whole, part, strict=True) if not after.detected]
    assert lost
    assert detection(part, lambda o: o.detected) < DETECTION
    # The whole harness says so: every other model found, this one as measured.
    others = tuple(found(trial) for trial in ALL_TRIALS if trial.fault != fault)
    with_it, without_it = measured(others + whole), measured(others + part)
    assert decide(summarise(with_it), with_it) == (ExitCode.GOOD, [])
    code, why = decide(summarise(without_it), without_it)
    assert code is ExitCode.BAD
    assert f"blind spot: {fault} (" in " ".join(why)


def found(trial: Trial, *, alarms: frozenset[str] = frozenset(), detected: bool = True) -> Outcome:
    return Outcome(
        trial=trial,
        eligible=("gemm.exact",),
        fired=1,
        blamed=(trial.inject.gpu,) if detected else (),
        fault_class=FaultClass.CHIP_PERSISTENT if detected else FaultClass.NONE,
        found_by=("gemm.exact",) if detected else (),
        alarms=alarms,
    )


PASSED = Judgement(verdict=Verdict.PASS, why="", gpus=(), tests=(), wrongs=(), injected=())


def measured(outcomes: tuple[Outcome, ...], *, clean: Judgement = PASSED) -> Measured:
    return Measured(outcomes=outcomes, scenarios=(), clean=clean, clean_launches=1000)


ALL_TRIALS = trials(SEED, per_form=3)


def test_all_found_and_nobody_else_sees_them_meets_the_targets() -> None:
    what = measured(tuple(map(found, ALL_TRIALS)))
    report = summarise(what)
    assert report["weighted_detection"] == pytest.approx(1.0)
    assert report["best_peer"]["ratio"] is None
    assert decide(report, what) == (ExitCode.GOOD, [])


@pytest.mark.parametrize("model", [model for model, weight in WEIGHTS.items() if weight >= 6])
def test_a_model_of_weight_that_is_missed_misses_the_target(model: str) -> None:
    what = measured(tuple(found(trial, detected=trial.model != model) for trial in ALL_TRIALS))
    report = summarise(what)
    assert report["weighted_detection"] == pytest.approx(1 - WEIGHTS[model] / sum(WEIGHTS.values()))
    code, why = decide(report, what)
    assert code is ExitCode.BAD
    assert why[0].endswith(f": {model}")
    assert all(f"blind spot: {model}" in reason for reason in why[1:])


def test_a_peer_that_sees_more_than_half_misses_the_target() -> None:
    seen = [found(trial, alarms=frozenset({"rvs"} if trial.form == "intermittent" else ())) for trial in ALL_TRIALS]
    assert decide(summarise(measured(tuple(seen))), measured(tuple(seen)))[0] is ExitCode.GOOD
    more = [replace(one, alarms=frozenset({"rvs"})) if one.trial.model == "F01" else one for one in seen]
    code, why = decide(summarise(measured(tuple(more))), measured(tuple(more)))
    assert code is ExitCode.BAD
    assert "the best peer (rvs)" in why[0]


def test_blaming_a_healthy_gpu_misses_the_targets() -> None:
    outcomes = [found(trial) for trial in ALL_TRIALS]
    beside = tuple((outcomes[0].trial.inject.gpu + step) % GPUS for step in range(2))
    outcomes[0] = replace(outcomes[0], blamed=beside)
    what = measured(tuple(outcomes))
    report = summarise(what)
    assert report["false_quarantines"] == 1
    assert report["attribution"] == pytest.approx(1 - 1 / len(outcomes))
    assert "1 healthy GPUs blamed" in " ".join(decide(report, what)[1])


def test_what_cannot_be_judged_is_not() -> None:
    idle = measured(tuple(replace(found(trial, detected=False), fired=0) for trial in ALL_TRIALS))
    assert decide(summarise(idle), idle)[0] is ExitCode.NOT_JUDGED
    dirty = measured(tuple(map(found, ALL_TRIALS)), clean=replace(PASSED, verdict=Verdict.FAIL, why="GPU 3"))
    assert decide(summarise(dirty), dirty) == (ExitCode.NOT_JUDGED, ["a run without a fault did not pass: GPU 3"])


def test_half_of_the_trials_are_persistent_and_every_datapath_has_its_turn() -> None:
    every = by_model(map(found, ALL_TRIALS))
    for model, outcomes in every.items():
        forms = {outcome.trial.form for outcome in outcomes}
        assert forms == {"F01": {"persistent"}, "F02": {"intermittent"}}.get(model, set(FORMS))
    weight = {form: sum(WEIGHTS.get(t.model, 0) / len(every[t.model]) for t in ALL_TRIALS if t.form == form)
              for form in FORMS}  # fmt: skip
    assert weight["persistent"] / sum(weight.values()) == pytest.approx(0.5, abs=0.05)
    assert {t.unit for t in ALL_TRIALS if FAULTS[t.fault].in_arithmetic} == {"16 bit", "8 bit", "32 bit"}


def test_the_same_seed_gives_the_same_outcomes() -> None:
    some = planned("F04", "F08", "F13", per_form=2)
    assert carried(some)[0] == carried(some, healthy=Healthy())[0]
    assert trials(1, per_form=2) != trials(2, per_form=2)


def test_a_fault_in_one_datapath_spares_the_others() -> None:
    healthy = HEALTHY
    tests = suite(TESTS, LEVEL, healthy, ("*/int8*", "*/fp8*"))
    trial = next(t for t in planned("F01") if t.unit == "8 bit")
    assert all(unit_of(case) != "8 bit" for case in tests.all_cases)
    outcome = carry_out(trial, tests, healthy, seed=SEED, most=None)
    assert (outcome.fired, outcome.detected, outcome.blamed) == (0, False, ())
    launches, clean = clean_run(tests, healthy, seed=SEED)
    assert clean.verdict is Verdict.PASS
    assert launches > 0


def test_tests_and_cases_can_be_left_out() -> None:
    one = Case(test="gemm.exact", name="library 64", dtype="fp8e4m3", exact=True, rate_name="r")
    for pattern in ("gemm.exact", "*/fp8*", "gemm.*/library*"):
        assert left_out(one, (pattern,))
    assert not left_out(one, ("*/bf16*", "sfu", "gemm"))
    assert unit_of(one) == "8 bit"
    assert unit_of(replace(one, test="sfu")) == "32 bit"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Asked(seed=1, quick=True, level="nope"), "no such level"),
        (Asked(seed=-1, quick=True, level="smoke"), "give a number from 0"),
        (Asked(seed=1, quick=True, level="smoke", without=("*",)), "no test is left"),
    ],
)
def test_mistakes_are_refused(asked: Asked, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        measure(asked)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--level", "nope"], "no such level"),
        (["--json", "/nonexistent/x.json"], "cannot be written"),
        (["--seed", "x"], "not a valid integer"),
    ],
)
def test_mistakes_on_the_command_line_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["coverage", "--quick", *arguments]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
