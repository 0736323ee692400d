"""The verdict: from everything a run knows to who is bad, of which class, and why. Pure and torch-free.

No GPU is given a hardware class without a golden or bound it failed, a majority of three against it, or a repeat; and
nothing passes without positive evidence. What cannot be told is *not judged*, which is neither good nor bad.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from burnin.spec import FaultClass, Verdict
from burnin.verdict.deaths import memory_crashes, told, unresponsive
from burnin.verdict.evidence import Evidence, too_little
from burnin.verdict.links import LINK_TESTS, Linked, linked, without_links
from burnin.verdict.planted import Injected, missed, planted
from burnin.verdict.weigh import HARD, PROVED, Round, Weighed, Wrong, vote_of, weigh
from burnin.verdict.witness import against_the_cpu, unproved
from burnin.vote import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuVerdict:
    """What a run says of one GPU."""

    gpu: str
    verdict: Verdict
    fault: FaultClass
    why: str
    strikes: int
    """Rounds in which it was wrong without being wrong again when asked again (class chip-transient)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestVerdict:
    """What a run says of one test."""

    __test__ = False  # pytest takes the name for a test class

    test: str
    verdict: Verdict
    fault: FaultClass
    """`configuration` or `software-nondeterminism` when the test, not a GPU, is to blame; else `none`."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict of a run."""

    verdict: Verdict
    why: str
    gpus: tuple[GpuVerdict, ...]
    tests: tuple[TestVerdict, ...]
    wrongs: tuple[Wrong, ...]
    injected: tuple[Injected, ...]

    @property
    def culprits(self) -> tuple[GpuVerdict, ...]:
        """The GPUs that the run blames."""
        return tuple(gpu for gpu in self.gpus if gpu.verdict is Verdict.FAIL)


def judge(evidence: Evidence) -> Judgement:
    """Judge a run.

    Order of strength: a gap of the run as a whole (interrupted, self-test missed) leaves nothing judged; then evidence
    against a GPU or a configuration fails the run; then anything left open, and a host CPU that cannot be believed,
    leaves it not judged; only what remains passes.
    """
    if evidence.host_cpu:  # its proofs are worth nothing; votes still are
        evidence = replace(evidence, proofs=())
    everything, links = weigh(evidence), linked(evidence)
    weighed = without_links(everything)
    weighed = replace(weighed, configuration={**weighed.configuration, **links.configuration})
    unbelievable = against_the_cpu(evidence, weighed)
    if unbelievable:
        return judge(replace(evidence, host_cpu=unbelievable))
    nondeterministic = _nondeterministic(weighed)
    wrongs = tuple(
        wrong for wrong in weighed.wrongs if not (wrong.test in nondeterministic and wrong.basis not in PROVED)
    )
    blamed = {} if evidence.gaps else _blamed(evidence, weighed, wrongs, links)
    doubts = _doubts(evidence, weighed, wrongs, blamed, nondeterministic)
    doubts = {gpu: doubts.get(gpu, ()) + links.doubts.get(gpu, ()) for gpu in {**doubts, **links.doubts}}
    injected = planted(evidence, blamed)
    unfound = {one.gpu: missed(one, evidence) for one in injected if not one.found}
    gpus = tuple(
        blamed.get(device.gpu) or _unblamed(device.gpu, doubts.get(device.gpu, ()), unfound, evidence)
        for device in evidence.devices
    )
    tests = tuple(_over_links(test, links) for test in _tests(evidence, weighed, nondeterministic, blamed, doubts))
    verdict, why = _run(evidence, weighed, gpus, tests, tuple(unfound.values()))
    wrongs += tuple(wrong for wrong in everything.wrongs if wrong.test in LINK_TESTS)
    return Judgement(verdict=verdict, why=why, gpus=gpus, tests=tests, wrongs=wrongs, injected=injected)


def _nondeterministic(weighed: Weighed) -> dict[str, str]:
    """Float tests in which most GPUs disagree with themselves: the software does not repeat, nobody is blamed."""
    voters: dict[str, set[str]] = defaultdict(set)
    unsteady: dict[str, set[str]] = defaultdict(set)
    for one in weighed.rounds:
        if not one.exact:
            voters[one.test] |= set(one.ballots)
            unsteady[one.test] |= {gpu for gpu, ballot in one.ballots.items() if len(ballot.fingerprints) > 1}
    return {
        test: f"{len(gpus)} of {len(voters[test])} GPUs give different results in equal launches"
        for test, gpus in unsteady.items()
        if len(gpus) >= 2 and 2 * len(gpus) > len(voters[test])  # noqa: PLR2004 - one GPU alone may be the bad one
    }


