"""Who is slow: against at least three of a kind, or against an expectation; never from nothing."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from burnin.options import Options
from burnin.processes.senses import Simulated
from burnin.run import run
from burnin.spec import Ballot, Case, Device, FaultClass, Verdict
from burnin.stop import Stop
from burnin.telling.progress import Lines
from burnin.telling.report import build, summary
from burnin.tests import TESTS, Effort
from burnin.verdict.evidence import Cast, Evidence
from burnin.verdict.health import Felt, Spread
from burnin.verdict.judge import judge
from burnin.verdict.rates import Expectation, Expected, remarks, slow, with_rates
from burnin.workloads import Context
from burnin.workloads.rate import NARROW, SLOW, Rate

CASE = Case(test="rate", name="c", dtype="bf16", exact=False, rate_name="c_flops_per_second", slow_below=SLOW)


def spread(value: float) -> Spread:
    return Spread(min=value, mean=value, max=value)


HEALTHY = Felt(power_watts=spread(690.0), sm_clock_hertz=spread(1.4e9), limits=("software power cap",), readings=2)


def evidence(
    rates: Mapping[int, tuple[float, ...]],
    *,
    keys: str = "",
    case: Case = CASE,
    felt: Mapping[int, Felt] | None = None,
    **more: object,
) -> Evidence:
    """GPU → rate of each of its ballots."""
    devices = tuple(
        Device(gpu=f"g{i}", index=i, sku="part", sm_count=1, memory_bytes=1, vote_key=keys[i] if keys else "k")
        for i in rates
    )
    casts = tuple(
        Cast(
            gpu=f"g{i}",
            test="rate",
            ballot=Ballot(
                case="c", iteration=at, seed=at, fingerprints=(("1" * 16, 1),), launches=1, bytes=1, flops=1000,
                elapsed_s=1000 / rate,
            ),
            felt=(felt or {}).get(i, HEALTHY),
        )
        for i, several in rates.items()
        for at, rate in enumerate(several)
    )  # fmt: skip
    return Evidence(devices=devices, cases={("rate", "c"): case}, quotas={}, casts=casts, **more)  # type: ignore[arg-type]


def names(found: Evidence) -> list[str]:
    return [one.gpu for one in slow(found)]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({0: (100.0,), 1: (100.0,), 2: (89.0,)}, ["g2"]),
        ({0: (100.0,), 1: (100.0,), 2: (91.0,)}, []),
        ({0: (100.0,), 1: (50.0,)}, []),  # of two, nobody can say which one is slow
        ({0: (100.0,)}, []),
        ({0: (100.0,), 1: (101.0,), 2: (70.0,), 3: (80.0,), 4: (99.0,)}, ["g2", "g3"]),
        ({0: (100.0,), 1: (100.0,), 2: (20.0, 100.0)}, []),  # one ballot was interrupted: the best one counts
        ({0: (50.0,), 1: (50.0,), 2: (50.0,)}, []),  # all alike: only an expectation could tell
        ({0: (50.0,), 1: (50.0,), 2: (50.0,), 3: (100.0,)}, []),
    ],
)
def test_a_gpu_far_below_the_median_is_slow(rates: dict[int, tuple[float, ...]], expected: list[str]) -> None:
    assert names(evidence(rates)) == expected


def test_gpus_of_another_kind_are_not_compared() -> None:
    rates = {i: (rate,) for i, rate in enumerate((100.0, 100.0, 100.0, 60.0, 60.0, 60.0))}
    assert names(evidence(rates, keys="aaabbb")) == []
    assert names(evidence(rates, keys="aaabba")) == ["g5"]


def test_a_case_that_is_only_told_makes_nobody_slow() -> None:
    rates = {0: (100.0,), 1: (100.0,), 2: (1.0,)}
    assert names(evidence(rates, case=replace(CASE, slow_below=0.0))) == []
    assert remarks(evidence(rates, case=replace(CASE, slow_below=0.0))) == ()


def expecting(rate: float | None, error: float = 0.0) -> Expected:
    """The same of every part and case."""
    return lambda device, case, felt: Expectation(rate=rate, error=error, why="bound by L2" if rate else "no file")  # noqa: ARG005


def test_an_expectation_finds_a_host_that_is_slow_as_a_whole_and_its_absence_nobody() -> None:
    every = evidence({0: (50.0,), 1: (51.0,)})
    assert slow(every) == ()
    found = slow(every, expecting(100.0))
    assert [one.gpu for one in found] == ["g0", "g1"]
    assert "0.50 of the 100 that this part is expected to reach (bound by L2)" in found[0].why
    assert remarks(every) == (
        "rate: fewer than 3 GPUs of a kind: their rates are told, not compared",
        "rate: no expectation: no constants for this part (part): a host that is slow as a whole is not seen",
    )
    assert remarks(evidence(dict.fromkeys(range(3), (1.0,))), expecting(1.0)) == ()
    assert remarks(evidence(dict.fromkeys(range(3), (1.0,))), expecting(None)) == (
        "rate: no expectation: no file: a host that is slow as a whole is not seen",
    )


@pytest.mark.parametrize(
    ("rate", "error", "blamed"),
    [
        (89.0, 0.0, True),
        (91.0, 0.0, False),
        (80.0, 0.2, False),
        (73.0, 0.2, False),
        (71.0, 0.2, True),
        (1.0, 0.99, False),
    ],
)
def test_an_expectation_blames_nobody_within_its_own_error(rate: float, error: float, *, blamed: bool) -> None:
    assert bool(slow(evidence({0: (rate,)}), expecting(100.0, error))) == blamed


def test_peers_are_compared_without_the_models_error() -> None:
    found = slow(evidence({0: (100.0,), 1: (100.0,), 2: (89.0,)}), expecting(100.0, 0.5))
    assert [one.gpu for one in found] == ["g2"]
    assert "the median of 3" in found[0].why


def test_the_reason_names_clock_power_temperature_and_what_holds_it_back() -> None:
    hot = Felt(
        temperature_celsius=spread(88.0), power_watts=spread(480.0), sm_clock_hertz=spread(1.1e9), readings=2,
        limits=("software power cap", "hardware thermal slowdown"),
    )  # fmt: skip
    (one,) = slow(evidence({0: (100.0,), 1: (100.0,), 2: (80.0,)}, felt={2: hot}))
    for words in ("0.80 of the median of 3", "1100 MHz (others 1400)", "480 W (others 690)", "88 °C", "held back by"):
        assert words in one.why
    assert "held back by hardware thermal slowdown" in one.why  # the power cap holds the others, too
    (unread,) = slow(evidence({0: (100.0,), 1: (100.0,), 2: (80.0,)}, felt=dict.fromkeys(range(3), Felt())))
    assert "cannot be read" in unread.why


def test_a_slow_gpu_fails_the_run_with_a_class_that_asks_for_no_quarantine() -> None:
    found = evidence({0: (100.0,), 1: (100.0,), 2: (80.0,)})
    before = judge(found)
    assert before.verdict is Verdict.PASS
    after = with_rates(before, found)
    assert after.verdict is Verdict.FAIL
    assert [(gpu.gpu, gpu.fault) for gpu in after.culprits] == [("g2", FaultClass.SLOW)]
    assert [test.verdict for test in after.tests] == [Verdict.FAIL]
    assert after.why.startswith("GPU 2 (g2): slow: rate c: ")
    healthy = evidence({0: (100.0,), 1: (100.0,), 2: (100.0,)})
    assert with_rates(judge(healthy), healthy) == judge(healthy)


def test_what_else_is_known_of_a_gpu_weighs_more_and_a_gap_leaves_all_open() -> None:
    found = evidence({0: (100.0,), 1: (100.0,), 2: (80.0,)})
    blamed = judge(found)
    memory = replace(blamed.gpus[2], verdict=Verdict.FAIL, fault=FaultClass.MEMORY, why="ECC")
    failed = replace(blamed, verdict=Verdict.FAIL, why="GPU 2", gpus=(*blamed.gpus[:2], memory))
    assert with_rates(failed, found) == failed
    gap = replace(found, gaps=("stopped",))
    assert with_rates(judge(gap), gap) == judge(gap)


class _Silent:
    """A progress that nobody reads."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None: ...


