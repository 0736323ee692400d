"""Evidence of hours, kept as small as that of minutes: what agreed is added up, what did not is kept. Pure, torch-free.

Rounds of a case in which all GPUs agreed, and nobody said otherwise, become one: its first ballots, with the work of
all of them; where a GPU is judged by its speed, the round in which it was fastest stays. Whoever weighs the evidence
finds the same GPUs wrong as before. Of rounds in which somebody was wrong, the first `KEPT` of each kind are kept as
they are; what follows them tells nothing new and is left out, with its work: a GPU has then been wrong *at least* so
many times.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from dataclasses import replace

from burnin.spec import Ballot
from burnin.verdict.evidence import Cast, Evidence, Shown
from burnin.verdict.health import together
from burnin.verdict.links import CLEAN, CLEAN_ENTRIES, DISTINCT, LINK_TESTS
from burnin.verdict.weigh import Input, Round, rounds, vote_of
from burnin.vote import Outcome

KEPT = 16
"""Rounds of one case in which the same GPUs were wrong, or that were asked for again."""
EXAMINED_MAX = 256
"""Signatures with their elements; a report shows fewer."""

_At = tuple[str, str, str, int, int, bool]
"""(GPU, test, case, iteration, seed, retest): one cast."""


def condense(evidence: Evidence, *, apart: Container[int] = ()) -> Evidence:
    """The evidence with equal rounds added up.

    Args:
        evidence: of a run so far; may be condensed already.
        apart: seeds of rounds that must stay as they are, because other hosts compute them as well.
    """
    accused = _accused(evidence)
    by_place = {_at(cast.gpu, cast): cast for cast in evidence.casts}
    alike: dict[tuple[str, str, Outcome, frozenset[str]], list[Round]] = defaultdict(list)
    seen: Counter[tuple[str, str, bool, frozenset[tuple[str, int, bool]]]] = Counter()
    kept: dict[_At, Cast] = {}
    for one in rounds(evidence):
        places = [(gpu, one.test, one.case, one.iteration, one.seed, one.retest) for gpu in one.ballots]
        own = one.seed in apart or any(ballot.facts for ballot in one.ballots.values())
        if not own and not one.retest and one.input not in accused and _agreed(one):
            alike[one.test, one.case, one.tally.outcome, frozenset(one.ballots)].append(one)
            continue
        kind = (one.test, one.case, one.retest, _parted(one))
        seen[kind] += not own
        if own or seen[kind] <= KEPT:
            kept |= {place: by_place[place] for place in places}
    for (test, case, *_), agreed in alike.items():
        best = _best(agreed) if evidence.cases[test, case].slow_below else set()
        kept |= {
            place: by_place[place]
            for at in best
            for place in ((gpu, test, case, agreed[at].iteration, agreed[at].seed, False) for gpu in agreed[at].ballots)
        }
        several = [one for at, one in enumerate(agreed) if at not in best]
        for gpu in several[0].ballots if several else ():
            said = [by_place[gpu, r.test, r.case, r.iteration, r.seed, r.retest] for r in several]
            kept[_at(gpu, said[0])] = _sum(said)
    casts = tuple(kept[place] for place in by_place if place in kept)
    known, left = ({(c.test, c.ballot.case, c.ballot.seed) for c in some} for some in (evidence.casts, casts))
    proofs = tuple(shown for shown in evidence.proofs if _input(shown) in left or _input(shown) not in known)
    return replace(evidence, casts=casts, proofs=proofs, examined=evidence.examined[:EXAMINED_MAX])


def _at(gpu: str, cast: Cast) -> _At:
    ballot = cast.ballot
    return (gpu, cast.test, ballot.case, ballot.iteration, ballot.seed, cast.retest)


def _input(shown: Shown) -> Input:
    return (shown.test, shown.proof.case, shown.proof.seed)


def _accused(evidence: Evidence) -> set[Input]:
    """Inputs of which the CPU said more than that the result is right, or on which somebody was looked at again."""
    told = {
        _input(shown) for shown in evidence.proofs if shown.proof.fingerprint is None or shown.proof.core is not None
    }
    return told | {(one.test, one.case, one.seed) for one in evidence.examined}


def _agreed(one: Round) -> bool:
    """Whether nothing in this round can ever speak against anybody."""
    ballots = list(one.ballots.values())
    # A float case of a GPU that is alone has no other; it is enough that it agrees with itself.
    alone = not one.exact and len(ballots) == 1
    settled = one.tally.outcome in {Outcome.UNANIMOUS, Outcome.GOLDEN} or alone
    return settled and not one.tally.dissenters and all(_plain(one.test, ballot) for ballot in ballots)


def _plain(test: str, ballot: Ballot) -> bool:
    steady = len(ballot.fingerprints) == 1 and ballot.launches > 0 and not ballot.outside and not ballot.facts
    if test not in LINK_TESTS or not steady:
        return steady
    clean = int(ballot.fingerprints[0][0], 16) == CLEAN and {name for name, _ in ballot.trace} <= set(CLEAN_ENTRIES)
    return clean and int(dict(ballot.trace).get(DISTINCT, "1")) <= 1


def _parted(one: Round) -> frozenset[tuple[str, int, bool]]:
    """(GPU, number of the group that said the same, whether it was wrong) of all, whatever it was that they said."""
    groups: dict[str, int] = {}
    votes = {gpu: vote_of(gpu, one.ballots[gpu]) for gpu in sorted(one.ballots)}
    wrong = {gpu for gpu in votes if gpu in one.tally.dissenters or one.ballots[gpu].outside}
    return frozenset((gpu, groups.setdefault(vote, len(groups)), gpu in wrong) for gpu, vote in votes.items())


def _best(agreed: Sequence[Round]) -> set[int]:
    """Numbers of the rounds in which some GPU was at its fastest: by its best round, not its mean, a GPU is slow."""

    def rate(number: int, gpu: str) -> float:
        ballot = agreed[number].ballots[gpu]
        return ballot.flops / ballot.elapsed_s if ballot.elapsed_s > 0 else 0.0

    return {max(range(len(agreed)), key=lambda number: rate(number, gpu)) for gpu in agreed[0].ballots}


def _sum(casts: Sequence[Cast]) -> Cast:
    """The first of casts that said the same in their rounds, with the work of all; tiles are for those who differ."""
    ballots = [cast.ballot for cast in casts]
    launches = sum(ballot.launches for ballot in ballots)
    ballot = replace(
        ballots[0],
        fingerprints=((ballots[0].fingerprints[0][0], launches),),
        launches=launches,
        bytes=sum(one.bytes for one in ballots),
        flops=sum(one.flops for one in ballots),
        elapsed_s=sum(one.elapsed_s for one in ballots),
        fired=sum(one.fired for one in ballots),
        tiles=(),
        trace=ballots[0].trace if casts[0].test in LINK_TESTS else (),
    )
    felt = [cast.felt for cast in casts if cast.felt is not None]
    return replace(casts[0], ballot=ballot, felt=together(felt) if felt else None)
