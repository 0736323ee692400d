"""Each kind of contradiction is found where it is, and sound policies are left in peace."""

from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product

import pytest

from fleetd.config.faults import load_catalogue
from fleetd.core.accuse import CARRIED_OUT
from fleetd.core.policy import (
    Accusation,
    Action,
    Budgets,
    Burnin,
    Count,
    FindingKind,
    Jobs,
    Outliers,
    Policy,
    Proof,
    Returns,
    Rule,
    Share,
    Silence,
    Stage,
    Strikes,
    When,
    matches,
)
from fleetd.core.policycheck import _matches_all_of, _never, _overlap, check
from fleetd.model.finding import FaultClass, Scope, Severity, Verdict
from fleetd.model.fleet import Area
from fleetd.model.ids import GpuId
from tests.core.make_core import BAD, HARDWARE, ONCE, POLICY, SOFT, TWICE, staged, with_rules

CATALOGUE = load_catalogue()
LINK, MEMORY = FaultClass.LINK, FaultClass.MEMORY


def found(policy: Policy) -> list[tuple[str, str]]:
    problems = check(
        policy,
        levels=("self", "smoke"),
        actuator_actions=CARRIED_OUT,
        catalogue=CATALOGUE,
        other_codes=("agent.driver_unresponsive",),
        slowest_return_s=110.0,
    )
    return [(p.path, p.message) for p in problems]


def rule(name: str, then: Action | Burnin = Action.NOTIFY, **when: object) -> Rule:
    return Rule(name=name, when=When(**when), then=then)  # type: ignore[arg-type]


def test_a_sound_policy_has_no_problems() -> None:
    assert found(POLICY) == []


ANY = POLICY.budgets.quarantines


def budgets(**changes: object) -> Policy:
    return replace(POLICY, budgets=replace(POLICY.budgets, **changes))  # type: ignore[arg-type]


