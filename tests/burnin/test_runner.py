"""The runner with workloads that misbehave: hangs, crashes, a self-test that misses, tests that do not exist."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from burnin.like import Aim
from burnin.options import Options
from burnin.run import run
from burnin.session import CASTS_MAX
from burnin.spec import FaultClass, Inject, Verdict
from burnin.stop import Stop
from burnin.telling.progress import Lines
from burnin.telling.report import build
from burnin.telling.result import Result
from burnin.tests import TESTS, Declaration, Effort
from burnin.verdict.evidence import Cast

Runner = Callable[..., Result]
QUIET_S = 50.0
"""Longer than any silence of a sane process, and twice of it less than a test may take."""


class _Silent:
    """A progress that nobody reads."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


class Patience(Lines):
    """A progress, and a clock: it stands still until a process that hangs is all that the run waits for.

    A process that hangs leaves a trace in the directory of the run; the others have answered when their ballots came.
    So it does not matter how slow this machine is.
    """

    def __init__(self, others: int) -> None:
        super().__init__(_Silent(), monotonic=lambda: 0.0)  # type: ignore[arg-type]  # it only needs these two
        self._others, self._answered, self._hung, self._now_s = others, 0, 0, 0.0

    def test(self, test: str, effort: Effort) -> None:
        self._answered = 0
        super().test(test, effort)

    def cast(self, cast: Cast) -> None:
        self._answered += 1
        super().cast(cast)

    def monotonic(self) -> float:
        hung = len(list(Path().glob("was-here-*")))
        if hung > self._hung and self._answered == self._others:
            self._hung += 1
            self._now_s += QUIET_S + 1
        return self._now_s


def table(workload: str) -> dict[str, Declaration]:
    exact = replace(
        TESTS["gemm.exact"],
        workload=f"fake_workloads:{workload}",
        efforts={"sim": Effort(launches=2, rounds=1)},
        quiet_seconds=QUIET_S,
        min_launches=2,
    )
    return {"selftest": TESTS["selftest"], "health": TESTS["health"], "gemm.exact": exact}


@pytest.fixture
def burn(monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Runs a table on three simulated GPUs in children of this process."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    def burning(
        tests: dict[str, Declaration], *, fault: str = "", gpus: int = 3, patience: Patience | None = None
    ) -> Result:
        inject = (Inject(gpu=1, fault=fault, rate=1.0, seed=1),) if fault else ()
        options = Options(backend="sim", level="smoke", seed=4, host="h01", gpus=gpus, inject=inject)
        progress = patience or Lines(_Silent(), monotonic=time.monotonic)  # type: ignore[arg-type]  # see above
        clock = patience.monotonic if patience is not None else time.monotonic
        return run(options, stop=Stop(), progress=progress, monotonic=clock, wall=time.time, table=tests)

    return burning


def blamed(result: Result) -> dict[int, FaultClass]:
    return {int(gpu.gpu[-2:]): gpu.fault for gpu in result.judgement.culprits}


def test_an_honest_workload_passes(burn: Runner) -> None:
    result = burn(table("Honest"))
    assert (result.judgement.verdict, result.judgement.why) == (Verdict.PASS, "every GPU passed every test")
    assert build(result)["exit_code"] == 0


def test_a_fault_found_by_vote(burn: Runner) -> None:
    assert blamed(burn(table("Honest"), fault="F03")) == {1: FaultClass.CHIP_PERSISTENT}


def test_a_self_test_that_misses_leaves_the_run_unjudged(burn: Runner) -> None:
    result = burn(table("Deaf"))
    assert result.judgement.verdict is Verdict.NOT_JUDGED
    assert "self-test missed" in result.judgement.why
    report = build(result)
    assert [one["id"] for one in report["not_run"]] == ["gemm.exact"]
    assert {test["id"]: test["verdict"] for test in report["tests"]} == {"selftest": "not_judged", "health": "pass"}


def test_a_gpu_that_hangs_twice_is_unresponsive_and_the_others_go_on(
    burn: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = burn(table("Misbehaving"), fault="F12", patience=Patience(others=2))
    assert blamed(result) == {1: FaultClass.UNRESPONSIVE}
    assert [death.kind.value for death in result.evidence.deaths] == ["hang", "hang"]
    assert [gpu.verdict.value for gpu in result.judgement.gpus] == ["pass", "fail", "pass"]


def test_a_gpu_whose_process_crashes_is_not_judged_and_the_crash_is_named(burn: Runner) -> None:
    result = burn(table("Misbehaving"), fault="F01")
    assert (result.judgement.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})
    assert {death.why for death in result.evidence.deaths} == {"killed by signal 11"}
    assert [gpu.verdict.value for gpu in result.judgement.gpus] == ["pass", "not_judged", "pass"]


def test_the_driver_says_that_the_memory_is_bad(burn: Runner) -> None:
    result = burn(table("Misbehaving"), fault="F05")
    assert blamed(result) == {1: FaultClass.MEMORY}
    assert "\n" not in result.judgement.culprits[0].why


def test_memory_that_others_hold_is_no_verdict_on_the_gpu(burn: Runner) -> None:
    result = burn(table("Misbehaving"), fault="F06")
    assert (result.judgement.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})
    assert [gpu.verdict.value for gpu in result.judgement.gpus] == ["pass", "not_judged", "pass"]
    why = {death.why for death in result.evidence.deaths}
    assert why == {"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB; process 77 holds 120 GiB"}


