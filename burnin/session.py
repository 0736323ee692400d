"""Carries out tests on the children: rounds of votes, proofs, retests. Decides nothing; `weigh` says what to ask.

The same path serves the level's tests and the self-test, which only hands in faults to plant.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from burnin.asking import opinions_needed, proofs_needed, retests_needed, worth_examining
from burnin.keys import derive
from burnin.options import SEED_LIMIT
from burnin.processes.children import Answer
from burnin.processes.wire import (
    Examine,
    ListCases,
    Prove,
    Request,
    Rest,
    Vote,
    WireError,
    ballot,
    elements,
    felt,
    made,
    part,
)
from burnin.spec import Case, Device, Inject, Proof
from burnin.task import Crew, Task
from burnin.telling.progress import Progress
from burnin.tests import Declaration
from burnin.verdict.condense import condense
from burnin.verdict.evidence import Cast, Evidence, Examined, Shown
from burnin.verdict.opinions import INPUTS_MAX
from burnin.verdict.weigh import Input

__all__ = ["CASTS_MAX", "Crew", "Session", "Task", "common_seed", "merge", "round_seed"]

COMMON_SEED = 0
"""Stands in for the run's seed in one round of each float test, so that hosts can compare what their GPUs agree on."""
START_IN_S = 0.25
"""How long GPUs that are to begin in step have to make their inputs; one that takes longer joins in later, in phase."""
REST_LIMIT_S = 60.0
"""A process that does not answer so long after its rest hangs."""
CASTS_MAX = 1024
"""Ballots of a task beyond which those that agree are added up."""
EXAMINED_LAUNCHES = 100
"""Launches in which a GPU that was wrong may show it again: a fault of one launch in twenty is missed in 1 case of 170.
"""
EXAMINED_TILES = 64
"""Tiles that are named to it."""


def round_seed(seed: int, *names: str | int) -> int:
    """The seed of something in a run, from the run's seed and its name: a key below 2⁶³."""
    return derive(seed, *names) % SEED_LIMIT


def common_seed(test: str) -> int:
    """The seed of the round that every host computes alike."""
    return round_seed(COMMON_SEED, test, "common")


