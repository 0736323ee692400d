"""The judgement, one story a test: what an event does to a host, which orders follow, and what the reason says."""

from dataclasses import replace

import pytest

from fleetd.core.fleet import Fleet
from fleetd.core.judgement import judge
from fleetd.core.policy import Policy
from fleetd.core.waiting import next_due_s
from fleetd.model.event import BurninAccepted, BurninRefused, OperatorQuarantined, OperatorReleased, TimePassed
from fleetd.model.finding import FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import Notify, Quarantine, Release, RunBurnin
from tests.core.make_core import H1, POLICY, Driven, burnt, fault, hello, with_rules

PERSISTENT = FaultClass.CHIP_PERSISTENT


def release(who: str = "ann", *, override: bool = False) -> OperatorReleased:
    return OperatorReleased(host=H1, who=who, reason="repaired", override=override)


def take(who: str = "ann") -> OperatorQuarantined:
    return OperatorQuarantined(host=H1, who=who, reason="new fan")


def accepted(order: str) -> BurninAccepted:
    return BurninAccepted(host=H1, order_id=OrderId(order))


def condemned() -> Driven:
    """A host that its first burn-in has condemned."""
    d = Driven()
    d.send(hello())
    d.send(burnt(Verdict.FAIL, ("G1", PERSISTENT), order=d.pending, id="f1"))
    assert d.known.state is Lifecycle.QUARANTINED
    return d


# ── qualification ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_host_must_qualify_before_it_serves() -> None:
    d = Driven(now_s=50)
    step = d.send(hello())
    (order,) = step.orders
    assert isinstance(order, RunBurnin)
    assert (order.id, order.level, order.boot_id, order.not_after_s) == ("h1/1/burnin", "smoke", "b1", 150)
    assert step.state.state is Lifecycle.QUALIFYING
    step = d.send(burnt(Verdict.PASS, order=order.id, id="p1"))
    assert (step.state.state, step.state.proof, step.orders) == (Lifecycle.HEALTHY, "p1", ())


def test_a_reconnect_of_the_same_boot_changes_nothing_at_all() -> None:
    d = Driven().healthy()
    before = d.host
    step = d.send(hello())
    assert step.state is before
    assert step.orders == ()
    assert "nothing new" in step.why


def test_a_reconnect_while_the_burnin_runs_does_not_order_a_second() -> None:
    d = Driven()
    d.send(hello())
    assert d.send(hello(), at_s=100).orders == ()  # the order is on its way
    d.send(accepted(d.pending))
    assert d.send(hello(), at_s=199).orders == ()


def test_an_agent_that_was_away_uses_up_no_attempt() -> None:
    d = Driven()
    d.send(hello())
    for n in range(1, 10):
        assert d.send(TimePassed(host=H1, connected=False), at_s=300 * n).orders == ()
        (order,) = d.send(hello()).orders
        assert (order.id, d.known.attempts) == (f"h1/{n + 1}/burnin", 0)


def test_a_result_that_waited_with_its_agent_is_awaited_when_that_is_back() -> None:
    d = Driven()
    d.send(hello())
    d.send(accepted(d.pending))
    assert d.send(TimePassed(host=H1, connected=False), at_s=999).orders == ()
    step = d.send(hello())
    assert (step.orders, next_due_s(d.known, d.policy)) == ((), 1099)
    d.send(burnt(Verdict.PASS, order=d.pending, id="p"))
    assert d.known.state is Lifecycle.HEALTHY


def test_the_time_of_an_agent_that_is_there_runs_out() -> None:
    d = Driven()
    d.send(hello())
    d.send(accepted(d.pending))
    assert next_due_s(d.known, d.policy) == 200
    (order,) = d.send(TimePassed(host=H1), at_s=201).orders
    assert (order.id, d.known.attempts) == ("h1/2/burnin", 1)


@pytest.mark.parametrize(("level", "ends_s"), [("self", 200), ("smoke", 200), ("quick", 550), ("burnin", 21700)])
def test_a_long_level_has_the_time_that_it_takes(level: str, ends_s: float) -> None:
    d = Driven()
    d.send(hello())
    d.send(accepted(d.pending))
    assert d.known.pending is not None
    assert next_due_s(replace(d.known, pending=replace(d.known.pending, level=level)), d.policy) == ends_s


