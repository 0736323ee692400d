"""Exhaustive tables: every single culprit on hosts of 2 to 6 GPUs, in every way in which it may show itself."""

from collections.abc import Iterable
from itertools import chain, combinations, permutations

import pytest

from burnin.verdict.pairs import ALL, HOST, Edge, Explanation, explain

HOSTS = range(2, 7)


def some(ways: Iterable[Edge], least: int) -> Iterable[tuple[Edge, ...]]:
    ways = tuple(ways)
    return chain.from_iterable(combinations(ways, size) for size in range(least, len(ways) + 1))


@pytest.mark.parametrize("ranks", HOSTS)
def test_nothing_wrong_is_nobody(ranks: int) -> None:
    assert explain((), ranks) == Explanation()


@pytest.mark.parametrize("ranks", HOSTS)
def test_one_bad_link_is_that_link_in_every_direction(ranks: int) -> None:
    for source, destination in permutations(range(ranks), 2):
        one, other = (source, destination), (destination, source)
        assert explain([one], ranks) == Explanation(links=(one,))
        assert explain([one, other, one], ranks) == Explanation(links=tuple(sorted((one, other))))


@pytest.mark.parametrize("ranks", range(3, 6))
def test_one_bad_endpoint_is_named_by_any_two_of_its_partners(ranks: int) -> None:
    for bad in range(ranks):
        others = [one for one in (*range(ranks), HOST, ALL) if one != bad]
        for ways in ([(bad, one) for one in others], [(one, bad) for one in others]):
            for wrong in some(ways, 2):
                assert explain(wrong, ranks) == Explanation(endpoints=(bad,)), wrong
        both = [(bad, one) for one in others] + [(one, bad) for one in others]
        assert explain(both, ranks) == Explanation(endpoints=(bad,))


@pytest.mark.parametrize("ranks", range(3, 7))
def test_one_wrong_rank_is_named_though_its_data_came_from_all(ranks: int) -> None:
    for bad in range(ranks):
        assert explain([(ALL, bad)], ranks) == Explanation(endpoints=(bad,))
        assert explain([(HOST, bad)], ranks) == Explanation(endpoints=(bad,))
        assert explain([(ALL, bad), ((bad + 1) % ranks, bad)], ranks) == Explanation(endpoints=(bad,))


@pytest.mark.parametrize("ranks", range(3, 7))
@pytest.mark.parametrize("shared", [HOST, ALL])
def test_what_several_have_in_common_blames_none_of_them(ranks: int, shared: int) -> None:
    for wrong in some([(shared, rank) for rank in range(ranks)], 2):
        assert explain(wrong, ranks) == Explanation(shared=(shared,)), wrong


def test_a_reduction_spreads_what_a_bad_sender_damaged() -> None:
    wrong = [(2, 0), (2, 5), *((ALL, rank) for rank in range(8))]
    assert explain(wrong, 8) == Explanation(endpoints=(2,), shared=(ALL,))


def test_two_gpus_share_their_only_link() -> None:
    assert (
        explain([(ALL, 1)], 2) == explain([(0, 1)], 2) == explain([(0, 1), (ALL, 1)], 2) == Explanation(links=((0, 1),))
    )
    assert explain([(0, 1), (HOST, 1)], 2) == Explanation(endpoints=(1,))


@pytest.mark.parametrize("ranks", range(3, 9))
def test_all_pairs_at_once_are_no_gpu(ranks: int) -> None:
    assert explain(permutations(range(ranks), 2), ranks) == Explanation(everyone=True)


def test_two_culprits_are_both_found() -> None:
    two = [(1, other) for other in (0, 2, 3)] + [(other, 6) for other in (4, 5, 7)]
    assert explain(two, 8).endpoints == (1, 6)
    assert explain([(0, 1), (4, 5)], 8).links == ((0, 1), (4, 5))
    mixed = explain([(1, 0), (1, 2), (5, 6)], 8)
    assert (mixed.endpoints, mixed.links) == ((1,), ((5, 6),))


def test_what_two_explanations_fit_equally_well_names_nobody() -> None:
    assert explain([(0, 1), (1, 2), (2, 3)], 8) == Explanation(unclear=(1, 2))
    assert explain([(0, 1), (1, 2), (2, 0)], 8) == Explanation(unclear=(0, 1, 2))
