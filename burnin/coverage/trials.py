"""Carries out the trials: one broken GPU among eight, all tests of the level, the real verdict."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from burnin.coverage.host import BACKEND, Healthy, Host, devices, unit_of
from burnin.coverage.plan import Trial, left_out
from burnin.coverage.rules import ABLATIONS, OPTIONAL_PEERS, PEERS, slow_outliers
from burnin.inject import FAULTS, eligible
from burnin.session import Session, Task, merge, round_seed
from burnin.spec import Case, Device, FaultClass, Inject
from burnin.tests import Declaration, Effort
from burnin.verdict.evidence import Evidence, Quota
from burnin.verdict.judge import Judgement, judge
from burnin.verdict.weigh import weigh

LAUNCHES, ROUNDS, RETESTS = 4, 2, 2
"""Of every case in one trial: a small part of what a run does."""
QUICK_CASES = 3
"""Cases of each test in one trial of the quick form, drawn from those that the fault can strike."""
NOMINAL_FLOPS_PER_SECOND = 1e9
"""Rate of every simulated GPU: no model makes a GPU slower, so rules that look at rates see eight equal ones."""


class _Silent:
    """Progress that nobody watches."""

    def devices(self, devices: tuple[Device, ...]) -> None: ...
    def test(self, test: str, effort: Effort) -> None: ...
    def cast(self, cast: object) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The tests that take part and their cases."""

    declarations: tuple[Declaration, ...]
    cases: Mapping[str, tuple[Case, ...]]

    @property
    def all_cases(self) -> tuple[Case, ...]:
        """The cases of all tests."""
        return tuple(case for cases in self.cases.values() for case in cases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one trial."""

    trial: Trial
    eligible: tuple[str, ...]
    """Tests that have a case the fault can strike, in the datapath where it sits."""
    fired: int
    """Launches that it changed."""
    blamed: tuple[int, ...]
    """GPUs that the verdict blames."""
    fault_class: FaultClass
    """Of the broken GPU."""
    found_by: tuple[str, ...]
    """Tests in which it was wrong."""
    alarms: frozenset[str]
    """Peers and ablations that raised an alarm."""

    @property
    def detected(self) -> bool:
        """Whether the broken GPU is blamed."""
        return self.trial.inject.gpu in self.blamed

    @property
    def right(self) -> bool:
        """Whether it alone is."""
        return self.blamed == (self.trial.inject.gpu,)


def suite(table: Mapping[str, Declaration], level: str, healthy: Healthy, without: tuple[str, ...]) -> Suite:
    """The tests of a level that exist on simulated GPUs, without those that the user leaves out."""
    cases: dict[str, tuple[Case, ...]] = {}
    chosen = []
    for declaration in table.values():
        if level in declaration.levels and BACKEND in declaration.efforts and declaration.workload is not None:
            kept = tuple(c for c in healthy.cases(declaration) if not left_out(c, without))
            if kept:
                chosen.append(declaration)
                cases[declaration.id] = kept
    return Suite(declarations=tuple(chosen), cases=cases)


def run_host(
    tests: Suite,
    host: Host,
    inject: Mapping[str, Inject],
    *,
    seed: int,
    launches: int = LAUNCHES,
    host_cpu: str = "",
) -> tuple[Evidence, Judgement]:
    """All tests on one host, and the verdict."""
    session = Session(host, host.devices, monotonic=lambda: 0.0, progress=_Silent())
    quotas = {d.id: Quota(min_launches=LAUNCHES, min_bytes=1) for d in tests.declarations}
    evidence = Evidence(devices=host.devices, cases={}, quotas=quotas)
    for declaration in tests.declarations:
        task = Task(
            test=declaration.id,
            declaration=declaration,
            cases=tests.cases[declaration.id],
            effort=Effort(launches=launches, rounds=ROUNDS if launches == LAUNCHES else 1),
            inject=inject,
            seed=seed,
            retests=RETESTS,
            examine=False,
        )
        evidence = merge(evidence, session.carry_out(task))
    evidence = replace(evidence, deaths=tuple(host.deaths), host_cpu=host_cpu)
    return evidence, judge(evidence)


def world_seed(seed: int, world: int) -> int:
    """The seed of the inputs of one world."""
    return round_seed(seed, "coverage", "world", world)


def drawn(tests: Suite, keep: Callable[[Case], bool], most: int | None, rng: random.Random) -> Suite:
    """The cases to keep, at most `most` of each test; tests without any are left out."""
    cases = {}
    for test, all_cases in tests.cases.items():
        kept = [case for case in all_cases if keep(case)]
        if most is not None and len(kept) > most:
            kept = [kept[at] for at in sorted(rng.sample(range(len(kept)), most))]
        if kept:
            cases[test] = tuple(kept)
    return Suite(declarations=tuple(d for d in tests.declarations if d.id in cases), cases=cases)


def carry_out(trial: Trial, tests: Suite, healthy: Healthy, *, seed: int, most: int | None) -> Outcome:
    """Plant one fault on one of eight GPUs and run the tests that exercise what is broken.

    On all other cases the eight GPUs compute alike, which changes no verdict. `most`: of the cases of each test.
    """
    fault = FAULTS[trial.fault]
    rng = random.Random(trial.inject.seed)  # noqa: S311 - repeatable, no secret
    tests = drawn(tests, lambda c: eligible(fault, c) and trial.unit in {None, unit_of(c)}, most, rng)
    able = tuple(tests.cases)
    if not able:  # no test runs what is broken: nothing can fire, and nobody sees it
        return Outcome(
            trial=trial, eligible=(), fired=0, blamed=(), fault_class=FaultClass.NONE, found_by=(), alarms=frozenset()
        )
    rules = {name: make() for name, make in {**PEERS, **OPTIONAL_PEERS, **ABLATIONS}.items()}
    host = Host(healthy=healthy, devices=devices(), unit=trial.unit, onlookers=tuple(rules.values()))
    target = host.devices[trial.inject.gpu].gpu
    evidence, judgement = run_host(tests, host, {target: trial.inject}, seed=world_seed(seed, trial.world))
    index = {device.gpu: device.index for device in host.devices}
    alarms = {name for name, rule in rules.items() if rule.found}
    flops = _flops(evidence)
    seconds = {gpu: done / NOMINAL_FLOPS_PER_SECOND for gpu, done in flops.items()}
    rates = {gpu: flops[gpu] / seconds[gpu] for gpu in flops if seconds[gpu]}
    if rates and target in slow_outliers(rates):
        alarms.add("gpu-fryer")
    return Outcome(
        trial=trial,
        eligible=able,
        fired=host.fired,
        blamed=tuple(sorted(index[gpu.gpu] for gpu in judgement.culprits)),
        fault_class=next(gpu.fault for gpu in judgement.gpus if gpu.gpu == target),
        found_by=tuple(dict.fromkeys(wrong.test for wrong in weigh(evidence).wrongs if wrong.gpu == target)),
        alarms=frozenset(alarms),
    )


def _flops(evidence: Evidence) -> dict[str, int]:
    done: dict[str, int] = {}
    for cast in evidence.casts:
        done[cast.gpu] = done.get(cast.gpu, 0) + cast.ballot.flops
    return done


def clean_run(tests: Suite, healthy: Healthy, *, seed: int) -> tuple[int, Judgement]:
    """A run without a fault in which every GPU computes for itself: (launches, verdict)."""
    host = Host(healthy=healthy, devices=devices(), independent=True)
    evidence, judgement = run_host(tests, host, {}, seed=world_seed(seed, 0))
    return sum(cast.ballot.launches for cast in evidence.casts), judgement


Ticker = Callable[[int, int], None]
"""(done, of): hears how far the trials are."""


def all_trials(
    planned: tuple[Trial, ...], tests: Suite, healthy: Healthy, *, seed: int, most: int | None, tick: Ticker
) -> tuple[Outcome, ...]:
    """Carry out all trials, in order."""
    outcomes = []
    for number, trial in enumerate(planned):
        outcomes.append(carry_out(trial, tests, healthy, seed=seed, most=most))
        tick(number + 1, len(planned))
    return tuple(outcomes)
