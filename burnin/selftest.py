"""The self-test: faults planted on one GPU must be found and blamed on it, and a clean rerun must be clean. Torch-free.

It goes the way of every test: the children strike their own results, and the votes, proofs and retests are the real
ones. Whoever else is wrong meanwhile, or in the clean rerun, is wrong for real: that is evidence, not a broken test.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from burnin.session import Session, Task, merge, round_seed
from burnin.spec import Case, Inject, Verdict
from burnin.stop import StoppedError
from burnin.telling.result import State
from burnin.tests import SELFTEST, Declaration, Effort
from burnin.verdict.evidence import Evidence
from burnin.verdict.judge import judge
from burnin.verdict.weigh import weigh
from burnin.vote import Outcome, tally

MODELS = ("F03", "F04", "F10", "F11", "F13")
"""Models that change every result they strike, so that not finding one is never an accident."""
PLANTS = 2
CASES = 2
"""Cases in the clean rerun; the first of them is the one that faults are planted in."""
RETESTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """How it went."""

    evidence: Evidence
    """Of the clean rerun, and of GPUs that were wrong without a fault planted on them."""
    missed: tuple[str, ...]
    """Why the run cannot be judged; empty when every plant was found, or when no GPU was left to plant one on (then
    none passes, and the deaths say why)."""
    plants: tuple[Inject, ...]


def tried(
    session: Session,
    declaration: Declaration,
    cases: tuple[Case, ...],
    inject: Mapping[str, Inject],
    *,
    state: State,
    seed: int,
) -> Evidence | None:
    """Run it, and tell what was planted: the evidence beside, or None when a plant was missed, and why is in `state`.

    Raises:
        StoppedError: The run was asked to stop.
    """
    effort = declaration.efforts[state.backend]
    try:
        done = run(session, declaration, cases, seed=seed, launches=effort.launches, inject=inject)
    except StoppedError:
        session.partial = None  # a GPU that was struck on purpose is not to be reported
        raise
    planted = ", ".join(f"{plant.fault} on GPU {plant.gpu}" for plant in done.plants) or "nothing: no GPU was left"
    note = f"self-test planted {planted}"
    state.notes += [note] if note not in state.notes else []
    if not done.missed:
        return done.evidence
    state.evidence = merge(state.evidence, done.evidence)
    state.gaps.extend(done.missed)
    state.own[SELFTEST] = (Verdict.NOT_JUDGED, done.missed[0])
    return None


def votes_sound() -> bool:
    """Count votes whose result is known: two bad among eight, a tie, a golden against a tie, a false unanimity."""
    eight = {f"gpu{number}": "right" for number in range(8)}
    two_bad = tally(eight | {"gpu2": "wrong", "gpu6": "worse"})
    tie = tally({"gpu0": "one", "gpu1": "other"})
    broken_tie = tally({"gpu0": "one", "gpu1": "other"}, "other")
    return (
        tally(eight).outcome is Outcome.UNANIMOUS
        and two_bad.dissenters == ("gpu2", "gpu6")
        and tie.outcome is Outcome.UNDECIDED
        and broken_tie.dissenters == ("gpu0",)
        and tally(eight, "golden").dissenters == tuple(sorted(eight))
    )


def run(
    session: Session,
    declaration: Declaration,
    cases: tuple[Case, ...],
    *,
    seed: int,
    launches: int,
    inject: Mapping[str, Inject],
) -> SelfTest:
    """Plant faults one after the other, then run clean.

    Args:
        session: Where to run.
        declaration: The exact test whose workload is used.
        cases: Its cases; the smallest are used.
        seed: The run's seed; it chooses GPU and models.
        launches: Launches of a ballot.
        inject: Faults that the user planted (gpu → fault): they stay in force, also in the clean rerun, as if those
            GPUs were broken, but for the GPU that a plant is on.

    Raises:
        StoppedError: A signal asked the run to stop.
    """
    rng = random.Random(round_seed(seed, SELFTEST))  # noqa: S311 - a choice that can be repeated, no secret
    small = tuple(sorted(cases, key=lambda case: case.flops)[:CASES])
    clean = Task(
        test=SELFTEST,
        declaration=declaration,
        cases=small,
        effort=Effort(launches=launches, rounds=1),
        inject=inject,
        seed=round_seed(seed, SELFTEST, "clean"),
    )
    missed = [] if votes_sound() else ["self-test: the vote itself counts wrongly; reinstall"]
    strays: list[Evidence] = []
    plants: list[Inject] = []
    for fault in rng.sample(MODELS, PLANTS):
        task = replace(clean, cases=small[:1], seed=round_seed(seed, SELFTEST, fault), retests=RETESTS, examine=False)
        planted = _plant(session, task, fault, rng)
        if planted is None:
            break
        plants.append(planted.plant)
        if not planted.found:
            missed.append(f"self-test missed: {fault} planted on GPU {planted.plant.gpu} was not blamed on it")
        others = _without(planted.evidence, planted.gpu)
        # One alone could not be told from a library that is wrong on every GPU; the clean rerun sees both.
        if len({cast.gpu for cast in others.casts}) > 1 and {w.gpu for w in weigh(planted.evidence).wrongs} - {
            planted.gpu
        }:
            strays.append(others)
    found = session.carry_out(clean)
    for stray in strays:
        found = merge(found, stray)
    return SelfTest(evidence=found, missed=tuple(missed), plants=tuple(plants))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planted:
    """A fault on one GPU, and what came of it."""

    gpu: str
    plant: Inject
    evidence: Evidence
    found: bool


def _plant(session: Session, task: Task, fault: str, rng: random.Random) -> _Planted | None:
    """Plant a fault on a GPU: if possible one that the user planted none on.

    A GPU whose process dies meanwhile has not missed anything: its deaths speak for themselves, and the next one gets
    the fault. None when nobody is left.
    """
    while session.living:  # ends: each turn returns, or one GPU less is living
        living = [device for device in session.devices if device.gpu in session.living]
        target = rng.choice([device for device in living if device.gpu not in task.inject] or living)
        plant = Inject(gpu=target.index, fault=fault, rate=1.0, seed=rng.getrandbits(32))
        evidence = session.carry_out(replace(task, inject={**task.inject, target.gpu: plant}))
        found = target.gpu in {culprit.gpu for culprit in judge(evidence).culprits}
        if found or target.gpu in session.living:
            return _Planted(gpu=target.gpu, plant=plant, evidence=evidence, found=found)
    return None


def _without(evidence: Evidence, gpu: str) -> Evidence:
    """The evidence of everybody else."""
    casts = tuple(cast for cast in evidence.casts if cast.gpu != gpu)
    proofs = tuple(shown for shown in evidence.proofs if shown.gpu != gpu)
    return replace(evidence, casts=casts, proofs=proofs)
