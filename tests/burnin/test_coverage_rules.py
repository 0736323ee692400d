"""The rules of others on results made by hand: what each sees and what it cannot."""

from collections.abc import Callable

import pytest
import torch

from burnin.coverage.rules import (
    NormAndAccuracy,
    NormCompare,
    Rule,
    ScalarVote,
    SelfCompare,
    SelfCompareNan,
    XorVote,
    slow_outliers,
)
from burnin.spec import Case

RIGHT = torch.arange(1.0, 65.0).view(8, 8)


def changed(*changes: tuple[int, float]) -> torch.Tensor:
    value = RIGHT.clone()
    for at, number in changes:
        value.view(-1)[at] = number
    return value


def swapped() -> torch.Tensor:
    return changed((3, float(RIGHT.view(-1)[60])), (60, float(RIGHT.view(-1)[3])))


WRONG, SLIGHT, NAN = changed((5, 99.0)), changed((5, 6.0 + 2**-20)), changed((5, float("nan")))


def alarm(make: Callable[[], Rule], *outputs: torch.Tensor, dtype: str = "fp32", test: str = "gemm.exact") -> bool:
    rule = make()
    rule.begin(Case(test=test, name="c", dtype=dtype, exact=True, rate_name="r"))
    for output in outputs:
        rule.see(output, RIGHT)
    return rule.found


@pytest.mark.parametrize("make", [SelfCompare, SelfCompareNan, NormCompare, NormAndAccuracy, XorVote, ScalarVote])
def test_a_healthy_gpu_raises_no_alarm(make: Callable[[], Rule]) -> None:
    assert not alarm(make, RIGHT, RIGHT, RIGHT)


@pytest.mark.parametrize(
    ("make", "intermittent", "persistent", "nan", "slight"),
    [
        (SelfCompare, True, False, False, False),
        (SelfCompareNan, True, False, True, False),
        (NormCompare, True, False, False, True),
        (NormAndAccuracy, True, True, False, True),
    ],
)
def test_what_each_peer_sees(
    make: Callable[[], Rule], *, intermittent: bool, persistent: bool, nan: bool, slight: bool
) -> None:
    assert alarm(make, RIGHT, WRONG, RIGHT) is intermittent
    assert alarm(make, WRONG, WRONG, WRONG) is persistent
    assert alarm(make, RIGHT, NAN, RIGHT) is nan
    assert alarm(make, RIGHT, SLIGHT) is slight


@pytest.mark.parametrize("make", [SelfCompare, SelfCompareNan, NormCompare, NormAndAccuracy])
def test_peers_see_only_the_operations_they_run(make: Callable[[], Rule]) -> None:
    assert not alarm(make, RIGHT, WRONG, dtype="int8")
    assert not alarm(make, RIGHT, WRONG, test="attention")


def test_new_inputs_bring_a_new_reference() -> None:
    rule = SelfCompare()
    for output in (RIGHT, WRONG):
        rule.begin(Case(test="gemm.vote", name="c", dtype="fp32", exact=False, rate_name="r"))
        rule.see(output, RIGHT)
    assert not rule.found


def test_xor_misses_what_the_multiset_of_words_hides_and_the_mean_misses_little() -> None:
    assert alarm(XorVote, WRONG)
    assert not alarm(XorVote, swapped())
    assert alarm(ScalarVote, WRONG)
    assert alarm(ScalarVote, NAN)
    assert not alarm(ScalarVote, changed((5, 6.0 + 2**-20)))


def test_rates_find_slow_gpus_only() -> None:
    assert slow_outliers({"a": 100.0, "b": 91.0, "c": 89.0}) == ("c",)
    assert slow_outliers(dict.fromkeys("abcd", 5.0)) == ()
