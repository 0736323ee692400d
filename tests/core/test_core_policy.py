"""How rules match, which level proves which, and when the budget objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.core.policy import (
    LEVELS,
    Accusation,
    Action,
    Budget,
    Count,
    FindingKind,
    Rule,
    Strikes,
    When,
    covers,
    first_match,
    matches,
    strongest,
)
from fleetd.core.step import Step
from fleetd.model.finding import FaultClass, Scope, Severity, Verdict
from fleetd.model.ids import GpuId

MEMORY = FaultClass.MEMORY
BURNT = Accusation(
    kind=FindingKind.BURNIN,
    fault_class=MEMORY,
    gpu=GpuId("G0"),
    index=0,
    at_s=1000,
    why="w",
    code=None,
    scope=None,
    severity=None,
    strikes_at_s=(100, 950, 1000),
    pool="training",
    skus=("H100 80GB",),
)
SEEN = Accusation(
    kind=FindingKind.DEVICE,
    fault_class=MEMORY,
    gpu=GpuId("G0"),
    index=0,
    at_s=1000,
    why="w",
    code="nvidia.xid.79",
    scope=Scope.GPU,
    severity=Severity.ERROR,
    strikes_at_s=(),
    seen_at_s=(900, 945, 1000),
)


@pytest.mark.parametrize(
    ("when", "burnt", "seen"),
    [
        (When(finding=FindingKind.BURNIN), True, False),
        (When(finding=FindingKind.DEVICE), False, True),
        (When(verdict=Verdict.FAIL), True, False),
        (When(verdict=Verdict.PASS), False, False),
        (When(fault_class=(FaultClass.LINK, MEMORY)), True, True),
        (When(fault_class=(FaultClass.LINK,)), False, False),
        (When(code="nvidia.xid.79"), False, True),
        (When(code="nvidia.*"), False, True),
        (When(code="*.7"), False, False),
        (When(code="nvidia.xid.7"), False, False),
        (When(severity_at_least=Severity.WARNING), False, True),
        (When(severity_at_least=Severity.FATAL), False, False),
        (When(strikes=Strikes(at_least=2, within_seconds=50)), True, False),
        (When(strikes=Strikes(at_least=2, within_seconds=49)), False, False),
        (When(strikes=Strikes(at_least=3, within_seconds=900)), True, False),
        (When(fault_class=(MEMORY,), code="nvidia.*", severity_at_least=Severity.FATAL), False, False),
        (When(scope=(Scope.LINK, Scope.GPU)), False, True),
        (When(scope=(Scope.APP,)), False, False),
        (When(pool="train*"), True, False),
        (When(pool="*"), True, True),
        (When(sku="H100*"), True, False),
        (When(sku="*"), True, True),
        (When(count=Count(at_least=2, within_seconds=60)), False, True),
        (When(count=Count(at_least=3, within_seconds=60)), False, False),
    ],
)
def test_matchers(when: When, burnt: bool, seen: bool) -> None:
    assert (matches(when, BURNT), matches(when, SEEN)) == (burnt, seen)


def test_the_first_match_decides() -> None:
    rules = [
        Rule(name=name, when=When(fault_class=(c,)), then=Action.NOTIFY)
        for name, c in (("a", FaultClass.LINK), ("b", MEMORY), ("c", MEMORY))
    ]
    found = first_match(rules, BURNT)
    assert found is not None
    assert found.name == "b"
    assert first_match(rules[:1], BURNT) is None


def test_levels_prove_themselves_and_the_weaker_ones() -> None:
    for strong, weak in zip(LEVELS[1:], LEVELS[:-1], strict=True):
        assert covers(strong, weak)
        assert not covers(weak, strong)
        assert strongest((weak, strong, "site-own")) == strong
    assert covers("site-own", "site-own")
    assert not covers("soak", "site-own")


@pytest.mark.parametrize(
    "make",
    [
        When,
        lambda: When(fault_class=()),
        lambda: When(code="nvidia.[xy]"),
        lambda: When(code=""),
        lambda: When(scope=()),
        lambda: Count(at_least=33, within_seconds=1),
        lambda: Count(at_least=1, within_seconds=0),
        lambda: Strikes(at_least=0, within_seconds=1),
        lambda: Strikes(at_least=17, within_seconds=1),
        lambda: Strikes(at_least=1, within_seconds=0),
        lambda: Rule(name=" ", when=When(verdict=Verdict.FAIL), then=Action.NONE),
        lambda: Budget(max_ratio=1.1, at_least=1, max_in_window=1, window_seconds=1),
        lambda: Budget(max_ratio=1, at_least=-1, max_in_window=1, window_seconds=1),
        lambda: Budget(max_ratio=1, at_least=1, max_in_window=1, window_seconds=0),
        lambda: Step(state=None, why=" "),
    ],
)
def test_nonsense_cannot_be_built(make: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make()  # type: ignore[operator]


@given(hosts=st.integers(0, 10_000), ratio=st.floats(0, 1), at_least=st.integers(0, 50))
def test_never_beyond_the_share(hosts: int, ratio: float, at_least: int) -> None:
    budget = Budget(max_ratio=ratio, at_least=at_least, max_in_window=1, window_seconds=1)
    assert budget.allowed(hosts) <= max(at_least, ratio * hosts + 1e-6)
    assert Budget(max_ratio=0.1, at_least=1, max_in_window=1, window_seconds=1).allowed(30) == 3
