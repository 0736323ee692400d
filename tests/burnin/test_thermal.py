"""`thermal` on a simulated GPU: its bins, and the fault that only a hot chip has."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from burnin.inject import FAULTS, Scene, scene
from burnin.options import Options
from burnin.processes.senses import COOL_CELSIUS, HOT_CELSIUS, Simulated, Unfelt
from burnin.run import run
from burnin.spec import Ballot, Case, FaultClass, Inject
from burnin.stop import Stop
from burnin.telling.progress import Lines
from burnin.telling.report import build
from burnin.tests import TESTS, Effort
from burnin.workloads import Context, MissingError
from burnin.workloads.gemm import GemmExact
from burnin.workloads.thermal import COLD, COOL, PHASES, RAMP, SETTLED_CELSIUS, SLICES, SOAK, Oven, Thermal

ABOVE = FAULTS["F08.hot"].above_celsius or 0.0
HOT_ONLY = Inject(gpu=0, fault="F08.hot", rate=1.0, seed=1)
Cast = Callable[[Case], Ballot]


def context(senses: Simulated, inject: Inject | None = None) -> Context:
    return Context(backend="sim", device=torch.device("cpu"), inject=inject, alive=lambda: None, senses=senses)


def celsius(senses: Simulated) -> float:
    return senses.read().temperature_celsius or 0.0


def caster(inject: Inject | None = None) -> tuple[tuple[Case, ...], Cast]:
    """The cases, and what casts a ballot of one on one device."""
    senses, thermal = Simulated(), Thermal()
    ctx = context(senses, inject)

    def cast(case: Case) -> Ballot:
        with scene(Scene(case=case, celsius=lambda: celsius(senses))):
            return thermal.ballot(ctx, case, iteration=0, seed=3, launches=2)

    return thermal.cases(ctx), cast


def reached(ballot: Ballot) -> float:
    return dict(ballot.facts)["temperature_reached_celsius"]


def test_each_bin_has_a_slice_of_each_test() -> None:
    cases, _ = caster()
    assert len(cases) == len(PHASES) * len(SLICES)
    assert len({case.name for case in cases}) == len(cases)
    assert [case.name.split()[0] for case in cases] == [phase for phase in PHASES for _ in SLICES]
    assert {case.test for case in cases} == {"thermal"}
    assert {case.exact for case in cases} == {True, False}


def test_the_bins_are_what_they_are_called() -> None:
    cases, cast = caster()
    temperatures: dict[str, list[float]] = {}
    for case in cases:
        temperatures.setdefault(case.name.split()[0], []).append(reached(cast(case)))
    assert max(temperatures[COLD]) < COOL_CELSIUS + 1
    assert temperatures[RAMP] == sorted(temperatures[RAMP])
    assert temperatures[RAMP][0] > COOL_CELSIUS + 1
    assert min(temperatures[SOAK]) > HOT_CELSIUS - 4 * SETTLED_CELSIUS
    assert max(temperatures[COOL]) < (COOL_CELSIUS + HOT_CELSIUS) / 2 + 1


def test_a_gpu_that_has_worked_until_now_is_cold_only_when_it_gets_no_colder() -> None:
    senses, oven = Simulated(), Oven()
    senses.passed(300.0, busy=True)
    facts = dict(oven.bring(context(senses), COLD))
    assert facts["temperature_begun_celsius"] > HOT_CELSIUS - 1
    assert facts["temperature_reached_celsius"] < COOL_CELSIUS + 4 * SETTLED_CELSIUS
    assert dict(oven.bring(context(senses), SOAK))["temperature_reached_celsius"] > HOT_CELSIUS - 4 * SETTLED_CELSIUS


def test_a_healthy_gpu_gives_the_same_in_every_bin() -> None:
    cases, cast = caster()
    found: dict[str, set[str]] = {}
    for case in cases:
        ballot = cast(case)
        assert (len(ballot.fingerprints), ballot.case) == (1, case.name)
        found.setdefault(case.name.partition(" ")[2], set()).add(ballot.fingerprints[0][0])
    assert len(found) == len(SLICES)
    assert all(len(results) == 1 for results in found.values())


def test_a_fault_above_a_temperature_is_found_in_the_hot_bin_and_nowhere_else() -> None:
    cases, cast = caster(HOT_ONLY)
    struck = {case.name: cast(case) for case in cases}
    assert {name.split()[0] for name, ballot in struck.items() if ballot.fired} == {SOAK}
    assert all(reached(ballot) > ABOVE for ballot in struck.values() if ballot.fired)
    senses = Simulated()
    (case, *_) = GemmExact().cases(context(senses))
    with scene(Scene(case=case, celsius=lambda: celsius(senses))):
        cold = GemmExact().ballot(context(senses, HOT_ONLY), case, iteration=0, seed=3, launches=40)
    assert cold.fired == 0


def test_a_bin_is_reached_again_for_a_retest() -> None:
    cases, cast = caster(HOT_ONLY)
    for case in cases:
        cast(case)
    soak = next(case for case in cases if case.name.startswith(f"{SOAK} gemm.exact"))
    assert cast(soak).fired == 2
    for phase in (COLD, RAMP):
        again = next(case for case in cases if case.name.startswith(f"{phase} gemm.exact"))
        assert cast(again).fired == 0
        assert cast(soak).fired == 2


def test_an_exact_slice_is_proved_and_examined_like_its_own_test() -> None:
    senses, thermal = Simulated(), Thermal()
    cases = thermal.cases(context(senses))
    exact = next(case for case in cases if case.exact and case.name.startswith(SOAK))
    proof = thermal.prove(context(senses), exact, seed=3)
    assert (proof.case, proof.fingerprint is not None) == (exact.name, True)
    with scene(Scene(case=exact, celsius=lambda: celsius(senses))):
        found = thermal.examine(context(senses, HOT_ONLY), exact, seed=3, launches=4, right=proof.fingerprint, tiles=())
    assert found is not None
    assert found.count > 0


class Stuck(Simulated):
    """A thermometer that shows one temperature for ever."""

    def passed(self, seconds: float, *, busy: bool) -> None: ...


def test_every_wait_ends() -> None:
    oven, senses = Oven(), Stuck()
    alive: list[None] = []
    ctx = replace(context(senses), alive=lambda: alive.append(None))
    for phase in (*PHASES, *PHASES):
        oven.bring(ctx, phase)
    assert 0 < len(alive) < 1000


def test_without_a_thermometer_it_is_missing_with_the_reason() -> None:
    ctx = Context(backend="cpu", device=torch.device("cpu"), inject=None, alive=lambda: None, senses=Unfelt())
    with pytest.raises(MissingError, match="nothing tells the temperature"):
        Thermal().cases(ctx)


class _Silent:
    """A progress that nobody reads."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def test_a_run_names_the_gpu_that_is_wrong_when_hot_and_records_every_bin() -> None:
    small = replace(TESTS["gemm.exact"], efforts={"sim": Effort(launches=2, rounds=1)}, min_launches=2)
    table = {**{name: TESTS[name] for name in ("selftest", "health")}, "gemm.exact": small, "thermal": TESTS["thermal"]}
    options = Options(
        backend="sim", level="self", seed=4, host="h01", gpus=3, tests=("thermal",), inject=(replace(HOT_ONLY, gpu=1),)
    )
    progress = Lines(_Silent(), monotonic=time.monotonic)  # type: ignore[arg-type]  # it only needs these two
    report = build(run(options, stop=Stop(), progress=progress, monotonic=time.monotonic, wall=time.time, table=table))
    assert [(one["index"], one["class"]) for one in report["culprits"]] == [(1, FaultClass.CHIP_PERSISTENT.value)]
    rows = {test["id"]: test for test in report["tests"]}
    first = [one for one in rows["thermal"]["records"] if not one["retest"]]
    assert len(first) == 3 * len(PHASES) * len(SLICES)
    assert {one["case"].split()[0] for one in first} == set(PHASES)
    felt = rows["thermal"]["gpus"]
    assert [one["index"] for one in felt] == [0, 1, 2]
    assert all(one["temperature_celsius"]["max"] > ABOVE > one["temperature_celsius"]["min"] for one in felt)
    hot = [one for one in report["signatures"] if one["test"] == "thermal"]
    assert hot
    assert all(
        one["temperature_celsius"]["min"] > ABOVE
        for one in hot
        if one["against"] != "itself" and one["iteration"] is not None
    )
