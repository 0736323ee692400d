"""From the fingerprints that all ranks gathered to one decision a rank, and one verdict. Pure and torch-free.

Every rank computes this from the same rows, so all come to the same verdict and act alike.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from burnin.guard.decide import decide
from burnin.guard.seen import Blame, Changed, Check, Decision, Rerun, Seen, Third, Vote
from burnin.spec import FaultClass
from burnin.vote import MIN_MAJORITY

_T = TypeVar("_T")

Row = tuple[int, ...]
"""Fingerprints of one run, tensor by tensor."""

_ORDER = (
    FaultClass.MEMORY,
    FaultClass.LINK,
    FaultClass.CHIP_PERSISTENT,
    FaultClass.CHIP_TRANSIENT,
    FaultClass.CONFIGURATION,
    FaultClass.SOFTWARE_NONDETERMINISM,
    FaultClass.COMM_NONDETERMINISM,
    FaultClass.NONE,
)
"""Which of several findings of one step explains the others: what is wrong with data before what is made of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What all ranks gathered about one step. Lists are by rank; empty: not done."""

    world: int
    original: Sequence[Row]
    first: Sequence[Row] = ()
    second: Sequence[Row] = ()
    """Of all further replays the first that differs from `first`; where none does, any."""
    peer_first: Sequence[Row] = ()
    """What the peer made of a rank's step: by the rank whose step it is."""
    peer_second: Sequence[Row] = ()
    third: Sequence[Row] = ()
    peers: Sequence[int] = ()
    """Rank → its peer."""
    inputs_changed: Sequence[bool] = ()
    memory_changed: Sequence[bool] = ()
    decayed: Sequence[bool] = ()
    at_rest: Sequence[int] = ()
    """Digests of what replicas must have alike before the step."""
    post: Sequence[int] = ()
    """Digests of what ranks must have alike after the collectives."""
    rerun: Sequence[Rerun] = ()
    exact: Sequence[bool | None] = ()
    alone: Sequence[int] = ()
    shared: bool = False
    """Whether a rank's parameters are part of what every rank computes with (FSDP2)."""
    pairs: Sequence[tuple[int, int]] = ()
    """(from, to) of transfers that an exact test saw go wrong."""
    fleet_wide: bool = False
    sound: bool = True
    """See `burnin.guard.seen.Seen`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one checked step came to."""

    check: Check
    fault_class: FaultClass
    rank: int | None
    """Who is to blame; None: nobody, or it is not known."""
    why: str
    row: str
    asks: tuple[str, ...]
    redo: bool
    link: tuple[int, int] | None = None
    """(from, to), where a link is to blame and known."""
    tensors: tuple[int, ...] = ()
    """Indices of the fingerprints that differ, of the rank in question."""


CLEAN = Verdict(
    check=Check.OK, fault_class=FaultClass.NONE, rank=None, why="replays, peers and collectives agree", row="clean",
    asks=(), redo=False,
)  # fmt: skip


def votes(digests: Sequence[int]) -> list[Vote]:
    """Compare what must be equal: a strict majority of at least `MIN_MAJORITY` overrules, as in any vote."""
    if len(digests) < 2:  # noqa: PLR2004 - one rank has nobody to compare with
        return [Vote.NONE] * len(digests)
    leader, agreeing = min(Counter(digests).items(), key=lambda item: (-item[1], item[0]))
    if agreeing == len(digests):
        return [Vote.SAME] * len(digests)
    if 2 * agreeing <= len(digests) or agreeing < MIN_MAJORITY:
        return [Vote.SPLIT] * len(digests)
    return [Vote.MAJORITY if one == leader else Vote.MINORITY for one in digests]


