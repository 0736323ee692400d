"""On a real GPU: the tests that shape the load, pulse after pulse, hot and cold, lane beside lane; and the rates."""

import time
from importlib import import_module

import pytest
import torch

from burnin.inject import Scene, scene
from burnin.processes.readers import open_reader
from burnin.processes.senses import Real, Watch
from burnin.spec import Ballot, Case, Inject
from burnin.tests import TESTS
from burnin.workloads import Context, Workload
from burnin.workloads.overlap import ALONE_EVERY
from burnin.workloads.pulse import HERTZ_CUDA, Pulse
from burnin.workloads.thermal import COLD, SOAK, Thermal

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
RECIPES = ("overlap", "rate")


def senses() -> Real:
    gpu = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    return Real(open_reader("cuda", gpu), gpu)


def context(inject: Inject | None = None) -> Context:
    return Context(backend="cuda", device=torch.device("cuda:0"), inject=inject, alive=lambda: None, senses=senses())


def workload(test: str) -> Workload:
    module, _, name = str(TESTS[test].workload).partition(":")
    made: Workload = getattr(import_module(module), name)()
    return made


def cases(*tests: str) -> list[Case]:
    if not torch.cuda.is_available():
        return []
    return [case for test in tests for case in workload(test).cases(context())]


def cast(case: Case, ctx: Context, *, launches: int = 2 * ALONE_EVERY) -> Ballot:
    with scene(Scene(case=case)):
        return workload(case.test).ballot(ctx, case, iteration=0, seed=11, launches=launches)


@pytest.mark.parametrize("case", cases(*RECIPES), ids=lambda case: f"{case.test} {case.name}")
def test_a_recipe_repeats_itself_is_proved_and_sees_a_planted_fault(case: Case) -> None:
    one, two = cast(case, context()), cast(case, context())
    assert one.fingerprints == two.fingerprints
    assert len(one.fingerprints) == 1
    assert one.flops == 0 or one.flops / one.elapsed_s > 0
    if case.exact:
        proof = workload(case.test).prove(context(), case, seed=11)
        assert proof.fingerprint == one.fingerprints[0][0], proof.why
    bad = cast(case, context(Inject(gpu=0, fault="F03", rate=1.0, seed=1)))
    assert bad.fingerprints[0][0] != one.fingerprints[0][0]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", cases("pulse"), ids=lambda case: case.name)
def test_pulses_keep_their_beats_and_swing_the_power(case: Case) -> None:
    ballot = cast(case, context(), launches=4)
    facts = dict(ballot.facts)
    assert len(ballot.fingerprints) == 1
    assert ballot.launches == facts["pulses"]
    if facts["frequency_hertz"] <= 150.0:  # faster, a host that is busy elsewhere shows
        assert facts["period_error_max_ratio"] < 0.5
        assert facts["beats_missed"] <= 2
    if facts["frequency_hertz"] <= 1.5:  # slow enough for a sensor that is read every 20 ms
        assert facts["power_high_watts"] > 1.5 * facts["power_low_watts"]


def test_a_rare_fault_on_load_steps_shows_within_one_series() -> None:
    case = next(case for case in Pulse().cases(context()) if case.name == f"bf16 {HERTZ_CUDA[-1]:g} Hz")
    ballot = cast(case, context(Inject(gpu=0, fault="F08", rate=0.02, seed=1)), launches=400)
    assert ballot.fired > 0
    assert len(ballot.fingerprints) > 1


@pytest.mark.timeout(400)
def test_the_oven_heats_and_the_results_stay() -> None:
    ctx, thermal = context(), Thermal()
    found: dict[str, set[str]] = {}
    reached: dict[str, float] = {}
    for case in thermal.cases(ctx):
        with scene(Scene(case=case)):
            ballot = thermal.ballot(ctx, case, iteration=0, seed=11, launches=4)
        phase, _, rest = case.name.partition(" ")
        found.setdefault(rest, set()).add(ballot.fingerprints[0][0])
        reached[phase] = dict(ballot.facts)["temperature_reached_celsius"]
        assert len(ballot.fingerprints) == 1
    assert all(len(results) == 1 for results in found.values())
    assert reached[SOAK] > reached[COLD] + 10


def test_a_watch_sees_the_load() -> None:
    ctx = context()
    (case, *_) = cases("rate")
    watch = Watch(ctx.senses.read, clock=time.perf_counter)
    begun_s = time.perf_counter()
    while time.perf_counter() - begun_s < 2.0:
        cast(case, ctx)
        watch.look()
    felt = watch.end()
    if felt.power_watts is None or felt.sm_clock_hertz is None:
        pytest.skip("nothing reads this GPU's sensors")
    assert felt.readings >= 3
    assert felt.power_watts.max > 150.0
    assert felt.sm_clock_hertz.max > 5e8
