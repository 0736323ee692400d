"""The decision table: all combinations of observations, and the rows of the design one by one."""

import itertools

import pytest

from burnin.guard.decide import REPEATS_TO_BLAME, ROWS, decide
from burnin.guard.judge import CLEAN, Evidence, judge, votes
from burnin.guard.seen import Blame, Changed, Check, Rerun, Seen, Third, Vote
from burnin.spec import FaultClass

CHIP = {FaultClass.CHIP_PERSISTENT, FaultClass.CHIP_TRANSIENT}
HARDWARE = CHIP | {FaultClass.MEMORY, FaultClass.LINK}
TRIT = (None, True, False)


def everything() -> list[Seen]:
    """Every combination of what matters; of the votes and of the repeats the kinds that rows tell apart."""
    names = ("at_rest", "post", "rerun", "r1_is_o", "r2_is_r1", "changed", "p1_is_o", "p2_is_p1", "third", "exact",
             "peer_exact", "alone")  # fmt: skip
    values = itertools.product(
        (Vote.SAME, Vote.MINORITY, Vote.SPLIT), (Vote.SAME, Vote.MINORITY, Vote.SPLIT),
        (Rerun.NONE, Rerun.INSIDE, Rerun.OUTSIDE), TRIT, TRIT, Changed, TRIT, TRIT,
        (Third.NONE, Third.SELF, Third.PEER), (True, False), (None, False), (0, REPEATS_TO_BLAME - 1),
    )  # fmt: skip
    return [Seen(**dict(zip(names, one, strict=True))) for one in values]


def test_every_combination_is_decided_and_nothing_is_blamed_without_a_sign() -> None:
    """A blame needs a sign, a clean step shows none, and what is explained otherwise blames no chip."""
    reached = set()
    for seen in everything():
        decision = decide(seen)
        reached.add(decision.row)
        assert decision.why
        if decision.check is Check.OK:
            assert seen.r1_is_o is True
            assert seen.p1_is_o is not False
            assert Vote.MINORITY not in (seen.at_rest, seen.post)
            assert Vote.SPLIT not in (seen.at_rest, seen.post)
            assert seen.rerun in (Rerun.NONE, Rerun.SAME)
            assert seen.exact is not False
        if decision.blame is not Blame.NOBODY:
            assert decision.fault_class in HARDWARE
            assert decision.check in (Check.BAD, Check.SUSPECT)
            assert decision.asks
        if decision.fault_class in CHIP:
            # Before a chip is suspected, nothing else may explain the difference.
            assert seen.at_rest is Vote.SAME
            assert seen.post is Vote.SAME
            assert seen.rerun is not Rerun.OUTSIDE
            assert seen.r1_is_o is not False or seen.changed is Changed.NOTHING
            assert False in (seen.r1_is_o, seen.p1_is_o, seen.p2_is_p1, seen.exact)
        if decision.redo:
            assert decision.fault_class in HARDWARE
    unreachable = {"fleet-wide", "flaky, not tested"} | {row.name for row in ROWS if "not known" in row.name}
    assert {row.name for row in ROWS} - unreachable <= reached
    assert {"clean", "not replayed", "half replayed"} <= reached


R1_IS_NOT_O = {"r1_is_o": False, "r2_is_r1": True}
FLAKY = {"r1_is_o": False, "r2_is_r1": False}
APART = {"r1_is_o": True, "p1_is_o": False, "p2_is_p1": True}


@pytest.mark.parametrize(
    ("seen", "fault_class", "blame"),
    [
        (Seen(r1_is_o=True, post=Vote.MINORITY), FaultClass.LINK, Blame.SELF),
        (Seen(r1_is_o=True, post=Vote.MAJORITY), FaultClass.NONE, Blame.NOBODY),
        (Seen(r1_is_o=True, post=Vote.SPLIT), FaultClass.LINK, Blame.NOBODY),
        (Seen(r1_is_o=True, rerun=Rerun.INSIDE), FaultClass.COMM_NONDETERMINISM, Blame.NOBODY),
        (Seen(r1_is_o=True, rerun=Rerun.OUTSIDE), FaultClass.LINK, Blame.NOBODY),
        (Seen(**R1_IS_NOT_O), FaultClass.CHIP_TRANSIENT, Blame.SELF),
        (Seen(**R1_IS_NOT_O, changed=Changed.MEMORY), FaultClass.MEMORY, Blame.SELF),
        (Seen(**R1_IS_NOT_O, changed=Changed.INPUTS), FaultClass.SOFTWARE_NONDETERMINISM, Blame.NOBODY),
        (Seen(**R1_IS_NOT_O, changed=Changed.ELSEWHERE), FaultClass.NONE, Blame.NOBODY),
        (Seen(**FLAKY, p2_is_p1=True, exact=False), FaultClass.CHIP_PERSISTENT, Blame.SELF),
        (Seen(**FLAKY, p2_is_p1=True, exact=True), FaultClass.SOFTWARE_NONDETERMINISM, Blame.NOBODY),
        (Seen(**FLAKY, p2_is_p1=True, exact=True, alone=2), FaultClass.CHIP_TRANSIENT, Blame.SELF),
        (Seen(**FLAKY, p2_is_p1=False, exact=True), FaultClass.SOFTWARE_NONDETERMINISM, Blame.NOBODY),
        (Seen(**FLAKY), FaultClass.SOFTWARE_NONDETERMINISM, Blame.NOBODY),
        (Seen(**APART, third=Third.PEER, exact=True), FaultClass.CHIP_PERSISTENT, Blame.SELF),
        (Seen(**APART, third=Third.SELF, exact=True), FaultClass.CHIP_PERSISTENT, Blame.PEER),
        (Seen(**APART, exact=False, peer_exact=True), FaultClass.CHIP_PERSISTENT, Blame.SELF),
        (Seen(**APART, exact=True, peer_exact=False), FaultClass.CHIP_PERSISTENT, Blame.PEER),
        (Seen(**APART, exact=True, peer_exact=True), FaultClass.CONFIGURATION, Blame.NOBODY),
        (Seen(r1_is_o=True, p1_is_o=True, p2_is_p1=False), FaultClass.CHIP_TRANSIENT, Blame.PEER),
        (Seen(r1_is_o=True, at_rest=Vote.MINORITY), FaultClass.MEMORY, Blame.SELF),
        (Seen(r1_is_o=True, at_rest=Vote.MINORITY, post=Vote.MINORITY), FaultClass.LINK, Blame.SELF),
        (Seen(r1_is_o=True, at_rest=Vote.SPLIT), FaultClass.MEMORY, Blame.NOBODY),
        (Seen(r1_is_o=True, decayed=True), FaultClass.MEMORY, Blame.SELF),
        (Seen(r1_is_o=True, exact=False), FaultClass.CHIP_PERSISTENT, Blame.SELF),
        (Seen(**R1_IS_NOT_O, fleet_wide=True), FaultClass.SOFTWARE_NONDETERMINISM, Blame.NOBODY),
        (Seen(), FaultClass.NONE, Blame.NOBODY),
    ],
)
def test_the_rows_of_the_design(seen: Seen, fault_class: FaultClass, blame: Blame) -> None:
    decision = decide(seen)
    assert (decision.fault_class, decision.blame) == (fault_class, blame)


