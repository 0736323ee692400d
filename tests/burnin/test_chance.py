import pytest

from burnin.verdict.chance import fires, never_seen_bound, rate_bound, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # Brown, Cai and DasGupta's form of the score interval, computed by hand for these counts.
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (300, 300, 0.98736, 1.0), (0, 0, 0.0, 1.0)],
)
def test_wilson(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3)])
def test_counts_that_contradict_each_other_are_refused(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="successes in 3 trials"):
        wilson(successes, trials)


def test_what_was_never_seen_is_bounded_by_three_over_n() -> None:
    assert never_seen_bound(0) == 1.0
    assert never_seen_bound(1) == pytest.approx(0.95)
    assert never_seen_bound(1000) == pytest.approx(3 / 1000, rel=0.01)
    assert (1 - never_seen_bound(1000)) ** 1000 == pytest.approx(0.05)
    assert rate_bound(0, 1000) == never_seen_bound(1000)
    assert rate_bound(2, 1000) == wilson(2, 1000)[1] > 0.002


def test_a_rare_fault_fires_with_time() -> None:
    assert fires(1e-6, 1e6) == pytest.approx(0.63212, abs=1e-4)
    assert fires(1e-12, 1e6) == pytest.approx(1e-6, rel=1e-4)
    assert (fires(0, 1e9), fires(1, 1), fires(1, 0), fires(0.5, 0)) == (0, 1, 0, 0)