def _blamed(evidence: Evidence, weighed: Weighed, wrongs: tuple[Wrong, ...], links: Linked) -> dict[str, GpuVerdict]:
    """GPU → its verdict, for those with enough evidence against them. The strongest kind names the class."""
    blamed: dict[str, GpuVerdict] = {}
    injured = memory_crashes(evidence) | {injury.gpu: injury.why for injury in reversed(evidence.injuries)}
    hung = unresponsive(evidence)
    for device in evidence.devices:
        gpu = device.gpu
        against = _by_results(gpu, weighed, tuple(wrong for wrong in wrongs if wrong.gpu == gpu))
        if gpu in injured:
            blamed[gpu] = _fail(gpu, FaultClass.MEMORY, injured[gpu])
        elif against is not None:
            blamed[gpu] = against
        elif gpu in hung:
            blamed[gpu] = _fail(gpu, FaultClass.UNRESPONSIVE, hung[gpu])
        elif gpu in links.gpus:
            blamed[gpu] = _fail(gpu, FaultClass.LINK, links.gpus[gpu])
    return blamed


def _fail(gpu: str, fault: FaultClass, why: str, strikes: int = 0) -> GpuVerdict:
    return GpuVerdict(gpu=gpu, verdict=Verdict.FAIL, fault=fault, why=why, strikes=strikes)


def _by_results(gpu: str, weighed: Weighed, wrongs: tuple[Wrong, ...]) -> GpuVerdict | None:
    """The class that wrong results give: persistent when wrong again on a retest, transient when never again."""
    hard = [wrong for wrong in wrongs if wrong.basis in HARD]
    again = [wrong for wrong in hard if wrong.retest]
    before = [wrong for wrong in hard if not wrong.retest]
    retests = sum(one.retest and gpu in one.ballots for one in weighed.rounds)
    if again and (before or len(again) > 1):
        why = f"{hard[0].test} {hard[0].why}; wrong again {len(again)} times when retested"
        return _fail(gpu, FaultClass.CHIP_PERSISTENT, why)
    if hard:
        why = f"{hard[0].test} {hard[0].why}; not again in {retests} retests"
        return _fail(gpu, FaultClass.CHIP_TRANSIENT, why, strikes=len(hard))
    unsteady = [wrong for wrong in wrongs if not wrong.retest and _alone_unsteady(wrong, weighed)]
    repeats = [wrong for wrong in wrongs if wrong.retest and any(wrong.test == first.test for first in unsteady)]
    if unsteady and repeats:
        why = f"{unsteady[0].test} {unsteady[0].why}; again in {len(repeats)} retests, and the others never"
        return _fail(gpu, FaultClass.CHIP_PERSISTENT, why)
    return None


def _alone_unsteady(wrong: Wrong, weighed: Weighed) -> bool:
    """Whether other GPUs took part in the test with this one and none of them disagreed with itself."""
    others = [
        ballot
        for one in weighed.rounds
        if one.test == wrong.test and wrong.gpu in one.ballots
        for gpu, ballot in one.ballots.items()
        if gpu != wrong.gpu
    ]
    return bool(others) and all(len(ballot.fingerprints) == 1 for ballot in others)


def _doubts(
    evidence: Evidence,
    weighed: Weighed,
    wrongs: tuple[Wrong, ...],
    blamed: Mapping[str, GpuVerdict],
    nondeterministic: Mapping[str, str],
) -> dict[str, tuple[tuple[str, str], ...]]:
    """GPU → (test, why it cannot be judged by it)."""
    doubts: dict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    for death in evidence.deaths:
        doubts[death.gpu][death.test, told(death)] = None
    for wrong in wrongs:
        if wrong.gpu not in blamed:
            doubts[wrong.gpu][wrong.test, wrong.why] = None
    for one in weighed.rounds:
        if one.tally.outcome is Outcome.UNDECIDED and one.test not in nondeterministic:
            for gpu in _open(one, blamed):
                doubts[gpu][one.test, f"{one.case}: {one.tally.why}, and no golden decides"] = None
    for test, why in {**weighed.configuration, **nondeterministic}.items():
        for device in evidence.devices:
            doubts[device.gpu][test, why] = None
    for gpu, test, why in too_little(evidence):
        doubts[gpu][test, why] = None
    return {gpu: tuple(found) for gpu, found in doubts.items()}


def _open(one: Round, blamed: Mapping[str, GpuVerdict]) -> set[str]:
    """Who is left in doubt by an undecided round once the GPUs that other evidence blames are out of it.

    Those who remain and agree are not in doubt; one that remains alone is where nothing has a golden (float cases):
    there it is enough that it agrees with itself, and the exact tests speak for it.
    """
    left = {gpu: vote_of(gpu, ballot) for gpu, ballot in one.ballots.items() if gpu not in blamed}
    steady = all(len(one.ballots[gpu].fingerprints) == 1 for gpu in left)
    if steady and len(set(left.values())) <= 1 and (not one.exact or len(one.ballots) > 1):
        return set()
    return set(left)


