"""What bad findings do: rules, stages, safeguards that no policy can switch off, and the budget."""

from dataclasses import replace

import pytest

from fleetd.core.invariants import MAX_EVIDENCE, MAX_STRIKES
from fleetd.core.policy import (
    MAX_STRIKES_PER_GPU,
    Action,
    Budgets,
    Burnin,
    FindingKind,
    Policy,
    Rule,
    Stage,
    When,
)
from fleetd.model.event import FindingReceived, OperatorQuarantined
from fleetd.model.finding import FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Lifecycle
from fleetd.model.order import Notify, Quarantine, RunBurnin
from tests.core.make_core import (
    BAD,
    ERROR,
    FATAL,
    H1,
    HARDWARE,
    ONCE,
    POLICY,
    TWICE,
    Driven,
    burnt,
    fault,
    hello,
    staged,
    with_rules,
)

PERSISTENT, TRANSIENT = FaultClass.CHIP_PERSISTENT, FaultClass.CHIP_TRANSIENT
EVERYTHING = Rule(name="all", when=When(fault_class=tuple(FaultClass)), then=Action.QUARANTINE)


def test_a_culprit_of_a_hardware_class_takes_the_host_out_with_its_evidence() -> None:
    d = Driven(now_s=7)
    d.send(hello())
    step = d.send(burnt(Verdict.FAIL, ("G1", PERSISTENT), order=d.pending, id="f1"))
    (order,) = step.orders
    assert isinstance(order, Quarantine)
    assert order.id == "h1/2/quarantine"
    (hold,) = step.state.holds
    assert (hold.owner, hold.evidence, hold.gpu, hold.proof_level) == ("fleetd", ("f1",), "G1", "smoke")
    for text in (order.why, step.why, hold.reason):
        assert "gpu 0 (G1)" in text
        assert "rule `bad`" in text
        assert "outvoted" in text
    assert "ends by a passing `smoke` burn-in" in step.why


def test_two_culprits_make_two_holds_and_one_order() -> None:
    step = (
        Driven().healthy().send(burnt(Verdict.FAIL, ("G0", PERSISTENT), ("G1", FaultClass.MEMORY), order=None, id="f"))
    )
    assert [h.gpu for h in step.state.holds] == ["G0", "G1"]
    assert [type(o) for o in step.orders] == [Quarantine]


def test_a_second_bad_result_adds_evidence_and_no_second_order() -> None:
    d = Driven().healthy()
    for n in range(MAX_EVIDENCE + 5):
        step = d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id=f"f{n}"))
        assert len(step.orders) == (1 if n == 0 else 0)
    (hold,) = d.known.holds
    assert len(hold.evidence) == MAX_EVIDENCE
    before = d.known
    assert d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f30")).state == before


@pytest.mark.parametrize("fault_class", [c for c in FaultClass if not c.is_hardware])
def test_what_is_not_hardware_never_quarantines_whatever_the_policy_says(fault_class: FaultClass) -> None:
    d = Driven(policy=with_rules(EVERYTHING)).healthy()
    step = d.send(burnt(Verdict.FAIL, ("G0", fault_class), order=None, id="f"))
    assert (step.state.state, [type(o) for o in step.orders]) == (Lifecycle.SUSPECT, [Notify])
    assert "no evidence against the hardware" in step.why


def test_a_failure_without_a_culprit_never_quarantines() -> None:
    d = Driven(policy=with_rules(EVERYTHING)).healthy()
    step = d.send(burnt(Verdict.FAIL, order=None, id="f", fault_class=FaultClass.LINK))
    assert (step.state.state, [type(o) for o in step.orders]) == (Lifecycle.SUSPECT, [Notify])


def test_a_fault_of_an_application_never_quarantines() -> None:
    d = Driven(policy=with_rules(EVERYTHING)).healthy()
    step = d.send(fault(FaultClass.MEMORY, Severity.FATAL, id="x", scope=Scope.APP))
    assert [type(o) for o in step.orders] == [Notify]


