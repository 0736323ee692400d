"""Votes across hosts: what a host says, and when it says nothing."""

from burnin.session import common_seed
from burnin.telling.ballots import host_ballots
from tests.burnin.test_judge import BAD, EXACT, FLOAT, GOOD, evidence, votes

COMMON = common_seed(FLOAT)


def test_what_all_gpus_agree_on_is_said_under_a_key_that_other_hosts_share() -> None:
    casts = votes(4, {}, test=FLOAT, seed=COMMON)
    assert host_ballots(evidence(4, casts=casts)) == [{"key": f"k/{FLOAT}/c", "fingerprint": GOOD}]


def test_a_single_gpu_speaks_too() -> None:
    assert len(host_ballots(evidence(1, casts=votes(1, {}, test=FLOAT, seed=COMMON)))) == 1


def test_two_kinds_of_gpu_say_two_things() -> None:
    casts = votes(4, {2: BAD, 3: BAD}, test=FLOAT, seed=COMMON)
    said = host_ballots(evidence(4, keys="aabb", casts=casts))
    assert {ballot["key"]: ballot["fingerprint"] for ballot in said} == {f"a/{FLOAT}/c": GOOD, f"b/{FLOAT}/c": BAD}


def test_a_host_that_disagrees_with_itself_says_nothing() -> None:
    for results in ({1: BAD}, {1: ((GOOD, 3), (BAD, 1))}):
        assert host_ballots(evidence(4, casts=votes(4, results, test=FLOAT, seed=COMMON))) == []


def test_other_seeds_exact_cases_and_retests_are_no_ballots() -> None:
    casts = (
        *votes(4, {}, test=FLOAT, seed=1),
        *votes(4, {}, test=EXACT, seed=common_seed(EXACT)),
        *votes(4, {}, test=FLOAT, seed=COMMON, retest=True),
    )
    assert host_ballots(evidence(4, casts=casts)) == []