def _unblamed(
    gpu: str, doubts: tuple[tuple[str, str], ...], unfound: Mapping[str, str], evidence: Evidence
) -> GpuVerdict:
    verdict, why = Verdict.PASS, "every test passed"
    if gpu in unfound:
        verdict, why = Verdict.NOT_JUDGED, unfound[gpu]
    elif doubts:
        verdict, why = Verdict.NOT_JUDGED, f"{doubts[0][0]}: {doubts[0][1]}"
    elif evidence.gaps or evidence.host_cpu:
        verdict, why = Verdict.NOT_JUDGED, (*evidence.gaps, evidence.host_cpu)[0]
    return GpuVerdict(gpu=gpu, verdict=verdict, fault=FaultClass.NONE, why=why, strikes=0)


def _tests(
    evidence: Evidence,
    weighed: Weighed,
    nondeterministic: Mapping[str, str],
    blamed: Mapping[str, GpuVerdict],
    doubts: Mapping[str, tuple[tuple[str, str], ...]],
) -> tuple[TestVerdict, ...]:
    """The verdict of each test that cast ballots or had to."""
    made = []
    names = dict.fromkeys([*evidence.quotas, *(cast.test for cast in evidence.casts)])
    for test in names:
        against = [wrong for wrong in weighed.wrongs if wrong.test == test and wrong.gpu in blamed]
        open_points = [why for gpu in doubts for at, why in doubts[gpu] if at == test and gpu not in blamed]
        split = [one for one in weighed.rounds if one.test == test and one.tally.outcome is Outcome.UNDECIDED]
        split = [one for one in split if len({vote_of(*ballot) for ballot in one.ballots.items()}) > 1]
        verdict, fault, why = Verdict.PASS, FaultClass.NONE, ""
        if test in weighed.configuration:
            verdict, fault, why = Verdict.FAIL, FaultClass.CONFIGURATION, weighed.configuration[test]
        elif test in nondeterministic:
            verdict, fault = Verdict.NOT_JUDGED, FaultClass.SOFTWARE_NONDETERMINISM
            why = nondeterministic[test]
        elif against:
            verdict, why = Verdict.FAIL, against[0].why
        elif open_points:
            verdict, why = Verdict.NOT_JUDGED, open_points[0]
        elif split:
            verdict = Verdict.FAIL
            why = f"{split[0].case}: {split[0].tally.why}; those whom nothing else blames agree"
        elif unproved(evidence, test):
            verdict, why = Verdict.NOT_JUDGED, f"no proof counts: {evidence.host_cpu}"
        made.append(TestVerdict(test=test, verdict=verdict, fault=fault, why=why))
    return tuple(made)


def _over_links(test: TestVerdict, links: Linked) -> TestVerdict:
    """The verdict of a test with what it found out about links, unless it has another one already."""
    if test.verdict is not Verdict.PASS:
        return test
    if links.gpus and test.test in links.tests:
        return replace(test, verdict=Verdict.FAIL, why=next(iter(links.gpus.values())))
    if test.test in links.nondeterministic:
        return replace(test, fault=FaultClass.COMM_NONDETERMINISM, why=links.nondeterministic[test.test])
    return test


def _run(
    evidence: Evidence,
    weighed: Weighed,
    gpus: tuple[GpuVerdict, ...],
    tests: tuple[TestVerdict, ...],
    unfound: tuple[str, ...],
) -> tuple[Verdict, str]:
    """The verdict of the run and its main reason."""
    cpu = [f"host CPU: {evidence.host_cpu}"] if evidence.host_cpu else []
    open_points = [*cpu, *weighed.conflicts, *unfound]
    index = {device.gpu: device.index for device in evidence.devices}
    bad = [f"GPU {index[gpu.gpu]} ({gpu.gpu}): {gpu.fault}: {gpu.why}" for gpu in gpus if gpu.verdict is Verdict.FAIL]
    bad += [f"{test.test}: {test.fault}: {test.why}" for test in tests if test.fault is FaultClass.CONFIGURATION]
    open_points += [
        f"{test.test}: {'' if test.fault is FaultClass.NONE else f'{test.fault}: '}{test.why}"
        for test in tests
        if test.verdict is Verdict.NOT_JUDGED
    ]
    open_points += [f"GPU {index[gpu.gpu]}: {gpu.why}" for gpu in gpus if gpu.verdict is Verdict.NOT_JUDGED]
    if evidence.gaps:
        return Verdict.NOT_JUDGED, "; ".join(evidence.gaps)
    if bad:
        return Verdict.FAIL, "; ".join(bad + cpu)
    if open_points:
        return Verdict.NOT_JUDGED, open_points[0]
    if not any(cast.ballot.launches for cast in evidence.casts):
        return Verdict.NOT_JUDGED, "nothing was computed"
    return Verdict.PASS, "every GPU passed every test"
