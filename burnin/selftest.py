"""The self-test: faults planted on one GPU must be found and blamed on it, and a clean rerun must be clean. Torch-free.

It goes the way of every test: the children strike their own results, and the votes, proofs and retests are the real
ones. Whoever else is wrong meanwhile, or in the clean rerun, is wrong for real: that is evidence, not a broken test.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from burnin.evidence import Evidence
from burnin.judge import judge
from burnin.session import Session, Task, merge, round_seed
from burnin.spec import Case, Inject
from burnin.tests import Declaration, Effort
from burnin.vote import Outcome, tally
from burnin.weigh import weigh

TEST = "selftest"
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
    """Why the run cannot be judged; empty when every plant was found."""
    plants: tuple[Inject, ...]


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
    rng = random.Random(round_seed(seed, TEST))  # noqa: S311 - a choice that can be repeated, no secret
    healthy = [device for device in session.devices if device.gpu not in inject] or list(session.devices)
    target = rng.choice(healthy)
    small = tuple(sorted(cases, key=lambda case: case.flops)[:CASES])
    clean = Task(
        test=TEST,
        declaration=declaration,
        cases=small,
        effort=Effort(launches=launches, rounds=1),
        inject=inject,
        seed=round_seed(seed, TEST, "clean"),
    )
    missed = [] if votes_sound() else ["self-test: the vote itself counts wrongly; reinstall"]
    strays: list[Evidence] = []
    plants = tuple(
        Inject(gpu=target.index, fault=fault, rate=1.0, seed=rng.getrandbits(32))
        for fault in rng.sample(MODELS, PLANTS)
    )
    for plant in plants:
        planted = replace(
            clean,
            cases=small[:1],
            inject={**inject, target.gpu: plant},
            seed=round_seed(seed, TEST, plant.fault),
            retests=RETESTS,
        )
        evidence = session.carry_out(planted)
        if target.gpu not in {culprit.gpu for culprit in judge(evidence).culprits}:
            missed.append(f"self-test missed: {plant.fault} planted on GPU {target.index} was not blamed on it")
        if {wrong.gpu for wrong in weigh(evidence).wrongs} - {target.gpu}:
            strays.append(_without(evidence, target.gpu))
    found = session.carry_out(clean)
    for stray in strays:
        found = merge(found, stray)
    return SelfTest(evidence=found, missed=tuple(missed), plants=plants)


def _without(evidence: Evidence, gpu: str) -> Evidence:
    """The evidence of everybody else."""
    casts = tuple(cast for cast in evidence.casts if cast.gpu != gpu)
    proofs = tuple(shown for shown in evidence.proofs if shown.gpu != gpu)
    return replace(evidence, casts=casts, proofs=proofs)
