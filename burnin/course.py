"""Carries out a schedule: slice after slice, each a task of a session; what they found is kept, small and on disk.

Which slice comes next is `burnin.schedule`'s, what its results mean the verdict's. No torch here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from burnin.asking import convicted
from burnin.like import Aim, Toward, near, toward
from burnin.schedule import Done, Kind, Plan, Slice, next_slice, planned_seconds
from burnin.session import Session, Task, common_seed, merge
from burnin.spec import Case, Inject
from burnin.telling.progress import Progress
from burnin.telling.result import State
from burnin.tests import Declaration, Effort
from burnin.verdict.condense import condense
from burnin.verdict.evidence import Evidence

WARMING = "gemm.vote"
"""The test whose work warms a GPU before a directed slice: it holds the power limit (692 of 700 W on an H200)."""
STRETCH_S = 20.0
"""One stretch of work or rest before a directed slice; an H200 is halfway to its end temperature in less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One test as this run does it."""

    declaration: Declaration
    cases: tuple[Case, ...]
    effort: Effort
    """Of the first pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """See the module. `go` may be called once."""

    plan: Plan
    works: Mapping[str, Work]
    state: State
    progress: Progress
    inject: Mapping[str, Inject]
    aims: tuple[Aim, ...]
    stand_in: bool
    """Whether time is that of the plan: results on stand-ins for GPUs must not depend on how fast they are computed."""
    retention_s: float
    session: Callable[[Declaration], Session]
    """The session for a test."""
    resting: Session
    """Whose GPUs can be left alone."""
    again: Callable[[int], Evidence | None]
    """Plants faults once more, in slice so and so: the evidence, or None when they were not found."""
    elapsed_s: Callable[[], float]
    """Since the run began, without interruptions."""
    keep: Callable[[tuple[Done, ...], Evidence], None]
    """Hears after each slice what was done so far, and what this slice found."""

    def go(self, done: tuple[Done, ...]) -> None:
        """Do all that is left of the plan after `done`. Raises StoppedError."""
        self.state.done = done
        while (slice_ := next_slice(self.plan, done, self._now_s(done))) is not None:
            begun_s = self.elapsed_s()
            slice_ = self._warm_enough(slice_, done)
            carried = self._carry_out(slice_, done)
            if carried is None:
                return
            found, rounds = carried
            test, elapsed_s = slice_.test, self.elapsed_s() - begun_s
            if test:
                self.state.test_elapsed_s[test] = self.state.test_elapsed_s.get(test, 0.0) + elapsed_s
            casts = [cast for cast in found.casts if cast.test == test and not cast.retest]
            done += (Done(slice=slice_, elapsed_s=elapsed_s, rounds=rounds if casts else 0),)
            self.state.done = done
            if (aim := self._aim(slice_)) is not None:
                self.state.aimed[test] = near(aim, casts)
            self.keep(done, found)

    def take(self, found: Evidence) -> None:
        """Add evidence to that of the run; of a run that takes turns, rounds in which all agreed are added up."""
        self.state.evidence = merge(self.state.evidence, found)
        if self.plan.turns:
            apart = {common_seed(test) for test in self.works}
            self.state.evidence = condense(self.state.evidence, apart=apart)

    def _now_s(self, done: tuple[Done, ...]) -> float:
        return planned_seconds(done) if self.stand_in else self.elapsed_s()

    def _aim(self, slice_: Slice) -> Aim | None:
        return next((one for one in self.aims if one.test == slice_.test), None) if slice_.kind is Kind.LIKE else None

    def _warm_enough(self, slice_: Slice, done: tuple[Done, ...]) -> Slice:
        """The slice, or first another one after which the GPU is about as warm as it was when it failed."""
        aim = self._aim(slice_)
        if aim is None or aim.celsius is None:
            return slice_
        tries = len(list(takewhile(lambda one: one.slice.kind in {Kind.WARM, Kind.REST}, reversed(done))))
        step = toward(aim, self.resting.rest(0.0), tries)
        if step is Toward.WORK and WARMING in self.works:
            return replace(slice_, kind=Kind.WARM, test=WARMING, seconds=STRETCH_S)
        return replace(slice_, kind=Kind.REST, test="", seconds=STRETCH_S) if step is Toward.REST else slice_

    def _carry_out(self, slice_: Slice, done: tuple[Done, ...]) -> tuple[Evidence, int] | None:
        """The evidence of a slice and its rounds; None when the run must not go on."""
        found: Evidence | None
        rounds = 1
        if slice_.kind is Kind.REST:
            self.resting.rest(slice_.seconds)
            found = replace(self.state.evidence, casts=(), proofs=(), examined=())
        elif slice_.test not in self.works:
            found = self.again(slice_.number)
        else:
            work = self.works[slice_.test]
            first = sum(one.rounds for one in done if one.slice.test == slice_.test)
            before = sum(one.slice.kind is Kind.LIKE and one.slice.test == slice_.test for one in done)
            task = self._task(work, slice_, first=first, before=before)
            session = self.session(work.declaration)
            found = session.carry_out(task)
            rounds = session.rounds
        if found is None:
            return None
        self.take(found)
        return found, rounds

    def _task(self, work: Work, slice_: Slice, *, first: int, before: int) -> Task:
        """The task of a slice, after `first` rounds of the test and `before` directed slices of it."""
        declaration, effort, aim = work.declaration, work.effort, self._aim(slice_)
        whole = slice_.kind is Kind.PASS
        if not whole:
            effort = replace(effort, rounds=1, seconds=0.0 if self.stand_in else slice_.seconds)
        elif self.plan.turns:
            effort = replace(effort, seconds=0.0)  # the turns fill the time
        seeds = aim.seeds if aim is not None else ()
        turned = before % max(1, len(seeds))
        aimed = tuple(case for case in work.cases if aim is not None and case.name in aim.cases)
        return Task(
            test=declaration.id,
            # One hold in the first ballot, one in its retest.
            declaration=replace(declaration, max_seconds=declaration.max_seconds + self.retention_s),
            cases=aimed or work.cases,
            effort=effort,
            inject=self.inject,
            seed=self.plan.seed,
            first=first,
            again=seeds[turned:] + seeds[:turned],
            known=frozenset() if whole else convicted(self.state.evidence),
            common=whole and declaration.common and not declaration.exact,
            examine=not declaration.together,
        )