def test_a_run_names_the_slow_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.chdir(tmp_path)  # the children's
    small = {"efforts": {"sim": Effort(launches=2, rounds=1)}, "min_launches": 2}
    table = {
        **{name: TESTS[name] for name in ("selftest", "health")},
        "gemm.exact": replace(TESTS["gemm.exact"], workload="fake_workloads:Honest", **small),  # type: ignore[arg-type]
        "rate": replace(TESTS["rate"], workload="fake_rates:Sluggish", **small),  # type: ignore[arg-type]
    }
    options = Options(backend="sim", level="quick", seed=4, host="h01", gpus=3)
    progress = Lines(_Silent(), monotonic=time.monotonic)  # type: ignore[arg-type]  # it only needs these two
    report = build(run(options, stop=Stop(), progress=progress, monotonic=time.monotonic, wall=time.time, table=table))
    (culprit,) = report["culprits"]
    assert (report["verdict"], report["exit_code"], culprit["class"]) == ("fail", 1, "slow")
    assert "0.50 of the median of 3 GPUs" in culprit["why"]
    rows = {test["id"]: test for test in report["tests"]}
    assert (rows["rate"]["verdict"], rows["gemm.exact"]["verdict"]) == ("fail", "pass")
    rates = {gpu["index"]: gpu["rates"]["c_flops_per_second"] for gpu in rows["rate"]["gpus"]}
    assert min(rates, key=rates.__getitem__) == culprit["index"]
    assert any("no expectation: no constants for this part (simulated)" in note for note in report["notes"])
    assert "slow: compare its cooling" in "\n".join(summary(report))


def context(backend: str) -> Context:
    return Context(backend=backend, device=torch.device("cpu"), inject=None, alive=lambda: None, senses=Simulated())


def test_simulated_gpus_are_timed_by_their_own_clock_and_a_cpu_is_not_judged() -> None:
    workload = Rate()
    assert {case.slow_below for case in workload.cases(context("cpu"))} == {0.0}
    cases = workload.cases(context("sim"))
    assert {case.slow_below for case in cases} == {SLOW}
    assert NARROW < SLOW
    assert all(case.rate_name.endswith(("_flops_per_second", "_bytes_per_second")) for case in cases)
    ballots = [
        workload.ballot(context("sim"), case, iteration=0, seed=seed, launches=4) for case in cases for seed in (1, 2)
    ]
    assert len({ballot.flops / ballot.elapsed_s for ballot in ballots}) == 1
    measured = [workload.ballot(context("cpu"), case, iteration=0, seed=1, launches=4) for case in cases]
    assert len({ballot.flops / ballot.elapsed_s for ballot in measured}) > 1


def test_copies_are_proved_like_any_result() -> None:
    workload = Rate()
    copy = next(case for case in workload.cases(context("sim")) if case.exact)
    ballot = workload.ballot(context("sim"), copy, iteration=0, seed=5, launches=2)
    assert workload.prove(context("sim"), copy, seed=5).fingerprint == ballot.fingerprints[0][0]
    assert TESTS["rate"].levels == {"quick", "qualify", "burnin", "soak"}
