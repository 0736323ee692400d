"""How rules match, which level proves which, and when the budget objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.core.budget import FleetView, objection
from fleetd.core.policy import (
    LEVELS,
    Accusation,
    Action,
    FindingKind,
    QuarantineBudget,
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
        lambda: Strikes(at_least=0, within_seconds=1),
        lambda: Strikes(at_least=17, within_seconds=1),
        lambda: Strikes(at_least=1, within_seconds=0),
        lambda: Rule(name=" ", when=When(verdict=Verdict.FAIL), then=Action.NONE),
        lambda: QuarantineBudget(max_ratio=1.1, at_least=1, max_in_window=1, window_seconds=1),
        lambda: QuarantineBudget(max_ratio=1, at_least=-1, max_in_window=1, window_seconds=1),
        lambda: QuarantineBudget(max_ratio=1, at_least=1, max_in_window=1, window_seconds=0),
        lambda: Step(state=None, why=" "),
    ],
)
def test_nonsense_cannot_be_built(make: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("view", "allowed"),
    [
        (FleetView(), True),  # at_least serves a fleet of one
        (FleetView(hosts_known=1, quarantined_now=1), False),
        (FleetView(hosts_known=29, quarantined_now=2), False),
        (FleetView(hosts_known=30, quarantined_now=2), True),  # 0.1 * 30 is 3 in spite of binary fractions
        (FleetView(hosts_known=99, quarantined_at_s=(901, 950)), False),
        (FleetView(hosts_known=99, quarantined_at_s=(900, 950)), True),
        (FleetView(hosts_known=99, quarantined_at_s=(1500, 1600)), False),  # the clock was set back
        (FleetView(hosts_known=99, tripped=True), False),
    ],
)
def test_the_budget_objects(view: FleetView, allowed: bool) -> None:
    budget = QuarantineBudget(max_ratio=0.1, at_least=1, max_in_window=2, window_seconds=100)
    assert (objection(view, budget, now_s=1000) is None) == allowed


@given(hosts=st.integers(0, 10_000), out=st.integers(0, 10_000), ratio=st.floats(0, 1), at_least=st.integers(0, 50))
def test_never_beyond_the_share(hosts: int, out: int, ratio: float, at_least: int) -> None:
    budget = QuarantineBudget(max_ratio=ratio, at_least=at_least, max_in_window=1, window_seconds=1)
    if objection(FleetView(hosts_known=hosts, quarantined_now=out), budget, now_s=0) is None:
        assert out + 1 <= max(at_least, ratio * hosts + 1e-6)