def observe(evidence: Evidence) -> list[Seen]:
    """Return what is seen of each rank."""
    rest, post = votes(evidence.at_rest), votes(evidence.post)
    elsewhere = evidence.shared and (any(evidence.memory_changed) or any(evidence.decayed))
    elsewhere = elsewhere or (evidence.shared and any(one is not Vote.SAME for one in post))
    found = []
    for rank in range(evidence.world):
        changed = Changed.NOTHING
        if _is(evidence.inputs_changed, rank):
            changed = Changed.INPUTS
        elif _is(evidence.memory_changed, rank):
            changed = Changed.MEMORY
        elif elsewhere:
            changed = Changed.ELSEWHERE
        peer = evidence.peers[rank] if evidence.peers else None
        found.append(
            Seen(
                at_rest=_at(rest, rank, Vote.NONE),
                decayed=_is(evidence.decayed, rank),
                post=_at(post, rank, Vote.NONE),
                rerun=_at(evidence.rerun, rank, Rerun.NONE),
                r1_is_o=_equal(evidence.first, evidence.original, rank),
                r2_is_r1=_equal(evidence.second, evidence.first, rank),
                changed=changed,
                p1_is_o=_equal(evidence.peer_first, evidence.original, rank),
                p2_is_p1=_equal(evidence.peer_second, evidence.peer_first, rank),
                third=_third(evidence, rank),
                exact=_at(evidence.exact, rank, None),
                peer_exact=None if peer is None else _at(evidence.exact, peer, None),
                alone=_at(evidence.alone, rank, 0),
                fleet_wide=evidence.fleet_wide,
                sound=evidence.sound,
            )
        )
    return found


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict of a step."""
    seen = observe(evidence)
    decisions = _with_company([decide(one) for one in seen], seen)
    told = [(rank, one) for rank, one in enumerate(decisions) if one.check is not Check.OK]
    if not told:
        return CLEAN
    rank, worst = min(told, key=lambda item: (_ORDER.index(item[1].fault_class), item[1].blame is Blame.NOBODY))
    culprit = None
    if worst.blame is Blame.SELF:
        culprit = rank
    elif worst.blame is Blame.PEER:
        culprit = evidence.peers[rank]
    verdict = Verdict(
        check=worst.check,
        fault_class=worst.fault_class,
        rank=culprit,
        why=worst.why,
        row=worst.row,
        asks=worst.asks,
        redo=any(one.redo for _, one in told),
        tensors=_differing(evidence, rank),
    )
    return _of_link(verdict, evidence) if worst.fault_class is FaultClass.LINK else verdict


def _with_company(decisions: list[Decision], seen: list[Seen]) -> list[Decision]:
    """Several ranks that do not repeat themselves at once are software: chips do not begin to fail together."""
    flaky = [one.r1_is_o is False and one.r2_is_r1 is False for one in seen]
    if sum(flaky) < 2 or 2 * sum(flaky) <= len(seen):  # noqa: PLR2004 - company is two
        return decisions
    return [
        decide(replace(one, fleet_wide=True)) if fails else decision
        for decision, one, fails in zip(decisions, seen, flaky, strict=True)
    ]


def _of_link(verdict: Verdict, evidence: Evidence) -> Verdict:
    """Name the link. The end at which several partners' transfers fail is to blame, else the one that received."""
    if not evidence.pairs:
        return verdict
    ends = Counter(end for pair in set(evidence.pairs) for end in pair)
    often = [end for end, count in ends.items() if count > 1]
    pair = evidence.pairs[0]
    rank = verdict.rank if verdict.rank is not None else (often[0] if len(often) == 1 else pair[1])
    link = pair if len(set(evidence.pairs)) == 1 else None
    told = f"; an exact transfer from rank {pair[0]} to rank {pair[1]} was wrong, too"
    return replace(verdict, rank=rank, link=link, check=Check.BAD, why=verdict.why + told)


def _differing(evidence: Evidence, rank: int) -> tuple[int, ...]:
    found: set[int] = set()
    for rows in (evidence.first, evidence.second, evidence.peer_first, evidence.peer_second):
        if rows:
            pairs = zip(evidence.original[rank], rows[rank], strict=True)
            found |= {index for index, (one, other) in enumerate(pairs) if one != other}
    return tuple(sorted(found))


def _third(evidence: Evidence, rank: int) -> Third:
    if not evidence.third:
        return Third.NONE
    if evidence.third[rank] == evidence.original[rank]:
        return Third.SELF
    return Third.PEER if evidence.third[rank] == evidence.peer_first[rank] else Third.NEITHER


def _equal(one: Sequence[Row], other: Sequence[Row], rank: int) -> bool | None:
    return one[rank] == other[rank] if one and other else None


def _at(values: Sequence[_T], rank: int, default: _T) -> _T:
    return values[rank] if values else default


def _is(values: Sequence[bool], rank: int) -> bool:
    return bool(values) and values[rank]