class Session:
    """Tests on a set of devices."""

    def __init__(
        self,
        children: Crew,
        devices: tuple[Device, ...],
        *,
        monotonic: Callable[[], float],
        progress: Progress,
        cores: tuple[int, ...] = (),
    ) -> None:
        """Nothing is asked yet; `cores`: see `burnin.verdict.evidence.Evidence`."""
        self._children = children
        self._cores = cores
        self.devices = devices
        self._monotonic = monotonic
        self._progress = progress
        self.missing: dict[str, str] = {}
        """Test → why it has no cases here, as `list_cases` heard."""
        self.skipped: dict[str, tuple[Case, ...]] = {}
        """Test → its cases that cannot be computed here."""
        self.rounds = 0
        """Rounds that the last task did, without retests."""
        self.partial: Evidence | None = None
        """What the task in progress has found so far; a run that is stopped reports it."""

    @property
    def living(self) -> tuple[str, ...]:
        """The GPUs whose process can still be asked."""
        return self._children.living

    def list_cases(
        self, declaration: Declaration, inject: Mapping[str, Inject]
    ) -> tuple[tuple[Case, ...], list[str], list[str]]:
        """The cases of a workload; for each fault to plant, why it cannot change any (empty: it can), and what it is.

        One child is asked, and the next one if it dies of it. No cases when nobody is left: then the deaths decide.
        """
        assert declaration.workload is not None  # noqa: S101 - only tests with a workload have cases
        asked: list[Inject | None] = [*inject.values()] or [None]
        requests: list[Request] = [
            ListCases(test=declaration.id, workload=declaration.workload, inject=one) for one in asked
        ]
        heard: list[Answer] = []
        while len(heard) < len(requests) and self.living:  # ends: whoever does not answer is not living any more
            heard.clear()
            self._ask({self.living[0]: requests}, declaration, lambda _, answer: heard.append(answer))
        if len(heard) < len(requests):
            return (), [], []
        if heard[0]["missing"]:
            self.missing[declaration.id] = str(heard[0]["missing"])
        cases = tuple(made(Case, fields) for fields in heard[0]["cases"])
        self.skipped[declaration.id] = tuple(case for case in cases if case.missing)
        able = tuple(case for case in cases if not case.missing)
        return able, [str(answer["refused"]) for answer in heard], [str(answer["planted"]) for answer in heard]

    def carry_out(self, task: Task) -> Evidence:
        """Vote, prove, retest. Raises StoppedError; `partial` then has what was found."""
        known = {(task.test, one.name): one for one in task.cases}
        evidence = Evidence(devices=self.devices, cases=known, quotas={}, cores=self._cores)
        begun_s = self._monotonic()
        iteration = task.first
        self._progress.test(task.test, task.effort)
        self.rounds = 0
        while self.living:
            evidence = self._round(task, evidence, iteration, _seed(task, iteration))
            iteration += 1
            elapsed_s = self._monotonic() - begun_s
            enough = iteration - task.first >= task.effort.rounds and elapsed_s >= task.effort.seconds
            if enough or elapsed_s > task.declaration.max_seconds:
                break
        if task.common and self.living:
            evidence = self._round(task, evidence, iteration, common_seed(task.test))
        for _ in range(len(self.devices)):  # each retest covers at least one GPU more
            wanted = retests_needed(evidence, task.known)
            if not wanted or not self.living:
                break
            evidence = self._retest(task, evidence, wanted)
        evidence = self._second_opinions(task, evidence)
        if task.examine:
            evidence = self._examine(task, evidence)
        self.partial = None
        return evidence

    def rest(self, seconds: float) -> dict[str, float | None]:
        """Give memory back, leave all GPUs alone for so long: GPU → its temperature then, in °C; None: not read."""
        celsius: dict[str, float | None] = {}

        def heard(gpu: str, answer: Answer) -> None:
            celsius[gpu] = felt(part(answer, "felt")).peak_celsius

        asks: dict[str, list[Request]] = {gpu: [Rest(seconds=seconds)] for gpu in self.living}
        limit_s = seconds + REST_LIMIT_S
        self._children.ask(asks, test="rest", quiet_s=REST_LIMIT_S, limit_s=limit_s, heard=heard)
        return celsius

    def _round(self, task: Task, evidence: Evidence, iteration: int, seed: int) -> Evidence:
        inputs = [((task.test, one.name, seed), iteration) for one in task.cases]
        evidence = self._vote(task, evidence, inputs, retest=False)
        evidence = self._prove(task, evidence, retest=False)
        self.rounds += 1
        # A minute of ballots with all their tiles would take hundreds of megabytes.
        many = len(evidence.casts) > CASTS_MAX
        return condense(evidence, apart={common_seed(task.test)}) if many else evidence

    def _retest(self, task: Task, evidence: Evidence, wanted: tuple[Input, ...]) -> Evidence:
        self._progress.note(f"{task.test}: {len(wanted)} cases differ; asking {task.retests} times more")
        inputs = []
        for test, name, seed in wanted:
            for again in range(task.retests):
                same = again < task.retests / 2
                inputs.append(((test, name, seed if same else round_seed(seed, name, "retest", again)), again))
        evidence = self._vote(task, evidence, inputs, retest=True)
        return self._prove(task, evidence, retest=True)

    def _vote(self, task: Task, evidence: Evidence, inputs: list[tuple[Input, int]], *, retest: bool) -> Evidence:
        casts: list[Cast] = []

        def heard(gpu: str, answer: Answer) -> None:
            counted, feelings = ballot(part(answer, "ballot")), felt(answer.get("felt") or {})
            if (task.test, counted.case) not in evidence.cases:
                raise WireError(f"a ballot for the unknown case {counted.case!r}")
            cast = Cast(gpu=gpu, test=task.test, ballot=counted, retest=retest, felt=feelings)
            casts.append(cast)
            self._progress.cast(cast)
            self.partial = evidence.plus(casts=tuple(casts))

        # In step, all wait for the slowest before each case; else each goes on by itself.
        for some in [[one] for one in inputs] if task.declaration.in_step else [inputs]:
            start_s = self._monotonic() + START_IN_S if task.declaration.in_step else None
            asks: dict[str, list[Request]] = {
                gpu: [
                    Vote(
                        test=task.declaration.id,
                        workload=task.declaration.workload or "",
                        case=name,
                        iteration=iteration,
                        seed=seed,
                        launches=task.effort.launches,
                        inject=task.inject.get(gpu),
                        start_s=start_s,
                    )
                    for (_, name, seed), iteration in some
                ]
                for gpu in self.living
            }
            self._ask(asks, task.declaration, heard)
        order = {(name, seed, iteration): at for at, ((_, name, seed), iteration) in enumerate(inputs)}
        ranks = {device.gpu: rank for rank, device in enumerate(self.devices)}
        casts.sort(key=lambda c: (order[c.ballot.case, c.ballot.seed, c.ballot.iteration], ranks[c.gpu]))
        return evidence.plus(casts=tuple(casts))  # in an order that does not depend on who was faster

    def _prove(self, task: Task, evidence: Evidence, *, retest: bool) -> Evidence:
        """Ask for proofs until nothing more is needed: at most once for each input and GPU."""
        for _ in self.devices:
            wanted = [(at, gpu, None) for at, gpu in proofs_needed(evidence, self.living, retest=retest)]
            shown = self._shown(task, wanted, retest=retest)
            evidence = evidence.plus(proofs=shown)
            if not shown:
                break
        self.partial = evidence
        return evidence

    def _second_opinions(self, task: Task, evidence: Evidence) -> Evidence:
        """Have what accuses a GPU that is alone checked again by single cores; see `burnin.verdict.opinions`."""
        for _ in range(INPUTS_MAX):
            wanted = [(at, self.devices[0].gpu, core) for at, core in opinions_needed(evidence)]
            evidence = evidence.plus(proofs=self._shown(task, wanted, retest=True))
        return evidence

    def _shown(self, task: Task, wanted: Sequence[tuple[Input, str, int | None]], *, retest: bool) -> tuple[Shown, ...]:
        """Have (input, GPU, core or any) proved; proofs in an order that does not depend on who was faster."""
        shown: list[Shown] = []

        def heard(gpu: str, answer: Answer) -> None:
            proof = made(Proof, part(answer, "proof"))
            shown.append(Shown(gpu=gpu, test=task.test, proof=proof, retest=retest))

        asks: dict[str, list[Request]] = {}
        for (_, name, seed), gpu, core in wanted:
            request = Prove(
                test=task.declaration.id,
                workload=task.declaration.workload or "",
                case=name,
                seed=seed,
                inject=task.inject.get(gpu),
                core=core,
            )
            asks.setdefault(gpu, []).append(request)
        if asks:
            self._ask(asks, task.declaration, heard)
        return tuple(sorted(shown, key=lambda one: (one.proof.seed, one.proof.case, one.gpu, one.proof.core or 0)))

    def _examine(self, task: Task, evidence: Evidence) -> Evidence:
        """Let every GPU that was wrong find the wrong elements of one of its results."""
        found: dict[str, Examined] = {}
        wrongs = {wrong.gpu: wrong for wrong in worth_examining(evidence, task.known) if wrong.gpu in self.living}

        def heard(gpu: str, answer: Answer) -> None:
            if answer.get("elements") is not None:
                wrong, what = wrongs[gpu], elements(part(answer, "elements"))
                found[gpu] = Examined(gpu=gpu, test=wrong.test, case=wrong.case, seed=wrong.seed, elements=what)

        asks: dict[str, list[Request]] = {
            gpu: [
                Examine(
                    test=task.declaration.id,
                    workload=task.declaration.workload or "",
                    case=wrong.case,
                    seed=wrong.seed,
                    launches=EXAMINED_LAUNCHES,
                    right=wrong.reference,
                    tiles=wrong.tiles[:EXAMINED_TILES] if wrong.reference is not None else (),
                    inject=task.inject.get(gpu),
                )
            ]
            for gpu, wrong in wrongs.items()
        }
        if asks:
            self._ask(asks, task.declaration, heard)
        return evidence.plus(examined=tuple(found[gpu] for gpu in wrongs if gpu in found))

    def _ask(
        self, asks: Mapping[str, list[Request]], declaration: Declaration, heard: Callable[[str, Answer], None]
    ) -> None:
        self._children.ask(
            asks,
            test=declaration.id,
            quiet_s=declaration.quiet_seconds,
            limit_s=declaration.max_seconds,
            heard=heard,
        )


def _seed(task: Task, iteration: int) -> int:
    """The seed of a round: a new one, or in every second round of a directed task one that failed before."""
    turn = iteration - task.first
    if task.again and turn % 2 == 0:
        return task.again[turn // 2 % len(task.again)]
    return round_seed(task.seed, task.test, iteration)


def merge(first: Evidence, second: Evidence) -> Evidence:
    """The evidence of two tasks on the same devices."""
    both = first.plus(casts=second.casts, proofs=second.proofs, examined=second.examined)
    return replace(both, cases={**first.cases, **second.cases})
