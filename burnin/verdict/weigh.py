"""Ballots and proofs → who was wrong where. Pure and torch-free; what still has to be asked is `asking`'s.

Exact cases vote across the whole host and have a golden; float cases vote inside a vote key. A GPU whose launches of
one ballot differ disagrees with itself: it votes for nothing, and whatever the reference turns out to be, some of its
launches are wrong.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from burnin.spec import Ballot
from burnin.verdict.bounds import Beyond, outside
from burnin.verdict.evidence import Cast, Evidence
from burnin.verdict.opinions import believable
from burnin.vote import MIN_MAJORITY, Outcome, Tally, tally


class Basis(StrEnum):
    """What says that a GPU was wrong, from the strongest."""

    GOLDEN = "golden"
    MAJORITY = "majority"
    BOUND = "bound"
    """Its result breaks a bound that every right result keeps, in whatever order it was computed."""
    SELF = "itself"
    """Its own launches differ and nothing says which is right."""
    CONTESTED = "contested"
    """The CPU refuted one launch, all others on this input are confirmed: either of the two may have slipped. Or a GPU
    that is alone cannot be told from the CPU that accuses it, or from the library that it runs."""


PROVED = frozenset({Basis.GOLDEN, Basis.BOUND})
"""What convicts a GPU without the others."""
HARD = PROVED | {Basis.MAJORITY}
"""What convicts a GPU."""


Input = tuple[str, str, int]
"""(test, case, seed): what has one right result, if the case is exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All ballots that must agree: one case, one iteration, one vote group."""

    test: str
    case: str
    iteration: int
    seed: int
    retest: bool
    exact: bool
    ballots: Mapping[str, Ballot]
    tally: Tally

    @property
    def input(self) -> Input:
        """The input that the round computed on."""
        return (self.test, self.case, self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One GPU was wrong in one round (or its result was refuted by the CPU: `ballot` None)."""

    gpu: str
    test: str
    case: str
    iteration: int | None
    seed: int
    retest: bool
    basis: Basis
    ballot: Ballot | None
    reference: str | None
    right: Ballot | None
    """A ballot to compare with, for localisation: one that is the reference, or without one a steady one."""
    why: str

    @property
    def tiles(self) -> tuple[int, ...]:
        """Numbers of the tiles that differ from those of `right`; empty when that cannot be told."""
        if self.ballot is None or self.right is None or len(self.ballot.tiles) != len(self.right.tiles):
            return ()
        pairs = zip(self.ballot.tiles, self.right.tiles, strict=True)
        return tuple(number for number, (mine, other) in enumerate(pairs) if mine != other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What the ballots and proofs amount to."""

    rounds: tuple[Round, ...]
    wrongs: tuple[Wrong, ...]
    configuration: Mapping[str, str]
    """Test → why its results point at software or configuration, not at a chip."""
    conflicts: tuple[str, ...]
    """Inputs for which two different results were proved: the prover cannot be trusted."""


def vote_of(gpu: str, ballot: Ballot) -> str:
    """What a ballot counts as: its fingerprint, or a class of its own for a GPU that disagrees with itself."""
    return ballot.fingerprints[0][0] if len(ballot.fingerprints) == 1 else f"differs:{gpu}"


def goldens(evidence: Evidence) -> dict[Input, set[str]]:
    """Input → the results that the CPU proved right; more than one is a contradiction."""
    proved: dict[Input, set[str]] = defaultdict(set)
    for shown in evidence.proofs:
        if shown.proof.fingerprint is not None:
            proved[shown.test, shown.proof.case, shown.proof.seed].add(shown.proof.fingerprint)
    return proved


def rounds(evidence: Evidence) -> tuple[Round, ...]:
    """Group the ballots and count each vote.

    A majority that GPUs with an error in common have made decides nothing: chips do not fail alike, but software does,
    and its majority would blame the GPUs that are right.
    """
    counted = _counted(evidence)
    keys = {device.gpu: device.vote_key for device in evidence.devices}
    common = {gpu for one in counted if one.tally.outcome is Outcome.GOLDEN for gpu in _alike(one, keys)}
    return tuple(_without_majority(one, common) if common else one for one in counted)


def _without_majority(one: Round, common: set[str]) -> Round:
    agreeing = {gpu for gpu, ballot in one.ballots.items() if vote_of(gpu, ballot) == one.tally.reference}
    if one.tally.outcome is not Outcome.MAJORITY or len(agreeing - common) >= MIN_MAJORITY:
        return one
    why = f"{one.tally.why}, but a golden refuted {len(agreeing & common)} of them elsewhere"
    return replace(one, tally=Tally(outcome=Outcome.UNDECIDED, reference=None, dissenters=(), why=why))


def _counted(evidence: Evidence) -> tuple[Round, ...]:
    keys = {device.gpu: device.vote_key for device in evidence.devices}
    proved = goldens(evidence)
    groups: dict[tuple[str, str, int, int, bool, str], dict[str, Ballot]] = defaultdict(dict)
    for cast in evidence.casts:
        exact = evidence.cases[cast.test, cast.ballot.case].exact
        groups[_group(cast, "" if exact else keys[cast.gpu])][cast.gpu] = cast.ballot
    made = []
    for (test, case, iteration, seed, retest, _), ballots in groups.items():
        exact = evidence.cases[test, case].exact
        golden = proved.get((test, case, seed), set()) if exact else set()
        votes = {gpu: vote_of(gpu, ballot) for gpu, ballot in ballots.items()}
        result = tally(votes, next(iter(golden)) if len(golden) == 1 else None)
        made.append(
            Round(
                test=test,
                case=case,
                iteration=iteration,
                seed=seed,
                retest=retest,
                exact=exact,
                ballots=ballots,
                tally=result,
            )
        )
    return tuple(made)


def _group(cast: Cast, key: str) -> tuple[str, str, int, int, bool, str]:
    ballot = cast.ballot
    return (cast.test, ballot.case, ballot.iteration, ballot.seed, cast.retest, key)


def weigh(evidence: Evidence) -> Weighed:
    """Find every wrong, and set aside those that point at configuration instead of a chip."""
    all_rounds = rounds(evidence)
    keys = {device.gpu: device.vote_key for device in evidence.devices}
    beyond = outside(evidence)
    configuration = dict(beyond.configuration)
    wrongs: list[Wrong] = []
    excused: set[tuple[Input, str]] = set()
    for one in all_rounds:
        alike = _alike(one, keys) | _all_refuted(one, evidence)
        if alike:
            how = "in the same way" if len({vote_of(gpu, one.ballots[gpu]) for gpu in alike}) == 1 else "at once"
            why = f"{one.case}: {len(alike)} of {len(one.ballots)} GPUs are wrong {how}"
            configuration.setdefault(one.test, why)
            excused |= {(one.input, gpu) for gpu in alike}
        wrongs.extend(_outside(one, beyond, [wrong for wrong in _wrongs(one) if wrong.gpu not in alike]))
    for shown in evidence.proofs:
        at = (shown.test, shown.proof.case, shown.proof.seed)
        if shown.proof.fingerprint is None and shown.proof.core is None and (at, shown.gpu) not in excused:
            confirmed = any(one.input == at and _confirms(one, shown.gpu) for one in all_rounds)
            what = "one launch, not the others" if confirmed else "its result"
            wrongs.append(
                Wrong(
                    gpu=shown.gpu,
                    test=shown.test,
                    case=shown.proof.case,
                    iteration=None,
                    seed=shown.proof.seed,
                    retest=shown.retest,
                    basis=Basis.CONTESTED if confirmed else Basis.GOLDEN,
                    ballot=None,
                    reference=None,
                    right=None,
                    why=f"the CPU refuted {what}: {shown.proof.why}",
                )
            )
    conflicts = tuple(
        f"{test} {case}, seed {seed}: {len(proved)} different results were proved"
        for (test, case, seed), proved in goldens(evidence).items()
        if len(proved) > 1
    )
    if not believable(evidence):
        why = "no second core of the host's CPU confirms it"
        wrongs = [
            replace(w, basis=Basis.CONTESTED, why=f"{w.why}; {why}") if w.basis is Basis.GOLDEN else w for w in wrongs
        ]
    return Weighed(rounds=all_rounds, wrongs=tuple(wrongs), configuration=configuration, conflicts=conflicts)


def _outside(one: Round, beyond: Beyond, wrongs: list[Wrong]) -> list[Wrong]:
    """The wrongs of a round with those that broke a bound; none when most did, for then the others look wrong."""
    key = (one.test, one.case, one.iteration, one.seed, one.retest)
    if key in beyond.software:
        return []
    broke = {gpu for at, gpu in beyond.gpus if at == key and gpu in one.ballots}
    convicted = {wrong.gpu for wrong in wrongs if wrong.basis in HARD}
    kept = [wrong for wrong in wrongs if wrong.gpu in convicted or wrong.gpu not in broke]
    for gpu in sorted(broke - convicted):
        ballot = one.ballots[gpu]
        why = f"{one.case}: {ballot.outside} of {ballot.launches} launches are outside of the bound of right results"
        alone = gpu in beyond.alone.get(one.test, frozenset())
        why += f", as is all that this GPU computed in {one.test}: it may be the library" if alone else ""
        basis = Basis.CONTESTED if alone else Basis.BOUND
        kept.append(_wrong(one, gpu, basis, why))
    return kept


def _confirms(one: Round, gpu: str) -> bool:
    """Whether what this GPU said is a golden, or what at least three say."""
    votes = {name: vote_of(name, ballot) for name, ballot in one.ballots.items()}
    enough = one.tally.outcome is Outcome.GOLDEN or list(votes.values()).count(votes.get(gpu, "")) >= MIN_MAJORITY
    return enough and gpu in votes and votes[gpu] == one.tally.reference


def _wrongs(one: Round) -> list[Wrong]:
    """Those who dissent from the reference; without one, those who disagree with themselves."""
    reference = one.tally.reference
    if reference is None:
        blamed = [(gpu, Basis.SELF) for gpu, ballot in one.ballots.items() if len(ballot.fingerprints) > 1]
    else:
        basis = Basis.GOLDEN if one.tally.outcome is Outcome.GOLDEN else Basis.MAJORITY
        blamed = [(gpu, basis) for gpu in one.tally.dissenters]
    return [_wrong(one, gpu, basis, _why(one, gpu, basis)) for gpu, basis in blamed]


def _wrong(one: Round, gpu: str, basis: Basis, why: str) -> Wrong:
    reference = one.tally.reference
    steady = [(vote_of(name, b), b) for name, b in one.ballots.items() if len(b.fingerprints) == 1 and not b.outside]
    return Wrong(
        gpu=gpu,
        test=one.test,
        case=one.case,
        iteration=one.iteration,
        seed=one.seed,
        retest=one.retest,
        basis=basis,
        ballot=one.ballots[gpu],
        reference=reference,
        right=next((b for vote, b in steady if reference in {None, vote}), None),
        why=why,
    )


def _why(one: Round, gpu: str, basis: Basis) -> str:
    ballot = one.ballots[gpu]
    if basis is Basis.SELF:
        return f"{one.case}: {len(ballot.fingerprints)} different results in {ballot.made} equal launches"
    bad = sum(count for fingerprint, count in ballot.fingerprints if fingerprint != one.tally.reference)
    return f"{one.case}: {bad} of {ballot.made} launches differ from the {basis}; {one.tally.why}"


def _alike(one: Round, keys: Mapping[str, str]) -> set[str]:
    """Dissenters of an exact round that are wrong in the same way, or most GPUs at once: chips do not fail so."""
    if not one.exact or not one.tally.dissenters:
        return set()
    if len(one.tally.dissenters) >= max(MIN_MAJORITY, len(one.ballots) // 2 + 1):  # a race gives each its own error
        return set(one.tally.dissenters)
    same: dict[str, set[str]] = defaultdict(set)
    for gpu in one.tally.dissenters:
        same[vote_of(gpu, one.ballots[gpu])].add(gpu)
    sizes = Counter(keys[gpu] for gpu in one.ballots)
    alike: set[str] = set()
    for group in same.values():
        if len(group) < 2:  # noqa: PLR2004 - one GPU is not alike
            continue
        inside = Counter(keys[gpu] for gpu in group)
        whole_keys = {key for key, count in inside.items() if count == sizes[key] > 1}
        if 2 * len(group) > len(one.ballots):
            alike |= group
        elif len(sizes) > 1:
            alike |= {gpu for gpu in group if keys[gpu] in whole_keys}
    return alike


def _all_refuted(one: Round, evidence: Evidence) -> set[str]:
    """All GPUs agree, and the CPU refuted every one of them: the library, the build or the golden is wrong."""
    if one.tally.outcome is not Outcome.UNANIMOUS:
        return set()
    refuted = {
        shown.gpu
        for shown in evidence.proofs
        if (shown.test, shown.proof.case, shown.proof.seed) == one.input and shown.proof.fingerprint is None
    }
    return set(one.ballots) if refuted >= set(one.ballots) else set()