def test_a_fatal_fault_of_the_whole_host_quarantines_without_a_gpu() -> None:
    step = (
        Driven()
        .healthy()
        .send(fault(FaultClass.UNRESPONSIVE, Severity.FATAL, id="x", gpu=None, scope=Scope.HOST, code="agent.hung"))
    )
    assert step.state.holds[0].gpu is None
    assert [type(o) for o in step.orders] == [Quarantine]


def test_an_action_that_fleetd_cannot_do_is_told_to_a_human() -> None:
    reboot = Rule(name="boot", when=When(finding=FindingKind.DEVICE), then=Action.REBOOT)
    step = Driven(policy=with_rules(reboot)).healthy().send(fault(FaultClass.LINK, Severity.ERROR, id="x"))
    assert [type(o) for o in step.orders] == [Notify]
    assert "rule `boot` says reboot" in step.orders[0].why


@pytest.mark.parametrize("then", [Action.NONE, Action.MONITOR])
def test_a_harmless_answer_to_a_device_fault_changes_nothing(then: Action) -> None:
    d = Driven(policy=with_rules(Rule(name="r", when=When(finding=FindingKind.DEVICE), then=then))).healthy()
    before = d.host
    step = d.send(fault(FaultClass.LINK, Severity.FATAL, id="x"))
    assert step.state is before
    assert step.orders == ()


@pytest.mark.parametrize(("severity", "told"), [(Severity.WARNING, False), (Severity.ERROR, True)])
def test_an_error_that_no_rule_knows_is_told(severity: Severity, told: bool) -> None:
    step = Driven(policy=with_rules()).healthy().send(fault(FaultClass.NONE, severity, id="x"))
    assert bool(step.orders) == told
    assert "no rule" in step.why


# ── transient faults ────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_strike_looks_again_and_the_second_within_the_window_quarantines() -> None:
    d = Driven()
    d.send(hello())
    step = d.send(burnt(Verdict.FAIL, ("G0", TRANSIENT), order=d.pending, id="f1", at_s=10))
    assert (step.state.state, [type(o) for o in step.orders]) == (Lifecycle.SUSPECT, [RunBurnin])
    step = d.send(burnt(Verdict.FAIL, ("G0", TRANSIENT), order=d.pending, id="f2", at_s=500))
    assert step.state.state is Lifecycle.QUARANTINED


@pytest.mark.parametrize(("gpu", "at_s"), [("G1", 500), ("G0", 1011)], ids=["another GPU", "out of the window"])
def test_strikes_of_others_and_old_ones_do_not_count(gpu: str, at_s: float) -> None:
    d = Driven()
    d.send(hello())
    d.send(burnt(Verdict.FAIL, ("G0", TRANSIENT), order=d.pending, id="f1", at_s=10))
    d.send(burnt(Verdict.FAIL, (gpu, TRANSIENT), order=d.pending, id="f2", at_s=at_s))
    assert d.known.state is Lifecycle.SUSPECT


def test_the_same_fact_told_twice_is_one_strike() -> None:
    d = Driven().healthy()
    for _ in range(3):
        d.send(burnt(Verdict.FAIL, ("G0", TRANSIENT), order=None, id="f1"))
    assert len(d.known.strikes) == 1
    assert d.known.state is Lifecycle.SUSPECT


def test_what_a_host_remembers_is_bounded_and_the_newest_stays() -> None:
    d = Driven(policy=with_rules()).healthy()
    for n in range(MAX_STRIKES + 50):
        d.send(burnt(Verdict.FAIL, (f"G{n % 25}", TRANSIENT), order=None, id=f"f{n}"))
    assert len(d.known.strikes) == MAX_STRIKES
    for n in range(20):
        d.send(burnt(Verdict.FAIL, ("G0", TRANSIENT), order=None, id=f"g{n}"))
    own = [s.finding for s in d.known.strikes if s.gpu == "G0"]
    assert own == [f"g{n}" for n in range(20 - MAX_STRIKES_PER_GPU, 20)]


def test_a_rerun_that_passes_makes_a_suspect_healthy_and_keeps_the_strike() -> None:
    d = Driven().healthy()
    d.send(burnt(Verdict.FAIL, ("G0", TRANSIENT), order=None, id="f1"))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p2"))
    assert d.known.state is Lifecycle.HEALTHY
    assert len(d.known.strikes) == 1


