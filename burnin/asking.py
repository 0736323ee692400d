"""What still has to be asked: proofs, retests, wrong results to look at. Pure and torch-free; `session` asks."""

from collections import defaultdict
from collections.abc import Collection

from burnin.verdict.evidence import Evidence
from burnin.verdict.opinions import INPUTS_MAX, WITNESSES, believable
from burnin.verdict.weigh import HARD, Input, Wrong, goldens, rounds, weigh
from burnin.vote import Outcome


def proofs_needed(
    evidence: Evidence, provers: Collection[str], *, retest: bool = False
) -> tuple[tuple[Input, str], ...]:
    """Which (input, GPU) to have proved next: the first iteration of each exact case, and every undecided input.

    One GPU at a time for each input, rotating over seeds and cases so that they prove side by side; after a refutation
    the next one. Ends when a result was proved or all GPUs were refuted, so an input is asked for at most as often as
    there are GPUs.
    """
    proved = goldens(evidence)
    tried: dict[Input, set[str]] = defaultdict(set)
    for shown in evidence.proofs:
        tried[shown.test, shown.proof.case, shown.proof.seed].add(shown.gpu)
    needed: dict[Input, str] = {}
    for one in rounds(evidence):
        wanted = one.tally.outcome is Outcome.UNDECIDED or (one.iteration == 0 and not one.retest)
        if not one.exact or one.retest is not retest or not wanted or one.input in proved or one.input in needed:
            continue
        order = sorted(one.ballots)
        start = (one.seed + len(needed)) % len(order)
        able = set(provers) - tried[one.input]
        untried = [gpu for gpu in order[start:] + order[:start] if gpu in able]
        if untried:
            needed[one.input] = untried[0]
    return tuple(needed.items())


def retests_needed(evidence: Evidence, known: Collection[str] = ()) -> tuple[Input, ...]:
    """Inputs to compute again on all GPUs: for every GPU that was wrong in a test, one case of it, once.

    A GPU that was wrong again in a retest is known to be persistently bad and needs no further one; nor do those that
    are `known` from before.
    """
    weighed = weigh(evidence)
    retested = {(cast.test, cast.ballot.case) for cast in evidence.casts if cast.retest}
    persistent = {wrong.gpu for wrong in weighed.wrongs if wrong.retest} | set(known)
    first: dict[tuple[str, str], Input] = {}
    covered = {(wrong.test, wrong.gpu) for wrong in weighed.wrongs if (wrong.test, wrong.case) in retested}
    for wrong in weighed.wrongs:
        at = (wrong.test, wrong.gpu)
        if wrong.retest or wrong.gpu in persistent or at in covered:
            continue
        first.setdefault(at, (wrong.test, wrong.case, wrong.seed))
    return tuple({(test, case): (test, case, seed) for test, case, seed in first.values()}.values())


def worth_examining(evidence: Evidence, known: Collection[str] = ()) -> tuple[Wrong, ...]:
    """Of every GPU one wrong result to compute again, for the elements of its signature: best one with a ballot.

    Those that are `known` were examined before.
    """
    first: dict[str, Wrong] = {}
    for wrong in sorted(weigh(evidence).wrongs, key=lambda wrong: (wrong.ballot is None, wrong.retest)):
        if wrong.gpu not in known:
            first.setdefault(wrong.gpu, wrong)
    return tuple(first.values())


def opinions_needed(evidence: Evidence) -> tuple[tuple[Input, int], ...]:
    """Which (input, core) to have proved on that core alone; see `burnin.verdict.opinions`."""
    if believable(evidence):
        return ()
    asked = {
        (shown.test, shown.proof.case, shown.proof.seed) for shown in evidence.proofs if shown.proof.core is not None
    }
    accused = [wrong for wrong in weigh(evidence).wrongs if evidence.cases[wrong.test, wrong.case].exact]
    accused.sort(key=lambda wrong: wrong.ballot is None)
    left = dict.fromkeys(at for wrong in accused if (at := (wrong.test, wrong.case, wrong.seed)) not in asked)
    if len(asked) >= INPUTS_MAX or not left:
        return ()
    return tuple((next(iter(left)), core) for core in evidence.cores[:WITNESSES])


def convicted(evidence: Evidence) -> frozenset[str]:
    """GPUs of which a retest showed that they are bad: wrong again says nothing new."""
    return frozenset(wrong.gpu for wrong in weigh(evidence).wrongs if wrong.retest and wrong.basis in HARD)
