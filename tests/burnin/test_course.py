"""A course with a session that only remembers: passes, turns, directed slices, who is warmed, what ends it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from burnin.course import WARMING, Course, Work
from burnin.levels import LEVELS
from burnin.like import Aim
from burnin.options import Options
from burnin.planning import cases_of, fills, hard_seconds, plan_of, retention_of, seconds_of
from burnin.schedule import Done, Kind, Plan
from burnin.spec import Ballot, Case
from burnin.task import Task
from burnin.telling.progress import Lines
from burnin.telling.result import State
from burnin.tests import TESTS, Declaration, Effort, chosen
from burnin.verdict.evidence import Cast, Evidence
from tests.burnin.judge_evidence import devices

ROUND_S = 2.0


@dataclass
class Fake:
    """A session on two GPUs and a clock: a round takes `ROUND_S`."""

    tasks: list[Task] = field(default_factory=list)
    rested: list[float] = field(default_factory=list)
    celsius: float = 40.0
    now_s: float = 0.0
    dead: bool = False
    rounds: int = 0

    def carry_out(self, task: Task) -> Evidence:
        self.tasks.append(task)
        casts: list[Cast] = []
        begun_s = self.now_s
        while not self.dead and (not casts or self.now_s - begun_s < task.effort.seconds):
            iteration = task.first + len(casts) // 2
            self.now_s += ROUND_S
            self.celsius += 10.0 * (task.test == WARMING)
            ballot = Ballot(
                case=task.cases[0].name, iteration=iteration, seed=iteration, fingerprints=(("1", 4),), launches=4,
                bytes=1 << 13, flops=1, elapsed_s=1.0,
            )  # fmt: skip
            casts += [Cast(gpu=f"gpu{i}", test=task.test, ballot=ballot) for i in range(2)]
        self.rounds = len(casts) // 2
        cases = {(task.test, case.name): case for case in task.cases}
        return Evidence(devices=devices(2), cases=cases, quotas={}, casts=tuple(casts))

    def rest(self, seconds: float) -> dict[str, float | None]:
        self.now_s += seconds
        self.celsius -= seconds
        self.rested += [seconds] if seconds else []
        return {"gpu1": self.celsius, "gpu0": 90.0}


class _Silent:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None: ...


def work(test: str) -> Work:
    cases = tuple(Case(test=test, name=name, dtype="bf16", exact=False, rate_name="r") for name in ("one", "two"))
    return Work(declaration=TESTS[test], cases=cases, effort=Effort(launches=4, rounds=1, seconds=9.0))


def course(fake: Fake, plan: Plan, *, aims: tuple[Aim, ...] = (), **more: Any) -> tuple[Course, list[tuple[Done, ...]]]:
    kept: list[tuple[Done, ...]] = []
    session: Any = fake
    session_of: Callable[[Declaration], Any] = lambda _: fake  # noqa: E731 - a lambda in a type
    return Course(
        plan=plan,
        works={test: work(test) for test in (*plan.once, *plan.turns)},
        state=State(backend="cuda", devices=devices(2), evidence=Evidence(devices=devices(2), cases={}, quotas={})),
        progress=Lines(_Silent(), monotonic=lambda: 0.0),  # type: ignore[arg-type]  # it only needs these two
        inject={},
        aims=aims,
        stand_in=False,
        retention_s=0.0,
        session=session_of,
        resting=session,
        again=more.get("again", lambda _: None),
        elapsed_s=lambda: fake.now_s,
        keep=lambda done, _: kept.append(done),
    ), kept


PLAN = Plan(once=("int", WARMING), turns=("int", WARMING), seconds=100.0, slice_seconds=5.0, seed=1)


def test_a_pass_without_turns_is_done_as_declared_and_with_turns_they_fill_the_time() -> None:
    alone, filled = Fake(), Fake()
    course(alone, replace(PLAN, turns=()))[0].go(())
    assert [task.effort.seconds for task in alone.tasks] == [9.0, 9.0]
    course(filled, PLAN)[0].go(())
    assert [task.effort.seconds for task in filled.tasks[:3]] == [0.0, 0.0, 5.0]
    assert filled.now_s == pytest.approx(PLAN.seconds, abs=5.0)


def test_no_round_has_the_number_of_another_and_only_the_pass_computes_what_hosts_share() -> None:
    fake = Fake()
    made, kept = course(fake, PLAN)
    made.go(())
    for test in PLAN.once:
        tasks = [task for task in fake.tasks if task.test == test]
        firsts = [task.first for task in tasks]
        assert firsts == sorted(set(firsts))
        assert [task.common for task in tasks] == [not TESTS[test].exact] + [False] * (len(tasks) - 1)
    assert len(made.state.evidence.casts) == 4  # two tests on two GPUs: all agreed
    assert [len(done) for done in kept] == list(range(1, len(kept) + 1))
    rounds = sum(one.rounds for one in kept[-1])
    assert sum(cast.ballot.launches for cast in made.state.evidence.casts) == 2 * 4 * rounds


def test_a_course_goes_on_after_what_was_done() -> None:
    whole, rest = Fake(), Fake()
    made, kept = course(whole, PLAN)
    made.go(())
    rest.now_s = sum(one.elapsed_s for one in kept[6])
    course(rest, PLAN)[0].go(kept[6])
    assert [(t.test, t.first) for t in rest.tasks] == [(t.test, t.first) for t in whole.tasks[7:]]


def test_when_nobody_is_left_no_turn_is_taken_for_ever() -> None:
    fake = Fake(dead=True)
    made, kept = course(fake, PLAN)
    made.go(())
    assert [one.slice.kind for one in kept[-1]] == [Kind.PASS, Kind.PASS]


AIM = Aim(test="int", cases=("two",), seeds=(7, 8), gpus=("gpu1",), celsius=70.0, watts=690.0)


def test_a_directed_slice_repeats_cases_and_seeds_at_the_temperature_of_the_failure() -> None:
    fake = Fake()
    made, kept = course(fake, replace(PLAN, like=("int",), seconds=400.0), aims=(AIM,))
    made.go(())
    like = [task for task in fake.tasks if task.again]
    assert {task.test for task in like} == {"int"}
    assert all([case.name for case in task.cases] == ["two"] for task in like)
    assert [task.again for task in like[:3]] == [(7, 8), (8, 7), (7, 8)]
    kinds = [one.slice.kind for one in kept[-1]]
    assert Kind.WARM in kinds
    assert kinds.index(Kind.WARM) < kinds.index(Kind.LIKE)
    assert [one.slice.test for one in kept[-1] if one.slice.kind is Kind.WARM] == [WARMING] * kinds.count(Kind.WARM)


def test_a_gpu_that_is_too_warm_rests() -> None:
    fake = Fake(celsius=120.0)
    made, kept = course(fake, replace(PLAN, like=("int",), seconds=400.0), aims=(AIM,))
    made.go(())
    assert fake.rested
    assert Kind.REST in [one.slice.kind for one in kept[-1]]
    assert "" not in made.state.test_elapsed_s


def test_a_level_without_tests_of_its_own_plants_faults_again_until_its_time_is_over() -> None:
    fake, planted = Fake(), list[int]()

    def again(number: int) -> Evidence | None:
        planted.append(number)
        found = fake.carry_out(Task(test="selftest", declaration=TESTS["gemm.exact"], cases=work("int").cases,
                                    effort=Effort(launches=4, rounds=1), inject={}, seed=1, first=number))  # fmt: skip
        return found if len(planted) < 4 else None

    plan = Plan(once=(), turns=("selftest",), seconds=50.0, slice_seconds=1.0, seed=1)
    made, kept = course(fake, replace(plan), again=again)
    made = replace(made, works={})
    made.go(())
    assert (planted, len(kept)) == ([0, 1, 2, 3], 3)  # the fourth was missed: the run must not go on


def options(**more: Any) -> Options:
    return replace(Options(backend="auto", level="quick", seed=1, host="h"), **more)


def test_what_takes_turns_and_for_how_long() -> None:
    assert [fills(options(level=level), "cuda") for level in LEVELS] == [True] * 7
    assert [level for level in LEVELS if fills(options(level=level), "sim")] == ["burnin", "soak"]
    assert not fills(options(tests=("int",)), "cuda")
    assert fills(options(tests=("int",), seconds=5.0), "sim")
    assert (seconds_of(options()), seconds_of(options(seconds=5.0))) == (300.0, 5.0)
    assert (hard_seconds(options(level="smoke"), "cuda"), hard_seconds(options(level="smoke"), "sim")) == (90.0, None)
    assert hard_seconds(options(tests=("int",)), "cuda") is None


def test_the_plan_of_a_level_and_of_the_shortest() -> None:
    tests = [one.id for one in chosen("burnin", ()) if one.workload is not None]
    plan = plan_of(options(level="burnin"), "cuda", tests)
    assert (plan.once, plan.cycle, plan.cycles) == (tuple(tests), "thermal", 3)
    assert set(tests) - set(plan.turns) == {"thermal", "pulse"}
    assert plan_of(options(level="self"), "cuda", []).turns == ("selftest",)
    assert plan_of(options(level="self"), "sim", []).turns == ()
    assert plan_of(options(level="burnin"), "cuda", ["int"]).cycle == ""
    directed = options(level="soak", like=(AIM, replace(AIM, test="eigh")))
    assert plan_of(directed, "cuda", ["int", "sfu"]).like == ("int",)


def test_memory_is_held_in_long_levels_in_proportion_to_their_time() -> None:
    assert [retention_of(options(level=level), "cuda") for level in LEVELS] == [0, 0, 0, 0, 1800, 1800, 0]
    assert retention_of(options(level="burnin", seconds=1440.0), "cuda") == 180.0
    assert retention_of(options(level="burnin"), "cpu") == 1.0
    assert retention_of(options(level="burnin", tests=("int",)), "cuda") == 0.0
    assert retention_of(options(level="burnin", retention_s=5.0), "cuda") == 5.0


def test_a_level_may_have_a_part_of_a_test() -> None:
    cases = {"collective.exact": tuple(
        Case(test="collective.exact", name=name, dtype="bf16", exact=True, rate_name="r")
        for name in ("all-reduce bf16 1024KiB default", "all-reduce bf16 1024KiB ring")
    )}  # fmt: skip
    assert len(cases_of(options(level="smoke"), "cuda", cases)["collective.exact"]) == 1
    assert cases_of(options(level="quick"), "cuda", cases) == cases
    assert cases_of(options(level="smoke"), "sim", cases) == cases