def test_votes_need_three_that_agree() -> None:
    assert votes([]) == []
    assert votes([5]) == [Vote.NONE]
    assert votes([5, 5]) == [Vote.SAME] * 2
    assert votes([5, 6]) == [Vote.SPLIT] * 2
    assert votes([5, 5, 6]) == [Vote.SPLIT] * 3
    assert votes([5, 6, 5, 5]) == [Vote.MAJORITY, Vote.MINORITY, Vote.MAJORITY, Vote.MAJORITY]
    assert votes([5, 5, 6, 6]) == [Vote.SPLIT] * 4


GOOD, BAD = (1, 2, 3), (1, 9, 3)


def rows(bad: int | None = None, world: int = 4) -> list[tuple[int, ...]]:
    return [BAD if rank == bad else GOOD for rank in range(world)]


def test_a_clean_step_is_clean() -> None:
    assert judge(Evidence(world=4, original=rows(), first=rows(), peer_first=rows(), peers=(1, 2, 3, 0))) == CLEAN


def test_a_rank_that_is_wrong_as_itself_and_as_a_peer_is_one_culprit() -> None:
    """Rank 2 is wrong whenever it computes; its peer is rank 3, and it is the peer of rank 1."""
    verdict = judge(
        Evidence(
            world=4, original=rows(2), first=rows(2), second=rows(2), peer_first=rows(1), peer_second=rows(1),
            third=rows(0), peers=(1, 2, 3, 0), exact=[True] * 4,
        )
    )  # fmt: skip
    assert (verdict.fault_class, verdict.rank, verdict.tensors) == (FaultClass.CHIP_PERSISTENT, 2, (1,))


def test_many_flaky_ranks_are_software_even_if_peers_agree_by_chance() -> None:
    verdict = judge(
        Evidence(
            world=4, original=rows(), first=[BAD, BAD, BAD, GOOD],
            second=[(7, 2, 3), (8, 2, 3), (1, 7, 3), GOOD], peer_first=rows(), peer_second=rows(),
            peers=(1, 2, 3, 0), exact=[False, True, True, True],
        )
    )  # fmt: skip
    assert (verdict.fault_class, verdict.rank) == (FaultClass.SOFTWARE_NONDETERMINISM, None)


def test_a_shard_that_changed_is_blamed_where_it_lies_not_where_it_was_used() -> None:
    everywhere = [BAD] * 4
    evidence = Evidence(
        world=4, original=rows(), first=everywhere, second=everywhere, memory_changed=[False, False, True, False],
        shared=True, post=[5] * 4,
    )  # fmt: skip
    verdict = judge(evidence)
    assert (verdict.fault_class, verdict.rank) == (FaultClass.MEMORY, 2)


def test_a_link_is_named_by_exact_transfers() -> None:
    outside = [Rerun.OUTSIDE] * 4
    base = Evidence(world=4, original=rows(), first=rows(), second=rows(), rerun=outside)
    assert (judge(base).fault_class, judge(base).rank) == (FaultClass.LINK, None)
    one = judge(Evidence(world=4, original=rows(), first=rows(), second=rows(), rerun=outside, pairs=[(1, 3)]))
    assert (one.rank, one.link) == (3, (1, 3))
    several = judge(
        Evidence(world=4, original=rows(), first=rows(), second=rows(), rerun=outside, pairs=[(1, 3), (1, 2), (1, 0)])
    )
    assert (several.rank, several.link) == (1, None)