def test_a_host_that_reboots_in_every_burnin_ends_up_with_a_human() -> None:
    d = Driven()
    d.send(hello())
    for n in range(2, 5):
        d.send(accepted(d.pending))
        step = d.send(hello(boot=f"b{n}"))
    assert [type(o) for o in step.orders] == [Notify]
    assert "in the middle of a burn-in, 3 times in a row" in step.why
    assert (d.known.state, d.known.pending) == (Lifecycle.QUALIFYING, None)
    assert [type(o) for o in d.send(hello(boot="b5")).orders] == [RunBurnin]  # somebody has looked at it


@pytest.mark.parametrize(("requalify", "state"), [(True, Lifecycle.QUALIFYING), (False, Lifecycle.HEALTHY)])
def test_a_healthy_host_that_reboots_qualifies_again_if_the_policy_says_so(requalify: bool, state: Lifecycle) -> None:
    d = Driven(policy=Policy(**{**_fields(POLICY), "requalify_after_reboot": requalify})).healthy()
    step = d.send(hello(boot="b2"))
    assert (step.state.state, step.state.proof, len(step.orders)) == (state, None, int(requalify))


def _fields(policy: Policy) -> dict[str, object]:
    return {name: getattr(policy, name) for name in policy.__slots__}


def test_a_lost_gpu_is_told_and_the_rest_must_qualify_again() -> None:
    d = Driven().healthy()
    step = d.send(hello(gpus=1))
    assert step.state.state is Lifecycle.QUALIFYING
    assert [type(o) for o in step.orders] == [Notify, RunBurnin]
    assert "G1" in step.orders[0].why


def test_an_added_gpu_must_qualify_and_nobody_is_woken() -> None:
    step = Driven().healthy().send(hello(gpus=3))
    assert [type(o) for o in step.orders] == [RunBurnin]


def test_the_order_of_the_inventory_means_nothing() -> None:
    d = Driven().healthy()
    turned = hello()
    turned = type(turned)(
        host=H1, hello=type(turned.hello)(**{**_slots(turned.hello), "inventory": turned.hello.inventory[::-1]})
    )
    assert d.send(turned).orders == ()
    assert d.known.state is Lifecycle.HEALTHY


def _slots(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in type(value).__slots__}  # type: ignore[attr-defined]


# ── unknown is neither healthy nor bad ──────────────────────────────────────────────────────────────────────────────


def test_not_judged_is_tried_again_and_then_a_human_is_asked() -> None:
    d = Driven()
    d.send(hello())
    kinds = []
    for n in range(3):
        step = d.send(burnt(Verdict.NOT_JUDGED, order=d.pending, id=f"n{n}"))
        kinds.append([type(o) for o in step.orders])
        assert step.state.state is Lifecycle.QUALIFYING
    assert kinds == [[RunBurnin], [RunBurnin], [Notify]]
    assert d.known.pending is None
    assert d.send(TimePassed(host=H1), at_s=9999).orders == ()


def test_refusals_and_silence_use_up_the_same_attempts() -> None:
    d = Driven()
    d.send(hello())
    d.send(BurninRefused(host=H1, order_id=OrderId(d.pending), why="the GPUs are in use"))
    d.send(TimePassed(host=H1), at_s=201)
    step = d.send(TimePassed(host=H1), at_s=402)
    assert [type(o) for o in step.orders] == [Notify]
    assert "has not ended 201 seconds after" in step.why


def test_a_refusal_of_an_order_that_nobody_waits_for_changes_nothing() -> None:
    d = Driven().healthy()
    before = d.host
    assert d.send(BurninRefused(host=H1, order_id=OrderId("h1/1/burnin"), why="late")).state is before


@pytest.mark.parametrize(
    "late",
    [
        burnt(Verdict.PASS, order="h1/1/burnin", id="p", boot="b1"),
        burnt(Verdict.PASS, order="h1/2/burnin", id="p", boot="b1"),
        burnt(Verdict.PASS, order=None, id="p", boot="b2"),
        burnt(Verdict.PASS, order="h9/2/burnin", id="p", boot="b2"),
    ],
    ids=["older order", "right order of another boot", "self-started", "foreign order"],
)
def test_a_pass_that_nobody_waits_for_is_no_proof(late: object) -> None:
    d = Driven()
    d.send(hello())
    d.send(hello(boot="b2"))
    before = d.host
    step = d.send(late)  # type: ignore[arg-type]
    assert step.state is before
    assert "proves nothing" in step.why


