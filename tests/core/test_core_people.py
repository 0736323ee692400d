"""What people ask for and what bad input does: repairs, retirement, expiry, probation, names, clocks, old agents."""

from dataclasses import replace

import pytest

from fleetd.core.limits import Returns
from fleetd.core.policy import Action, Burnin, Count, FindingKind, Rule, When
from fleetd.core.waiting import next_due_s
from fleetd.model.event import (
    AutomationResumed,
    AutomationStopped,
    BurninRefused,
    OperatorBurnin,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepairs,
    OperatorRetires,
    TimePassed,
)
from fleetd.model.finding import FaultClass, Scope, Severity, Verdict
from fleetd.model.host import Lifecycle
from fleetd.model.ids import OrderId
from fleetd.model.order import Notify, Quarantine, Release, RunBurnin
from tests.core.make_core import H1, POLICY, Driven, burnt, fault, hello, with_rules

PERSISTENT = FaultClass.CHIP_PERSISTENT


def burnin(level: str | None = None) -> OperatorBurnin:
    return OperatorBurnin(host=H1, who="ann", reason="new GPU", level=level)


def release(*, override: bool = False, who: str = "ann") -> OperatorReleased:
    return OperatorReleased(host=H1, who=who, reason="done", override=override)


def take(expires_at_s: float | None = None, who: str = "ann") -> OperatorQuarantined:
    return OperatorQuarantined(host=H1, who=who, reason="fan", expires_at_s=expires_at_s)


REPAIRS = OperatorRepairs(host=H1, who="ann", reason="new GPU")
RETIRES = OperatorRetires(host=H1, who="ann", reason="old")


def condemned(**changes: object) -> Driven:
    d = Driven(policy=replace(POLICY, **changes)).healthy()  # type: ignore[arg-type]
    d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f"))
    return d


def kinds(orders: tuple[object, ...]) -> list[type]:
    return [type(order) for order in orders]


# ── repairs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_repaired_host_is_provable_without_a_reboot() -> None:
    d = condemned()
    assert d.send(REPAIRS).orders == ()
    assert d.known.state is Lifecycle.REPAIRING
    assert d.send(hello(boot="b2")).orders == ()  # people reboot it as they like
    (order,) = d.send(burnin()).orders
    assert isinstance(order, RunBurnin)
    assert (d.known.state, d.known.held) == (Lifecycle.QUALIFYING, True)
    d.send(burnt(Verdict.PASS, order=order.id, id="p", boot="b2"))
    assert (d.known.state, d.known.proof) == (Lifecycle.QUARANTINED, "p")
    assert kinds(d.send(release()).orders) == [Release]
    assert d.known.state is Lifecycle.HEALTHY


def test_a_repair_that_did_not_help_is_a_quarantine_again() -> None:
    d = condemned()
    d.send(REPAIRS)
    d.send(burnin())
    step = d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=d.pending, id="g"))
    assert (step.state.state, step.orders) == (Lifecycle.QUARANTINED, ())
    assert "recommended: reboot" in step.why
    assert len(step.state.marks) == 2


def test_repairing_a_host_that_serves_takes_it_out_first() -> None:
    d = Driven().healthy()
    assert kinds(d.send(REPAIRS).orders) == [Quarantine]
    assert d.known.holds[0].owner == "operator:ann"
    assert d.send(REPAIRS).refused
    assert kinds(d.send(release()).orders) == [Release]
    assert d.known.state is Lifecycle.HEALTHY


def test_an_operator_may_order_a_burnin_on_any_known_host_once() -> None:
    d = Driven().healthy()
    (order,) = d.send(burnin("qualify")).orders
    assert isinstance(order, RunBurnin)
    assert (order.level, d.known.state) == ("qualify", Lifecycle.HEALTHY)
    assert "is under way" in d.send(burnin()).why
    assert d.send(burnin()).refused


