"""The vote: which result is right when GPUs that computed the same thing say different things. Pure and torch-free.

A GPU compared only with itself hides every persistent fault, so GPUs are compared with each other, and where a golden
is known (an exact case proved on the CPU), with that.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

MIN_MAJORITY = 3
"""Voters that must agree before they overrule others: two can be wrong together (a shared bug, a shared cable)."""


class Outcome(StrEnum):
    """How a vote ended."""

    UNANIMOUS = "unanimous"
    MAJORITY = "majority"
    GOLDEN = "golden"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The result of one vote."""

    outcome: Outcome
    reference: str | None
    """The fingerprint held to be right; None when undecided."""
    dissenters: tuple[str, ...]
    """Every GPU outside the reference class, sorted; empty when undecided, for then nobody is blamed."""
    why: str


def tally(ballots: Mapping[str, str], golden: str | None = None) -> Tally:
    """Count one vote.

    A golden beats any majority. Otherwise all must agree, or a strict majority of at least `MIN_MAJORITY` must, and
    then everyone outside it dissents: two different bad GPUs among eight are both found. The order of the ballots does
    not matter.

    Args:
        ballots: GPU → fingerprint of its result.
        golden: The fingerprint proved right on the CPU, if known.

    Raises:
        ValueError: There are no ballots.
    """
    if not ballots:
        raise ValueError("a vote needs at least one ballot")
    voters = len(ballots)
    if golden is not None:
        dissenters = _others(ballots, golden)
        why = f"{voters - len(dissenters)} of {voters} equal the golden"
        return Tally(outcome=Outcome.GOLDEN, reference=golden, dissenters=dissenters, why=why)
    classes = Counter(ballots.values())
    leader, agreeing = min(classes.items(), key=lambda item: (-item[1], item[0]))
    if voters == 1:
        return _undecided("one voter alone decides nothing")
    if len(classes) == 1:
        return Tally(outcome=Outcome.UNANIMOUS, reference=leader, dissenters=(), why=f"all {voters} agree")
    if agreeing >= MIN_MAJORITY and 2 * agreeing > voters:
        dissenters = _others(ballots, leader)
        why = f"{agreeing} of {voters} agree"
        return Tally(outcome=Outcome.MAJORITY, reference=leader, dissenters=dissenters, why=why)
    return _undecided(f"{voters} voters gave {len(classes)} results, the largest group {agreeing}: no majority")


def _others(ballots: Mapping[str, str], reference: str) -> tuple[str, ...]:
    return tuple(sorted(gpu for gpu, fingerprint in ballots.items() if fingerprint != reference))


def _undecided(why: str) -> Tally:
    return Tally(outcome=Outcome.UNDECIDED, reference=None, dissenters=(), why=why)


def vote_key(**facts: str | int | None) -> str:
    """Digest of what must be equal for two GPUs' float results to be comparable bit by bit.

    Give it the SKU, SM count, partition mode, library versions, hash of the kernel sources, driver and firmware. A fact
    that cannot be read (None) is part of the key too: known and unknown are not taken to be equal.

    Returns:
        16 hex digits.

    Raises:
        ValueError: No facts were given.
    """
    if not facts:
        raise ValueError("a vote key needs facts")
    lines = "\n".join(f"{name}={value!r}" for name, value in sorted(facts.items()))
    return hashlib.blake2b(lines.encode(), digest_size=8).hexdigest()