def test_a_late_fail_still_counts_as_evidence() -> None:
    d = Driven()
    d.send(hello())
    d.send(hello(boot="b2"))
    step = d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order="h1/1/burnin", id="f", boot="b1"))
    assert step.state.state is Lifecycle.QUARANTINED
    d.send(burnt(Verdict.PASS, order=d.pending, id="p", boot="b2"))  # it began after the evidence, so it is proof
    assert not d.send(release()).refused


@pytest.mark.parametrize("level", ["self", "quick"])
def test_a_pass_of_another_level_than_ordered_is_not_judged(level: str) -> None:
    d = Driven()
    d.send(hello())
    step = d.send(burnt(Verdict.PASS, order=d.pending, id="p", level=level))
    assert step.state.state is Lifecycle.QUALIFYING
    assert "contradicts" in step.why


def test_a_pass_that_names_a_culprit_is_not_judged() -> None:
    d = Driven()
    d.send(hello())
    d.send(burnt(Verdict.PASS, ("G0", PERSISTENT), order=d.pending, id="p"))
    assert d.known.state is Lifecycle.QUALIFYING


# ── quarantine and the way back ─────────────────────────────────────────────────────────────────────────────────────


def test_a_quarantined_host_stays_so_over_reconnects_and_reboots_and_gathers_its_proof() -> None:
    d = condemned()
    assert d.send(hello()).orders == ()
    step = d.send(hello(boot="b2"))
    assert step.state.state is Lifecycle.QUARANTINED
    (order,) = step.orders
    assert isinstance(order, RunBurnin)
    step = d.send(burnt(Verdict.PASS, order=order.id, id="p", boot="b2"))
    assert (step.state.state, step.state.proof, step.orders) == (Lifecycle.QUARANTINED, "p", ())
    step = d.send(release())
    assert (step.state.state, step.state.holds) == (Lifecycle.HEALTHY, ())
    assert [type(o) for o in step.orders] == [Release]


def test_a_release_without_proof_is_refused_and_says_what_is_missing() -> None:
    d = condemned()
    before = d.host
    step = d.send(release())
    assert step.refused
    assert step.state is before
    assert "a passing `smoke` burn-in of this boot" in step.why
    assert "override" in step.why


def test_an_override_puts_the_host_on_probation_until_a_burnin_passes() -> None:
    d = condemned()
    step = d.send(release(override=True))
    assert (step.state.state, [type(o) for o in step.orders]) == (Lifecycle.PROBATION, [Release])
    assert "overriding" in step.why
    d.send(hello(boot="b2"))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p", boot="b2"))
    assert d.known.state is Lifecycle.HEALTHY


def test_new_evidence_takes_the_proof_back() -> None:
    d = condemned()
    d.send(hello(boot="b2"))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p", boot="b2"))
    d.send(fault(PERSISTENT, Severity.FATAL, id="x", boot="b2"))
    assert d.known.proof is None
    assert d.send(release()).refused


def test_a_proof_of_the_last_boot_is_none() -> None:
    d = condemned()
    d.send(hello(boot="b2"))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p", boot="b2"))
    d.send(hello(boot="b3"))
    assert d.send(release()).refused


def test_a_burnin_that_began_before_new_evidence_is_no_proof() -> None:
    d = condemned()
    d.send(hello(boot="b2"))
    order = d.pending
    d.send(fault(PERSISTENT, Severity.FATAL, id="x", boot="b2"))
    d.send(burnt(Verdict.PASS, order=order, id="p", boot="b2"))
    assert d.send(release()).refused


def test_evidence_that_waited_in_a_spool_over_a_reboot_does_not_undo_what_came_after() -> None:
    d = condemned()
    d.send(hello(boot="b2"))
    d.send(fault(PERSISTENT, Severity.FATAL, id="x", boot="b1"))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p", boot="b2"))
    d.send(fault(PERSISTENT, Severity.FATAL, id="y", boot="b1"))
    assert d.known.holds[0].evidence == ("f1",)
    assert len(d.known.holds) == 2  # the faults name another GPU than the burn-in did
    assert not d.send(release()).refused
    step = d.send(fault(FaultClass.NONE, Severity.ERROR, id="z", boot="b1", scope=Scope.APP))
    assert step.state.state is Lifecycle.HEALTHY


def test_a_manual_class_needs_an_operator_and_no_burnin() -> None:
    d = Driven(policy=Policy(**{**_fields(POLICY), "proofs": {PERSISTENT: "manual"}}))
    d.send(hello())
    step = d.send(burnt(Verdict.FAIL, ("G1", PERSISTENT), order=d.pending, id="f1"))
    assert "an operator decides" in step.state.why
    assert d.send(hello(boot="b2")).orders == ()
    assert not d.send(release()).refused
    assert d.known.state is Lifecycle.PROBATION