def budget(**changes: object) -> Policy:
    return replace(POLICY, budgets=Budgets(quarantines=replace(POLICY.budgets.quarantines, **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "path", "words"),
    [
        (with_rules(SOFT, BAD), "rules[1].when", "`soft` above it"),
        (with_rules(ONCE, TWICE), "rules[1].when", "never reached"),
        (with_rules(BAD, replace(BAD, when=When(verdict=Verdict.FAIL))), "rules[1].name", "stands above"),
        (with_rules(rule("r", verdict=Verdict.PASS)), "rules[0].when", "only `fail`"),
        (with_rules(rule("r", verdict=Verdict.FAIL, code="x")), "rules[0].when", "never match"),
        (with_rules(rule("r", Action.QUARANTINE, fault_class=(LINK,)), policy=replace(POLICY, proofs={})),
         "rules[0].then", "without an exit"),
        (with_rules(rule("r", Action.REBOOT, fault_class=(LINK,))), "rules[0].then", "no actuator can `reboot`"),
        (with_rules(rule("r", Action.QUARANTINE, finding=FindingKind.BURNIN)), "rules[0].then", "no evidence"),
        (with_rules(rule("r", Action.QUARANTINE, fault_class=(LINK,), code="nvidia.xid.31")),
         "rules[0].then", "application"),
        (with_rules(rule("r", Burnin(burnin="deep"), fault_class=(LINK,))), "rules[0].then", "no agent can run"),
        (with_rules(rule("r", Burnin(burnin="self"), fault_class=(LINK,))), "rules[0].then", "clears nothing"),
        (replace(POLICY, proofs={**POLICY.proofs, LINK: "self"}), "proofs.link", "clears nothing"),
        (replace(POLICY, qualify=replace(POLICY.qualify, level="x")), "qualify.level", "there are: self, smoke"),
        (budget(max_in_window=0), "budgets.quarantines.max_in_window", "budget of 0"),
        (budget(max_ratio=0.0, at_least=0), "budgets.quarantines", "budget of 0"),
        (budgets(quarantines_by={Area.RACK: replace(ANY, max_in_window=0)}),
         "budgets.quarantines_by.rack.max_in_window", "budget of 0"),
        (budgets(burnins=Share(max_ratio=0, at_least=0)), "budgets.burnins", "looked at again"),
        (replace(POLICY, outliers=Outliers(burnin="deep")), "outliers.burnin", "no agent can run"),
        (replace(POLICY, returns=Returns.AUTOMATIC, proofs={LINK: "manual"}), "returns", "nothing returns by itself"),
        (replace(POLICY, proofs={**POLICY.proofs, LINK: Proof(level="self")}), "proofs.link", "clears nothing"),
        (with_rules(rule("r", verdict=Verdict.FAIL, count=Count(at_least=2, within_seconds=9))),
         "rules[0].when", "never match"),
        (with_rules(rule("a", pool="*"), rule("b", pool="train")), "rules[1].when", "never reached"),
        (with_rules(rule("a", sku="H*"), rule("b", sku="H100")), "rules[1].when", "never reached"),
        (with_rules(rule("r", code="nvidia.xxid.79")), "rules[0].when.code", "did you mean `nvidia.xid.79`?"),
        (with_rules(rule("r", code="nvidia.xd.*")), "rules[0].when.code", "nothing reports the code"),
        (with_rules(rule("r", code="agent.driver_unresponsiv")), "rules[0].when.code", "agent.driver_unresponsive"),
        (replace(POLICY, jobs=Jobs(burnin="deep")), "jobs.burnin", "no agent can run"),
        (replace(POLICY, silence=Silence(after_seconds=109)), "silence.after_seconds", "may need 110 seconds"),
        (with_rules(rule("a", scope=(Scope.APP, Scope.GPU)), rule("b", scope=(Scope.APP,))),
         "rules[1].when", "never reached"),
    ],
)  # fmt: skip
def test_each_contradiction_is_found(policy: Policy, path: str, words: str) -> None:
    assert any(p == path and words in message for p, message in found(policy)), found(policy)


@pytest.mark.parametrize(
    "policy",
    [
        budget(max_ratio=0.0),
        replace(POLICY, silence=Silence(after_seconds=110)),
        with_rules(rule("r", Action.QUARANTINE, fault_class=(LINK,)), policy=replace(POLICY, proofs={LINK: "manual"})),
        with_rules(
            staged(rule("r", Action.QUARANTINE, fault_class=HARDWARE), Stage.OBSERVE), policy=replace(POLICY, proofs={})
        ),
        with_rules(rule("a", code="nvidia.*.79"), rule("b", code="nvidia.*")),
        with_rules(rule("a", code="amd.ras.gfx.ue"), rule("b", code="amd.*.umc.*"), rule("c", code="agent.*")),
        with_rules(rule("a", code="agent.driver_unresponsive")),
        with_rules(rule("a", pool="train"), rule("b", pool="*")),
        with_rules(rule("a", sku="H100"), rule("b", sku="H*")),
        with_rules(rule("a", scope=(Scope.APP,)), rule("b", scope=(Scope.APP, Scope.GPU))),
        with_rules(rule("a", count=Count(at_least=3, within_seconds=9)), rule("b", code="nvidia.xid.79")),
        with_rules(rule("a", fault_class=(LINK,)), rule("b", fault_class=(LINK, MEMORY))),
    ],
)
def test_what_is_right_is_left_in_peace(policy: Policy) -> None:
    assert found(policy) == []


WHENS = tuple(
    When(finding=k, fault_class=c, code=g, severity_at_least=s, strikes=n)
    for k, c, g, s, n in product(
        (None, FindingKind.DEVICE, FindingKind.BURNIN),
        (None, (LINK,), (LINK, MEMORY)),
        (None, "x.*", "x.1", "*.1"),
        (None, Severity.ERROR),
        (None, *(Strikes(at_least=n, within_seconds=s) for n, s in ((2, 10), (2, 5), (3, 5)))),
    )
    if any(v is not None for v in (k, c, g, s, n))
)
ACCUSATIONS = tuple(
    Accusation(
        kind=FindingKind.BURNIN if g is None else FindingKind.DEVICE,
        fault_class=c,
        gpu=GpuId("G"),
        index=0,
        at_s=10,
        why="w",
        code=g,
        scope=None if g is None else Scope.GPU,
        severity=None if g is None else s,
        strikes_at_s=times,
    )
    for c, g, s, times in product(
        (LINK, MEMORY, FaultClass.NONE),
        (None, "x.1", "x.2", "x.2.1", "y.1"),
        (Severity.INFO, Severity.FATAL),
        ((), (10, 9), (10, 1), (10, 9, 8)),
    )
)


def test_unreachable_means_unreachable() -> None:
    """Over all pairs of these matchers: an unreachable rule matches nothing that the earlier one does not."""
    matched = {w: frozenset(n for n, a in enumerate(ACCUSATIONS) if matches(w, a)) for w in WHENS}
    for wide, narrow in product(WHENS, WHENS):
        if _never(wide) is None and _never(narrow) is None and _matches_all_of(wide, narrow):
            assert matched[narrow] <= matched[wide], (wide, narrow)
    for when in WHENS:
        assert (_never(when) is None) or not matched[when]
        assert _matches_all_of(when, when)


def test_two_patterns_overlap_if_and_only_if_some_text_matches_both() -> None:
    patterns = ["".join(p) for n in range(4) for p in product("ab*", repeat=n)]
    texts = ["".join(t) for n in range(7) for t in product("ab", repeat=n)]
    match = {p: {t for t in texts if fnmatchcase(t, p)} for p in patterns}
    for one, other in product(patterns, patterns):
        assert _overlap(one, other) == bool(match[one] & match[other]), (one, other)


@pytest.mark.parametrize(
    "code", ["nvidia.xid.31", "nvidia.xid.80", "nvidia.xid.94", "amd.vm_fault", "host.segfault.nccl"]
)
def test_no_host_goes_for_what_the_catalogue_lays_on_an_application(code: str) -> None:
    bad = Rule(name="r", when=When(code=code, fault_class=(MEMORY,)), then=Action.QUARANTINE)
    assert ("rules[0].then", f"rule `r` quarantines for {code}, which an application can cause") in found(
        with_rules(bad)
    )


@pytest.mark.parametrize("code", ["nvidia.xid.48", "nvidia.xid.79", "nvidia.xid.*"])
def test_other_codes_may_take_a_host(code: str) -> None:
    good = Rule(name="r", when=When(code=code, fault_class=(MEMORY,)), then=Action.QUARANTINE)
    assert found(with_rules(good)) == []