def test_an_operator_gets_a_host_going_whose_attempts_are_used_up() -> None:
    d = Driven()
    d.send(hello())
    for _ in range(3):
        d.send(BurninRefused(host=H1, order_id=OrderId(d.pending), why="busy"))
    assert (d.known.pending, d.known.attempts) == (None, 3)
    assert kinds(d.send(burnin()).orders) == [RunBurnin]
    d.send(burnt(Verdict.PASS, order=d.pending, id="p"))
    assert d.known.state is Lifecycle.HEALTHY


def test_a_burnin_needs_an_agent_that_has_spoken() -> None:
    d = Driven()
    d.send(fault(FaultClass.MEMORY, Severity.ERROR, id="x"))
    assert "never said hello" in d.send(burnin()).why


# ── coming back ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_proof_brings_a_host_back_by_itself_if_the_policy_says_so() -> None:
    d = condemned(returns=Returns.AUTOMATIC, probation_seconds=600.0)
    d.send(hello(boot="b2"))
    step = d.send(burnt(Verdict.PASS, order=d.pending, id="p", boot="b2"))
    assert (step.state.state, kinds(step.orders)) == (Lifecycle.PROBATION, [Release])
    assert next_due_s(d.known, d.policy) == 600
    d.send(TimePassed(host=H1), at_s=599)
    assert d.known.state is Lifecycle.PROBATION
    d.send(TimePassed(host=H1), at_s=600)
    assert (d.known.state, next_due_s(d.known, d.policy)) == (Lifecycle.HEALTHY, None)


def test_a_foreign_hold_keeps_a_proven_host() -> None:
    d = condemned(returns=Returns.AUTOMATIC)
    d.send(take(who="bob"))
    d.send(hello(boot="b2"))
    assert d.send(burnt(Verdict.PASS, order=d.pending, id="p", boot="b2")).orders == ()
    assert [h.owner for h in d.known.holds] == ["fleetd", "operator:bob"]


def test_what_kept_a_proven_host_from_coming_back_may_go() -> None:
    d = condemned(returns=Returns.AUTOMATIC)
    d.send(take(100.0, who="bob"))
    d.send(hello(boot="b2"))
    order = d.pending
    d.tell(AutomationStopped(who="ann", reason="r"))
    d.send(burnt(Verdict.PASS, order=order, id="p", boot="b2"))
    d.send(TimePassed(host=H1), at_s=101)
    assert d.known.state is Lifecycle.QUARANTINED  # automation is stopped
    taken = d.tell(AutomationResumed(who="ann", reason="r"))
    assert kinds(taken[1].step.orders) == [Release]
    assert d.known.state is Lifecycle.HEALTHY
    e = condemned(returns=Returns.AUTOMATIC)
    e.send(take(100.0, who="bob"))
    e.send(hello(boot="b2"))
    e.send(burnt(Verdict.PASS, order=e.pending, id="p", boot="b2"))
    assert kinds(e.send(TimePassed(host=H1), at_s=101).orders) == [Release]


def test_a_bad_finding_ends_a_probation() -> None:
    d = condemned(returns=Returns.AUTOMATIC, probation_seconds=600.0)
    d.send(hello(boot="b2"))
    d.send(burnt(Verdict.PASS, order=d.pending, id="p", boot="b2"))
    d.send(burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="g", boot="b2"))
    assert (d.known.state, d.known.probation_until_s) == (Lifecycle.QUARANTINED, None)


def test_an_operators_hold_expires_and_ours_does_not() -> None:
    d = condemned()
    assert d.send(take(-1.0)).refused
    d.send(take(100.0))
    assert next_due_s(d.known, d.policy) == 100
    assert d.send(TimePassed(host=H1, connected=False), at_s=100).orders == ()
    assert [h.owner for h in d.known.holds] == ["fleetd"]
    e = Driven().healthy()
    e.send(take(100.0))
    step = e.send(TimePassed(host=H1), at_s=101)
    assert (e.known.state, kinds(step.orders)) == (Lifecycle.HEALTHY, [Release])


