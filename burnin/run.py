"""A run from its options to its result: discovers, starts the children, tests, gathers evidence. No torch here.

What is asked of whom follows `weigh`; what it means is `judge`'s; what is written is `report`'s.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from burnin import selftest
from burnin.checkpoint import Checkpoint, about
from burnin.checkup import checked, counted_from
from burnin.collectives.gang import Gang
from burnin.course import Course, Work
from burnin.ground import HOST, HOST_LIMIT_S, LOOKOUT, Ground
from burnin.keeping import Keeping
from burnin.listing import list_all, note_missing
from burnin.options import Options, check
from burnin.planning import cases_of, hard_seconds, plan_of, retention_of
from burnin.processes.children import Children
from burnin.processes.wire import Count, made, part
from burnin.schedule import Done, Kind, Slice
from burnin.session import Session, merge, round_seed
from burnin.spec import Case, Inject
from burnin.stop import Stop, StoppedError
from burnin.telling.progress import Progress
from burnin.telling.result import Result, State, conclude
from burnin.tests import SELFTEST, SELFTEST_WORKLOAD, TESTS, Declaration, Effort, chosen
from burnin.verdict.evidence import Death, Evidence, Quota
from burnin.verdict.health import Counters
from burnin.verdict.opinions import witnesses
from burnin.verdict.weigh import weigh


def run(
    options: Options,
    *,
    stop: Stop,
    progress: Progress,
    monotonic: Callable[[], float],
    wall: Callable[[], float],
    announce: Callable[[], None] = lambda: None,
    table: Mapping[str, Declaration] = TESTS,
) -> Result:
    """Burn in.

    Args:
        options: What the user asked for.
        stop: Says when to end early.
        progress: Hears what happens.
        monotonic: Clock for durations, in seconds.
        wall: Clock for the record, in seconds since 1970.
        announce: Called once when everything that can be refused has been checked, before the first test.
        table: The tests that exist.

    Raises:
        SpecError: The options ask for something that does not exist or cannot work (exit code 2).
        CannotJudgeError: There are no GPUs, or others use them (exit code 3, no report).
    """
    check(options)
    declarations = chosen(options.level, options.tests, table)
    started_at_s = wall()
    state = State(backend=options.backend)
    with Children(monotonic=monotonic, stop=stop) as children:
        runner = _Runner(
            options,
            declarations,
            table=table,
            state=state,
            children=children,
            stop=stop,
            progress=progress,
            monotonic=monotonic,
            announce=announce,
        )
        try:
            runner.go()
        except StoppedError:
            state.gaps.append(stop.why)
            runner.rescue()
        own = [death.why for death in children.deaths if death.gpu == HOST]
        state.notes += [f"the process that lists devices and checks the CPU was started again: {why}" for why in own]
    progress.close()
    return conclude(
        state,
        options,
        declarations,
        deaths=runner.deaths,
        started_at_s=started_at_s,
        elapsed_s=runner.elapsed_s(),
    )


class _Runner:
    """The phases of a run."""

    def __init__(
        self,
        options: Options,
        declarations: tuple[Declaration, ...],
        *,
        table: Mapping[str, Declaration],
        state: State,
        children: Children,
        stop: Stop,
        progress: Progress,
        monotonic: Callable[[], float],
        announce: Callable[[], None],
    ) -> None:
        self._stop = stop
        self._announce = announce
        self._options = options
        self._declarations = declarations
        self._table = table
        self._state = state
        self._children = children
        self._progress = progress
        self._monotonic = monotonic
        self._session: Session | None = None
        self._course: Course | None = None
        self._keeping = Keeping(options, progress, state.notes)
        self._kept: Checkpoint | None = None
        self._begun_s = monotonic()
        self._before: dict[str, Counters] = {}
        self._setups: dict[str, dict[str, Any]] = {}

    @property
    def deaths(self) -> tuple[Death, ...]:
        """Of processes of GPUs, also of an earlier process of this run."""
        earlier = self._kept.evidence.deaths if self._kept is not None else ()
        return earlier + tuple(death for death in self._children.deaths if death.gpu not in {HOST, LOOKOUT})

    def elapsed_s(self) -> float:
        """Since the run began, without the time in which it was interrupted."""
        earlier_s = self._kept.elapsed_s if self._kept is not None else 0.0
        return earlier_s + self._monotonic() - self._begun_s

    def go(self) -> None:
        """All phases, in order. Raises StoppedError, SpecError, CannotJudgeError."""
        ground = Ground(
            self._options, state=self._state, children=self._children, stop=self._stop, monotonic=self._monotonic
        )
        ordinals = ground.discover()
        state, options = self._state, self._options
        inject = {d.gpu: one for one in options.inject for d in state.devices if d.index == one.gpu}
        cores = witnesses(os.sched_getaffinity(0), seed=round_seed(options.seed, "witnesses"))
        state.evidence = replace(state.evidence, devices=state.devices, injected=options.inject, cores=cores)
        self._about = about(options, state.devices, state.versions, state.backend)
        self._kept = self._keeping.resumed(self._about)
        self._limit_time()
        ground.check_cores(self._declarations)
        ground.look()
        self._start(ordinals)
        session = self._session = Session(
            self._children,
            state.devices,
            monotonic=self._monotonic,
            progress=self._progress,
            cores=state.evidence.cores,
        )
        computed = [d for d in self._declarations if d.workload is not None and state.backend in d.efforts]
        exact = self._table[SELFTEST_WORKLOAD]
        listed, planted = list_all(session, computed, inject, borrowed=exact)
        cases = cases_of(options, state.backend, listed)
        state.notes += [f"planted on GPU {gpu}: {what}" for gpu, what in planted]
        if options.tests:
            state.notes.append(f"the tests were named: this is no verdict of level {options.level}")
        self._announce()
        self._progress.devices(state.devices)
        note_missing(session, state, computed, named=options.tests)
        computed = [d for d in computed if d.id not in session.missing]
        state.evidence = replace(state.evidence, quotas={d.id: _quota(d) for d in computed})
        self._before = self._count()
        self._course = self._planned(session, computed, cases, inject)
        done = self._resume()
        tried = self._selftest(session, cases[exact.id], inject, after=len(done))
        if tried is not None:
            ground.give_way()
            self._course.go(done or tried)
        self._judge_health(self._count())
        ground.look_again()

    def rescue(self) -> None:
        """After a stop: keep what the slice in progress had found."""
        partial = self._session.partial if self._session is not None else None
        if partial is not None and self._course is not None:
            self._course.take(partial)
            self._keeping.expose(partial)

    def _start(self, ordinals: Mapping[str, int]) -> None:
        """Start the processes of the GPUs."""
        state = self._state
        # Proofs run on the CPU, side by side; a GPU that is computed on a CPU has one thread, as its neighbours do.
        threads = max(1, len(os.sched_getaffinity(0)) // len(state.devices)) if state.backend == "cuda" else 1
        world = len(state.devices) if state.backend == "sim" else None
        retention_s = retention_of(self._options, state.backend)
        for device in state.devices:
            setup = {"backend": state.backend, "gpu": device.gpu, "ordinal": ordinals.get(device.gpu, 0)}
            setup |= {"threads": threads, "world": world, "retention_s": retention_s}
            self._setups[device.gpu] = setup
            self._children.start(device.gpu, self._setups[device.gpu])

    def _limit_time(self) -> None:
        """End a level that takes much longer than it should, whatever it is doing then."""
        hard_s = hard_seconds(self._options, self._state.backend)
        if hard_s is not None:
            why = f"level {self._options.level} was ended: it took more than {hard_s:.0f} s"
            self._stop.when(lambda: self.elapsed_s() > hard_s, why)

    def _planned(
        self,
        session: Session,
        computed: list[Declaration],
        cases: Mapping[str, tuple[Case, ...]],
        inject: Mapping[str, Inject],
    ) -> Course:
        state, options = self._state, self._options
        exact = self._table[SELFTEST_WORKLOAD]

        def session_of(declaration: Declaration) -> Session:
            if declaration.together and state.backend != "sim":  # simulated links need no second process
                session.rest(0.0)  # the processes that are joined need memory, too, and a march has taken nearly all
                self._session = self._ganged()
            else:
                self._session = session
            return self._session

        def again(number: int) -> Evidence | None:
            seed = round_seed(options.seed, SELFTEST, number)
            return selftest.tried(session, exact, cases[exact.id], inject, state=state, seed=seed)

        def keep(done: tuple[Done, ...], found: Evidence) -> None:
            self._keeping.expose(found)
            self._keeping.keep(self._checkpoint(done))

        return Course(
            plan=plan_of(options, state.backend, [one.id for one in computed]),
            works={
                one.id: Work(declaration=one, cases=cases[one.id], effort=one.efforts[state.backend])
                for one in computed
            },
            state=state,
            progress=self._progress,
            inject=inject,
            aims=options.like,
            stand_in=state.backend != "cuda",
            retention_s=retention_of(options, state.backend),
            session=session_of,
            resting=session,
            again=again,
            elapsed_s=self.elapsed_s,
            keep=keep,
        )

    def _checkpoint(self, done: tuple[Done, ...]) -> Checkpoint:
        return Checkpoint(
            about=self._about,
            elapsed_s=self.elapsed_s(),
            done=done,
            evidence=replace(self._state.evidence, deaths=self.deaths),
            before=self._before,
            test_elapsed_s=self._state.test_elapsed_s,
            notes=tuple(self._state.notes),
        )

    def _resume(self) -> tuple[Done, ...]:
        """Take up what an earlier process of this run left: the slices that it did."""
        kept, state = self._kept, self._state
        if kept is None:
            return ()
        state.evidence = merge(state.evidence, kept.evidence)
        state.notes += [note for note in kept.notes if note not in state.notes]
        state.test_elapsed_s |= kept.test_elapsed_s
        self._before = counted_from(kept.before, self._before)
        return kept.done

    def _selftest(
        self, session: Session, cases: tuple[Case, ...], inject: Mapping[str, Inject], *, after: int
    ) -> tuple[Done, ...] | None:
        """The record of the self-test; None when the run must not go on.

        A run that goes on, `after` so many slices, has the evidence of its first self-test; of this one, which plants
        other faults, it takes what was wrong in it.
        """
        begun_s = self._monotonic()
        exact, seed = self._table[SELFTEST_WORKLOAD], self._options.seed
        seed = round_seed(seed, SELFTEST, "resumed", after) if after else seed
        found = selftest.tried(session, exact, cases, inject, state=self._state, seed=seed)
        elapsed_s = self._monotonic() - begun_s
        self._state.test_elapsed_s.setdefault(SELFTEST, elapsed_s)
        if found is None:
            return None
        if not after or weigh(found).wrongs:
            self._state.evidence = merge(self._state.evidence, found)
        first = Slice(number=0, kind=Kind.PASS, test=SELFTEST, seconds=0.0)
        return (Done(slice=first, elapsed_s=elapsed_s, rounds=1),)

    def _ganged(self) -> Session:
        """A session whose votes are cast by processes that are joined."""
        gang = Gang(
            self._children, self._setups, monotonic=self._monotonic, stop=self._stop, note=self._state.notes.append
        )
        return Session(gang, self._state.devices, monotonic=self._monotonic, progress=self._progress)

    def _count(self) -> dict[str, Counters]:
        """The health counters of every GPU that answers."""
        counted: dict[str, Counters] = {}
        self._progress.test("health", Effort(launches=1, rounds=1))
        self._children.ask(
            {gpu: [Count()] for gpu in self._children.living},
            test="health",
            quiet_s=HOST_LIMIT_S,
            limit_s=HOST_LIMIT_S,
            heard=lambda gpu, answer: counted.update({gpu: made(Counters, part(answer, "counters"))}),
        )
        return counted

    def _judge_health(self, after: Mapping[str, Counters]) -> None:
        required = any(d.id == "health" and self._state.backend in d.required for d in self._declarations)
        checked(self._state, self._before, after, required=required, named="health" in self._options.tests)


def _quota(declaration: Declaration) -> Quota:
    return Quota(min_launches=declaration.min_launches, min_bytes=declaration.min_bytes)