def test_the_strongest_proof_asked_for_is_run_and_a_weaker_pass_is_not_enough() -> None:
    d = Driven(policy=Policy(**{**_fields(POLICY), "proofs": {PERSISTENT: "qualify", FaultClass.MEMORY: "smoke"}}))
    d.send(hello())
    d.send(burnt(Verdict.FAIL, ("G1", PERSISTENT), ("G0", FaultClass.MEMORY), order=d.pending, id="f1"))
    d.send(hello(boot="b2"))
    assert d.known.pending is not None
    assert d.known.pending.level == "qualify"


def test_a_weaker_pass_than_a_hold_asks_for_is_no_proof() -> None:
    d = Driven(policy=Policy(**{**_fields(POLICY), "proofs": {PERSISTENT: "qualify"}}))
    d.send(hello())
    d.send(hello(boot="b2"))
    d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f", boot="b1"))
    step = d.send(burnt(Verdict.PASS, order=d.pending, id="p", boot="b2"))  # ordered at `smoke` before the hold
    assert "`qualify` must pass" in step.why
    assert d.send(release()).refused


def test_since_is_the_time_of_entering_the_state() -> None:
    d = Driven().healthy()
    d.send(fault(FaultClass.NONE, Severity.ERROR, id="x", scope=Scope.APP), at_s=5)
    assert d.known.state is Lifecycle.HEALTHY
    for n in (10, 20):
        d.send(burnt(Verdict.FAIL, order=None, id=f"f{n}", fault_class=FaultClass.SLOW), at_s=n)
    assert (d.known.state, d.known.since_s) == (Lifecycle.SUSPECT, 10)


def test_an_operators_quarantine_needs_no_evidence_and_his_release_no_proof() -> None:
    d = Driven().healthy()
    step = d.send(take())
    assert (step.state.state, [type(o) for o in step.orders]) == (Lifecycle.QUARANTINED, [Quarantine])
    assert d.send(take()).orders == ()
    assert len(d.known.holds) == 1
    step = d.send(release())
    assert (step.state.state, [type(o) for o in step.orders]) == (Lifecycle.HEALTHY, [Release])


def test_the_hold_of_another_operator_goes_by_override_only() -> None:
    d = Driven().healthy()
    d.send(take("bob"))
    step = d.send(release("ann"))
    assert step.refused
    assert "operator:bob" in step.why
    assert not d.send(release("ann", override=True)).refused


def test_fleetd_adds_its_hold_to_an_operators_and_orders_nothing() -> None:
    d = Driven().healthy()
    d.send(take())
    step = d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f"))
    assert [h.owner for h in step.state.holds] == ["operator:ann", "fleetd"]
    assert step.orders == ()
    assert d.send(release()).refused  # the proof is missing


def test_releasing_what_is_not_held_is_refused() -> None:
    assert "nothing to release" in Driven().healthy().send(release()).why


def test_an_override_lifts_suspicion() -> None:
    d = Driven()
    d.send(hello())
    assert d.send(release()).refused
    step = d.send(release(override=True))
    assert (step.state.state, step.orders) == (Lifecycle.PROBATION, ())


# ── what is not for this host ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("event", [take(), release(override=True), TimePassed(host=H1)])
def test_a_host_that_nobody_knows_is_refused(event: object) -> None:
    step = Driven().send(event)  # type: ignore[arg-type]
    assert step.refused
    assert step.orders == ()


def test_a_finding_before_the_first_hello_is_judged_all_the_same() -> None:
    d = Driven()
    step = d.send(fault(FaultClass.MEMORY, Severity.ERROR, id="x"))
    assert (step.state.state, step.orders) == (Lifecycle.SUSPECT, ())
    step = d.send(hello())
    assert [type(o) for o in step.orders] == [RunBurnin]


def test_a_finding_about_another_host_counts_for_neither() -> None:
    d = Driven().healthy()
    foreign = fault(FaultClass.MEMORY, Severity.FATAL, id="x", host="h2")
    assert d.send(type(foreign)(host=H1, finding=foreign.finding)).refused


def test_an_event_of_another_host_is_a_mistake_of_the_caller() -> None:
    d = Driven().healthy()
    with pytest.raises(ValueError, match="h2"):
        judge(now_s=0, host=d.host, event=TimePassed(host=HostName("h2")), fleet=Fleet(POLICY), policy=with_rules())
