"""A run from its options to its result: discovers, starts the children, tests, gathers evidence. No torch here.

What is asked of whom follows `weigh`; what it means is `judge`'s; what is written is `report`'s.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from burnin import selftest
from burnin.collectives.gang import Gang
from burnin.listing import list_all, note_missing
from burnin.options import Options, check, check_inject, in_use, select
from burnin.processes.children import Answer, Children
from burnin.processes.wire import CheckCores, Count, Discover, Request, made, part
from burnin.session import Session, Task, merge, round_seed
from burnin.spec import Case, Device, Inject, Verdict
from burnin.stop import Stop, StoppedError
from burnin.telling.progress import Progress
from burnin.telling.result import NotRun, Result, State, conclude
from burnin.tests import SELFTEST_WORKLOAD, TESTS, Declaration, Effort, chosen
from burnin.verdict.evidence import Injury, Quota
from burnin.verdict.health import Counters, compare
from burnin.verdict.opinions import witnesses

HOST = "host"
"""The child that belongs to no GPU: it lists the devices and checks the host's CPU."""
HOST_LIMIT_S = 120.0


class CannotJudgeError(Exception):
    """There is nothing to run on, or not now; one line, exit code 3."""


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
    started_at_s, begun_s = wall(), monotonic()
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
        deaths = tuple(death for death in children.deaths if death.gpu != HOST)
        own = [death.why for death in children.deaths if death.gpu == HOST]
        state.notes += [f"the process that lists devices and checks the CPU was started again: {why}" for why in own]
    progress.close()
    return conclude(
        state, options, declarations, deaths=deaths, started_at_s=started_at_s, elapsed_s=monotonic() - begun_s
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
        self._before: dict[str, Counters] = {}
        self._setups: dict[str, dict[str, Any]] = {}

    def go(self) -> None:
        """All phases, in order. Raises StoppedError, SpecError, CannotJudgeError."""
        ordinals = self._discover()
        state, options = self._state, self._options
        inject = {d.gpu: one for one in options.inject for d in state.devices if d.index == one.gpu}
        cores = witnesses(os.sched_getaffinity(0), seed=round_seed(options.seed, "witnesses"))
        state.evidence = replace(state.evidence, devices=state.devices, injected=options.inject, cores=cores)
        self._check_cores()
        self._children.end(HOST)
        # Proofs run on the CPU, side by side; a GPU that is computed on a CPU has one thread, as its neighbours do.
        threads = max(1, len(os.sched_getaffinity(0)) // len(state.devices)) if state.backend == "cuda" else 1
        world = len(state.devices) if state.backend == "sim" else None
        for device in state.devices:
            setup = {"backend": state.backend, "gpu": device.gpu, "ordinal": ordinals.get(device.gpu, 0)}
            setup |= {"threads": threads, "world": world, "retention_s": options.retention_s}
            self._setups[device.gpu] = setup
            self._children.start(device.gpu, self._setups[device.gpu])
        session = self._session = Session(
            self._children,
            state.devices,
            monotonic=self._monotonic,
            progress=self._progress,
            cores=state.evidence.cores,
        )
        computed = [d for d in self._declarations if d.workload is not None and state.backend in d.efforts]
        exact = self._table[SELFTEST_WORKLOAD]
        cases, planted = list_all(session, computed, inject, borrowed=exact)
        state.notes += [f"planted on GPU {gpu}: {what}" for gpu, what in planted]
        if options.tests:
            state.notes.append(f"the tests were named: this is no verdict of level {options.level}")
        self._announce()
        self._progress.devices(state.devices)
        note_missing(session, state, computed, named=options.tests)
        computed = [d for d in computed if d.id not in session.missing]
        state.evidence = replace(state.evidence, quotas={d.id: _quota(d) for d in computed})
        self._before = self._count()
        if self._selftest(session, exact, cases[exact.id], inject):
            for declaration in computed:
                self._compute(session, declaration, cases[declaration.id], inject)
        self._judge_health(self._count())

    def rescue(self) -> None:
        """After a stop: keep what the test in progress had found."""
        if self._session is not None and self._session.partial is not None:
            self._state.evidence = merge(self._state.evidence, self._session.partial)

    def _ask_host(self, request: Request, test: str) -> Answer | None:
        heard: list[Answer] = []
        self._children.ask(
            {HOST: [request]},
            test=test,
            quiet_s=HOST_LIMIT_S,
            limit_s=HOST_LIMIT_S,
            heard=lambda _, answer: heard.append(answer),
        )
        return heard[0] if heard else None

    def _why_host_died(self) -> str:
        return "; ".join(dict.fromkeys(death.why for death in self._children.deaths if death.gpu == HOST))

    def _discover(self) -> Mapping[str, int]:
        """Fill in the devices; returns gpu → torch's ordinal."""
        options, state = self._options, self._state
        self._children.start(HOST, {"backend": options.backend})
        request = Discover(backend=options.backend, gpus=options.gpus, host=options.host)
        found: dict[str, Any] | None = self._ask_host(request, "discovery")
        if found is None:
            raise CannotJudgeError(f"the devices could not be listed: {self._why_host_died()}")
        state.backend, state.versions = found["backend"], found["versions"]
        if found["refused"]:
            raise CannotJudgeError(found["refused"])
        listed = tuple(made(Device, fields) for fields in found["devices"])
        devices = select(listed, options.devices)
        check_inject(options.inject, devices)
        busy = in_use(devices, found["busy"])
        if busy and not options.force:
            raise CannotJudgeError(f"{busy}; end them, choose others with --devices, or add --force")
        if busy:
            state.notes.append(f"--force: {busy}: rates are not those of GPUs that have nothing else to do")
        state.devices = devices
        ordinals: dict[str, int] = found["ordinals"]
        return ordinals

    def _check_cores(self) -> None:
        """The host's CPU first: what it proves must be worth something."""
        if not any(declaration.id == "hostcpu" for declaration in self._declarations):
            return
        begun_s = self._monotonic()
        answer = self._ask_host(CheckCores(seed=round_seed(self._options.seed, "hostcpu")), "hostcpu")
        if answer is None:
            self._state.not_run.append(NotRun(test="hostcpu", why=self._why_host_died(), required=True))
            return
        cores = part(answer, "cores")
        if len(cores["cores"]) < 2:  # noqa: PLR2004 - it takes two to compare
            named = "hostcpu" in self._options.tests
            self._state.not_run.append(NotRun(test="hostcpu", why=cores["why"], required=named))
            return
        self._state.test_elapsed_s["hostcpu"] = self._monotonic() - begun_s
        self._state.own["hostcpu"] = (Verdict.PASS if cores["equal"] else Verdict.FAIL, cores["why"])
        if not cores["equal"]:
            self._state.evidence = replace(self._state.evidence, host_cpu=cores["why"])

    def _selftest(
        self, session: Session, exact: Declaration, cases: tuple[Case, ...], inject: Mapping[str, Inject]
    ) -> bool:
        """Whether to go on."""
        begun_s = self._monotonic()
        effort = exact.efforts[self._state.backend]
        seed = self._options.seed
        try:
            done = selftest.run(session, exact, cases, seed=seed, launches=effort.launches, inject=inject)
        except StoppedError:
            session.partial = None  # a GPU that was struck on purpose is not to be reported
            raise
        self._state.test_elapsed_s[selftest.TEST] = self._monotonic() - begun_s
        self._state.evidence = merge(self._state.evidence, done.evidence)
        self._state.gaps.extend(done.missed)
        planted = ", ".join(f"{plant.fault} on GPU {plant.gpu}" for plant in done.plants) or "nothing: no GPU was left"
        self._state.notes.append(f"self-test planted {planted}")
        if done.missed:
            self._state.own[selftest.TEST] = (Verdict.NOT_JUDGED, done.missed[0])
        return not done.missed

    def _compute(
        self, session: Session, declaration: Declaration, cases: tuple[Case, ...], inject: Mapping[str, Inject]
    ) -> None:
        begun_s = self._monotonic()
        # One hold in the first ballot, one in its retest.
        declaration = replace(declaration, max_seconds=declaration.max_seconds + self._options.retention_s)
        task = Task(
            test=declaration.id,
            declaration=declaration,
            cases=cases,
            effort=declaration.efforts[self._state.backend],
            inject=inject,
            seed=self._options.seed,
            common=declaration.common and not declaration.exact,
            examine=not declaration.together,
        )
        if declaration.together and self._state.backend != "sim":  # simulated links need no second process
            session = self._session = self._ganged()
        self._state.evidence = merge(self._state.evidence, session.carry_out(task))
        self._state.test_elapsed_s[declaration.id] = self._monotonic() - begun_s

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
        state = self._state
        unread = [d for d in state.devices if d.gpu in after and not after[d.gpu].source]
        sources = sorted({counters.source for counters in after.values()})
        injuries: list[Injury] = []
        for device in state.devices:
            bad, look = compare(self._before.get(device.gpu), after.get(device.gpu))
            injuries += [Injury(gpu=device.gpu, why=why) for why in bad]
            state.notes += [f"GPU {device.index}: {why}" for why in look]
        state.evidence = replace(state.evidence, injuries=tuple(injuries))
        if injuries:
            state.own["health"] = (Verdict.FAIL, injuries[0].why)
        elif not after:  # the deaths are the verdict
            state.own["health"] = (Verdict.NOT_JUDGED, "no process was left to read counters with")
        elif unread:
            why = f"nothing to read the counters of GPU {unread[0].index} with: install nvidia-ml-py or nvidia-smi"
            why = "this kernel has no EDAC counters" if state.backend == "cpu" else why
            required = any(d.id == "health" and state.backend in d.required for d in self._declarations)
            named = "health" in self._options.tests
            state.not_run.append(NotRun(test="health", why=why, required=required or named))
        elif len(after) < len(state.devices):
            gone = next(device.index for device in state.devices if device.gpu not in after)
            state.own["health"] = (Verdict.NOT_JUDGED, f"the counters of GPU {gone} were not read: its process is gone")
        else:
            state.own["health"] = (Verdict.PASS, f"no new uncorrectable error ({', '.join(sources)})")


def _quota(declaration: Declaration) -> Quota:
    return Quota(min_launches=declaration.min_launches, min_bytes=declaration.min_bytes)