def test_reruns_of_reruns_end_and_a_human_is_asked() -> None:
    d = Driven(policy=with_rules(ONCE))
    d.send(hello())
    kinds = [
        [type(o) for o in d.send(burnt(Verdict.FAIL, ("G0", TRANSIENT), order=d.pending, id=f"f{n}")).orders]
        for n in range(3)
    ]
    assert kinds == [[RunBurnin], [RunBurnin], [Notify]]


def test_a_fault_that_asks_for_a_burnin_waits_for_the_one_under_way() -> None:
    d = Driven()
    d.send(hello())
    step = d.send(fault(FaultClass.MEMORY, Severity.ERROR, id="x"))
    assert step.orders == ()
    assert "under way" in step.why
    stronger = replace(ERROR, then=Burnin(burnin="qualify"))
    d.policy = with_rules(stronger)
    (order,) = d.send(fault(FaultClass.MEMORY, Severity.ERROR, id="y")).orders
    assert d.pending == order.id


# ── stages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_observe_records_and_recommend_tells() -> None:
    watch = with_rules(staged(BAD, Stage.OBSERVE))
    step = Driven(policy=watch).healthy().send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f"))
    assert (step.state.state, step.orders) == (Lifecycle.SUSPECT, ())
    assert [type(w.order) for w in step.withheld] == [Quarantine]
    assert step.fleet is None
    advise = with_rules(staged(BAD, Stage.RECOMMEND))
    step = Driven(policy=advise).healthy().send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f"))
    assert [type(o) for o in step.orders] == [Notify]
    assert "recommended" in step.orders[0].why
    assert step.state.holds == ()


def test_an_observed_device_fault_leaves_the_host_alone() -> None:
    d = Driven(policy=with_rules(staged(FATAL, Stage.OBSERVE), staged(ERROR, Stage.OBSERVE))).healthy()
    for n, severity in enumerate((Severity.FATAL, Severity.ERROR)):
        step = d.send(fault(FaultClass.LINK, severity, id=f"x{n}"))
        assert (step.state.state, step.orders, len(step.withheld)) == (Lifecycle.HEALTHY, (), 1)


# ── budget ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def bad(n: int = 0, **more: str) -> FindingReceived:
    return burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id=f"bad{n}", **more)  # type: ignore[arg-type]


def budget(**changes: object) -> Policy:
    return replace(POLICY, budgets=Budgets(quarantines=replace(POLICY.budgets.quarantines, **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "policy",
    [budget(), budget(max_ratio=1.0, max_in_window=2)],
    ids=["ratio", "window"],
)
def test_beyond_the_budget_the_order_is_withheld_and_a_human_paged_once(policy: Policy) -> None:
    d = Driven(policy=policy).healthy().others(3, held=2)
    step = d.send(bad())
    assert (step.state.state, step.state.holds) == (Lifecycle.SUSPECT, ())
    assert [type(w.order) for w in step.withheld] == [Quarantine]
    assert [type(o) for o in step.orders] == [Notify]
    assert [str(t.key) for t in d.fleet.record.tripped] == ["fleet"]
    again = d.send(bad(1))
    assert (len(again.withheld), again.orders, again.fleet) == (1, (), None)
    assert d.known.charges[0].hold.evidence == ("bad0", "bad1")


def test_a_burnin_that_began_before_withheld_evidence_does_not_clear_it() -> None:
    d = Driven().others(1, held=1)
    d.send(hello())
    order = d.pending
    d.send(fault(FaultClass.LINK, Severity.FATAL, id="x"))
    d.send(burnt(Verdict.PASS, order=order, id="p"))
    assert d.known.state is Lifecycle.SUSPECT


def test_an_operator_quarantines_beyond_the_budget() -> None:
    d = Driven().healthy().others(1, held=1)
    d.send(bad())
    assert d.fleet.record.tripped
    step = d.send(OperatorQuarantined(host=H1, who="ann", reason="fan"))
    assert [type(o) for o in step.orders] == [Quarantine]


def test_the_policies_of_these_tests_use_all_that_they_define() -> None:
    assert {BAD, TWICE, ONCE} <= set(POLICY.rules)
    assert set(HARDWARE) <= set(POLICY.proofs)
