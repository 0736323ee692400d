"""The vote: every partition of eight GPUs against an oracle that is written another way."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnin.vote import Outcome, tally, vote_key


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """All set partitions, by putting the first item into each block of the partitions of the rest."""
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for at, block in enumerate(smaller):
            yield [*smaller[:at], [first, *block], *smaller[at + 1 :]]


def expected(blocks: list[list[int]]) -> set[int] | None:
    """Dissenters, or None where nobody may be blamed: written over blocks, not over counts of fingerprints."""
    everyone = {gpu for block in blocks for gpu in block}
    if len(blocks) == 1:
        return set()
    for block in blocks:
        rest = everyone - set(block)
        if len(block) > len(rest) and len(block) not in {1, 2}:
            return rest
    return None


def test_every_partition_of_eight_gpus() -> None:
    seen = 0
    for blocks in partitions(list(range(8))):
        ballots = {str(gpu): f"{at:016x}" for at, block in enumerate(blocks) for gpu in block}
        result = tally(ballots)
        blamed = expected(blocks)
        if blamed is None:
            assert (result.outcome, result.dissenters, result.reference) == (Outcome.UNDECIDED, (), None)
        else:
            assert {int(gpu) for gpu in result.dissenters} == blamed
            assert result.outcome in {Outcome.UNANIMOUS, Outcome.MAJORITY}
        assert result.why
        seen += 1
    assert seen == 4140


@pytest.mark.parametrize("voters", range(2, 8))
def test_every_partition_of_fewer_gpus(voters: int) -> None:
    for blocks in partitions(list(range(voters))):
        result = tally({str(gpu): str(at) for at, block in enumerate(blocks) for gpu in block})
        assert (None if result.outcome is Outcome.UNDECIDED else {int(g) for g in result.dissenters}) == expected(
            blocks
        )


def test_two_different_bad_gpus_among_eight_are_both_found() -> None:
    ballots = {f"gpu{i}": "good" for i in range(8)} | {"gpu2": "bad", "gpu6": "worse"}
    assert tally(ballots).dissenters == ("gpu2", "gpu6")


def test_the_golden_beats_the_majority() -> None:
    result = tally({"a": "x", "b": "x", "c": "x", "d": "g"}, "g")
    assert (result.outcome, result.dissenters) == (Outcome.GOLDEN, ("a", "b", "c"))


def test_the_golden_breaks_the_tie_of_two_and_refutes_all() -> None:
    assert tally({"a": "x", "b": "g"}, "g").dissenters == ("a",)
    assert tally({"a": "x", "b": "x"}, "g").dissenters == ("a", "b")


def test_one_voter_decides_nothing_and_none_is_an_error() -> None:
    assert tally({"a": "x"}).outcome is Outcome.UNDECIDED
    with pytest.raises(ValueError, match="at least one"):
        tally({})


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(["1", "2", "3"]), min_size=1),
    st.one_of(st.none(), st.sampled_from(["1", "2", "9"])),
    st.randoms(use_true_random=False),
)
def test_the_order_of_voters_does_not_matter(ballots: dict[str, str], golden: str | None, rng: random.Random) -> None:
    items = list(ballots.items())
    rng.shuffle(items)
    assert tally(dict(items), golden) == tally(ballots, golden)


def test_vote_key_depends_on_every_fact_and_not_on_their_order() -> None:
    key = vote_key(sku="H200", sm_count=132, driver="580")
    assert key == vote_key(driver="580", sm_count=132, sku="H200")
    assert len(key) == 16
    others = [vote_key(sku="H100", sm_count=132, driver="580"), vote_key(sku="H200", sm_count=132, driver=None)]
    others += [vote_key(sku="H200", sm_count="132", driver="580"), vote_key(sku="H200", sm_count=132)]
    assert len({key, *others}) == 5
    with pytest.raises(ValueError, match="facts"):
        vote_key()