# ── retirement ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_retired_host_is_out_for_good_and_counts_nowhere() -> None:
    d = Driven().healthy()
    assert kinds(d.send(RETIRES).orders) == [Quarantine]
    assert d.fleet.snapshot()["counts"] == {}
    for event in (hello(boot="b2"), burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f"), burnin(), REPAIRS):
        assert d.send(event).refused
    assert d.send(release()).refused
    d.send(release(override=True))
    assert (d.known.state, d.known.held) == (Lifecycle.REPAIRING, True)  # it must prove itself like any other


# ── telling people ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chatty_suspect_tells_a_human_once_an_hour() -> None:
    d = Driven(policy=replace(with_rules(), tell_again_seconds=3600)).healthy()
    told = [
        len(d.send(fault(FaultClass.CONFIGURATION, Severity.ERROR, id=f"x{n}"), at_s=600.0 * n).orders)
        for n in range(13)
    ]
    assert told == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    other = fault(FaultClass.CONFIGURATION, Severity.ERROR, id="y", code="other")
    assert kinds(d.send(other).orders) == [Notify]


def test_a_clock_that_was_set_back_silences_nobody() -> None:
    d = Driven(policy=with_rules()).healthy()
    d.send(fault(FaultClass.CONFIGURATION, Severity.ERROR, id="x"), at_s=5000)
    assert kinds(d.send(fault(FaultClass.CONFIGURATION, Severity.ERROR, id="y"), at_s=10).orders) == [Notify]


# ── counting ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_repeats_of_an_application_fault_look_again_and_never_quarantine() -> None:
    code = "nvidia.xid.31"
    repeated = Rule(
        name="repeated", when=When(code=code, count=Count(at_least=3, within_seconds=100)), then=Burnin(burnin="smoke")
    )
    taken = Rule(name="taken", when=When(finding=FindingKind.DEVICE, scope=(Scope.APP,)), then=Action.MONITOR)
    d = Driven(policy=with_rules(repeated, taken)).healthy()
    orders = [
        kinds(d.send(fault(FaultClass.NONE, Severity.ERROR, id=f"x{n}", scope=Scope.APP, code=code, at_s=at_s)).orders)
        for n, at_s in enumerate((0, 90, 180, 185))
    ]
    assert orders == [[], [], [], [RunBurnin]]
    d.send(fault(FaultClass.NONE, Severity.ERROR, id="x3", scope=Scope.APP, code=code, at_s=185))
    assert len(d.known.sightings) == 4


# ── names, clocks, versions ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_machine_under_the_same_name_is_told_once_and_not_listened_to() -> None:
    d = Driven().healthy()
    d.send(hello(boot="b2"))
    step = d.send(hello(boot="b1"))
    assert (kinds(step.orders), step.state.boot_id) == ([Notify], "b2")
    assert "second machine" in step.why
    again = d.send(hello(boot="b1"))
    assert (again.orders, again.state) == ((), step.state)


def test_a_host_that_was_reinstalled_under_its_name_qualifies_again() -> None:
    d = condemned()
    step = d.send(hello(boot="fresh"))
    assert (step.state.state, kinds(step.orders)) == (Lifecycle.QUARANTINED, [RunBurnin])


@pytest.mark.parametrize("off_s", [-3600.0, 3600.0])
def test_a_clock_an_hour_off_is_told_and_changes_no_decision(off_s: float) -> None:
    d = Driven(now_s=100_000)
    step = d.send(hello(at_s=100_000 + off_s))
    assert kinds(step.orders) == [Notify, RunBurnin]
    assert f"{off_s:+.0f} seconds off" in step.orders[0].why
    order = step.orders[1]
    assert isinstance(order, RunBurnin)
    assert order.not_after_s == 100_100
    late = burnt(Verdict.FAIL, ("G0", PERSISTENT), order=order.id, id="f", at_s=100_000 + off_s)
    assert kinds(d.send(late).orders) == [Quarantine]


def test_an_agent_that_does_not_say_its_time_or_place_is_an_agent() -> None:
    step = Driven().send(hello())
    assert kinds(step.orders) == [RunBurnin]
    assert step.state.place.rack is None