def test_a_case_that_the_library_refuses_leaves_the_run_unjudged_and_the_others_run(burn: Runner) -> None:
    result = burn(table("Partly"))
    assert result.judgement.verdict is Verdict.NOT_JUDGED
    assert result.judgement.why == ("the required test gemm.exact did not run: other: torch 1 has no _int_mm")
    assert {cast.ballot.case for cast in result.evidence.casts} == {"c"}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it takes two cores to doubt one")
def test_a_core_that_miscounts_costs_a_single_gpu_nothing(burn: Runner) -> None:
    result = burn(table("Miscounting"), gpus=1)
    assert (result.judgement.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})
    cores = {shown.proof.core for shown in result.evidence.proofs}
    assert len(cores) == 3  # any, and each of two alone


def test_a_required_test_that_cannot_run_leaves_the_run_unjudged(burn: Runner) -> None:
    tests = table("Honest")
    tests["step"] = replace(TESTS["step"], efforts={"cuda": Effort(launches=1, rounds=1)}, required=frozenset({"sim"}))
    result = burn(tests)
    assert result.judgement.verdict is Verdict.NOT_JUDGED
    assert result.judgement.why == "the required test step did not run: it does not exist on sim"


@pytest.mark.parametrize(("required", "verdict"), [((), Verdict.PASS), (("sim",), Verdict.NOT_JUDGED)])
def test_a_test_that_is_missing_here_is_skipped_with_its_reason(
    burn: Runner, required: tuple[str, ...], verdict: Verdict
) -> None:
    tests = table("Honest")
    efforts = {"sim": Effort(launches=1, rounds=1)}
    tests["step"] = replace(
        TESTS["step"], workload="fake_workloads:Absent", efforts=efforts, required=frozenset(required)
    )
    result = burn(tests)
    assert result.judgement.verdict is verdict
    missing = next(one for one in result.not_run if one.test == "step")
    assert (missing.why, missing.required) == ("the library has no such operation", bool(required))


def test_every_process_dead_is_not_judged(burn: Runner) -> None:
    result = burn(table("Misbehaving"), fault="F01", gpus=2)
    assert result.judgement.verdict is Verdict.NOT_JUDGED


@pytest.mark.parametrize("gpus", [1, 3])
def test_a_gpu_that_dies_while_the_cases_are_listed_does_not_end_the_run(
    burn: Runner, gpus: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = burn(table("Stillborn"), gpus=gpus)
    assert result.judgement.verdict is Verdict.NOT_JUDGED
    assert [gpu.verdict.value for gpu in result.judgement.gpus] == ["not_judged", "pass", "pass"][:gpus]
    assert "its process crashed: killed by signal 11" in result.judgement.why


@pytest.mark.parametrize("gpus", [1, 3])
def test_a_gpu_that_hangs_under_the_self_test_is_unresponsive_and_no_missed_plant(
    burn: Runner, gpus: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = burn(table("Stuck"), gpus=gpus, patience=Patience(others=gpus - 1))
    (culprit,) = result.judgement.culprits
    assert (result.judgement.verdict, culprit.fault) == (Verdict.FAIL, FaultClass.UNRESPONSIVE)
    assert sum(gpu.verdict is Verdict.PASS for gpu in result.judgement.gpus) == gpus - 1


def test_a_run_that_was_asked_to_stop_reports_what_it_knows() -> None:
    stop = Stop()
    stop.asked, stop.why = True, "stopped by SIGTERM"
    progress = Lines(_Silent(), monotonic=time.monotonic)  # type: ignore[arg-type]  # it only needs these two
    options = Options(backend="sim", level="self", seed=4, host="h01")
    result = run(options, stop=stop, progress=progress, monotonic=time.monotonic, wall=time.time)
    report = build(result)
    assert (report["verdict"], report["why"], report["gpus"]) == ("not_judged", "stopped by SIGTERM", [])


def test_a_directed_run_repeats_the_seeds_that_failed_and_adds_up_what_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    aim = Aim(test="gemm.exact", cases=("c",), seeds=(123, 456), gpus=("SIM-h01-01",), celsius=None, watts=None)
    options = Options(backend="sim", level="soak", seed=4, host="h01", gpus=3, seconds=40.0, like=(aim,))
    progress = Lines(_Silent(), monotonic=time.monotonic)  # type: ignore[arg-type]  # it only needs these two

    def burning(*inject: Inject) -> Result:
        asked = replace(options, inject=inject)
        tests = table("Honest")
        return run(asked, stop=Stop(), progress=progress, monotonic=time.monotonic, wall=time.time, table=tests)

    bad = burning(Inject(gpu=1, fault="F03", rate=1.0, seed=1))
    assert blamed(bad) == {1: FaultClass.CHIP_PERSISTENT}
    assert {123, 456} <= {wrong.seed for wrong in bad.judgement.wrongs if wrong.test == "gemm.exact"}
    good = burning()
    assert good.judgement.verdict is Verdict.PASS
    casts = [cast for cast in good.evidence.casts if cast.test == "gemm.exact"]
    assert sum(cast.ballot.launches for cast in casts) == 3 * 2 * 21  # the pass, and twenty turns of two launches each
    assert len(casts) <= 3 * 4


def test_a_task_of_many_rounds_is_added_up_on_the_way(burn: Runner) -> None:
    tests = table("Honest")
    tests["gemm.exact"] = replace(tests["gemm.exact"], efforts={"sim": Effort(launches=2, rounds=400)})
    result = burn(tests)
    casts = [cast for cast in result.evidence.casts if cast.test == "gemm.exact"]
    assert result.judgement.verdict is Verdict.PASS
    assert sum(cast.ballot.launches for cast in casts) == 3 * 2 * 400
    assert len(casts) <= CASTS_MAX
    (done,) = (one for one in result.done if one.slice.test == "gemm.exact")
    assert done.rounds == 400
