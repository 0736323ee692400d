"""What the scheduler keeps closed for an order that the ledger does not have: held, told once of all, never opened."""

from dataclasses import dataclass, replace

import pytest

from fleetd.core.earlier import hardest_proof, knows
from fleetd.core.fleet import FLEET
from fleetd.core.intent import held_back
from fleetd.core.invariants import EARLIER, FLEETD, MAX_CLOSINGS, MAX_HOLDS
from fleetd.core.limits import Returns
from fleetd.core.newcomer import NUMBER_SECONDS, NUMBERS_BEGIN_S, unknown_host
from fleetd.core.policy import Policy, Proof
from fleetd.core.scheduler import differences
from fleetd.core.step import Step
from fleetd.model.event import (
    AgentConnected,
    AutomationStopped,
    Event,
    IncidentClosed,
    LedgerRestored,
    OperatorBurnin,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepairs,
    OperatorRetires,
    SchedulerDiffers,
)
from fleetd.model.finding import FaultClass, Verdict
from fleetd.model.fleet import IncidentKind
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import Notify, Quarantine, Release
from tests.core.make_core import H1, POLICY, Driven, burnt, hello

STRICT = replace(POLICY, proofs={**POLICY.proofs, FaultClass.LINK: "qualify", FaultClass.CHIP_PERSISTENT: "manual"})
"""Some fault asks for more than a new host must pass, and some for a person."""


@dataclass(frozen=True)
class Stands:
    closed: bool
    order_id: OrderId | None = None
    known: bool = True
    why: str = ""
    other: OrderId | None = None


def marked(number: int, *, host: str = "h1", why: str = "gpu 2 is wrong") -> Stands:
    return Stands(closed=True, order_id=OrderId(f"{host}/{number}/quarantine"), why=why)


def compare(d: Driven, stands: Stands) -> tuple[Step[Host], ...]:
    """One look at the scheduler, and what is decided on what is found there."""
    found = differences([d.known], {H1: stands}, (), close_at_most=9)
    return tuple(d.send(event) for event in found)


def adopted(policy: Policy = POLICY, *, number: int = 9) -> Driven:
    d = Driven(policy).healthy()
    (step,) = compare(d, marked(number))
    assert [type(order) for order in step.orders] == [Notify]
    return d


def proven(d: Driven, level: str, boot: str = "b1") -> None:
    d.send(OperatorBurnin(host=H1, who="ann", reason="prove it", level=level))
    d.send(burnt(Verdict.PASS, order=d.pending, id=f"proof {d.now_s} {level}", level=level, boot=boot))


# ── a new ledger ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [2, 9, 100_000])
def test_a_host_that_an_earlier_ledger_closed_is_held_and_its_node_is_never_opened(number: int) -> None:
    d = adopted(number=number)
    host = d.known
    (hold,) = host.holds
    assert (host.state, host.proof, hold.owner) == (Lifecycle.QUARANTINED, None, EARLIER)
    assert f"h1/{number}/quarantine, an order of fleetd that this ledger does not have: gpu 2 is wrong" in hold.reason
    assert compare(d, marked(number)) == (), "it is known from now on"
    assert host.orders_issued > number, "a release has a later number than the order that it takes back"


@pytest.mark.parametrize("events", [(hello(),), (hello(), OperatorRepairs(host=H1, who="ann", reason="fan"))])
def test_a_host_is_adopted_in_whatever_state_it_is(events: tuple[Event, ...]) -> None:
    d = Driven()
    for event in events:
        d.send(event)
    (step,) = compare(d, marked(7))
    assert {hold.owner for hold in step.state.holds} >= {EARLIER}
    assert step.state.state is (Lifecycle.REPAIRING if len(events) > 1 else Lifecycle.QUARANTINED)
    assert not any(isinstance(order, Quarantine | Release) for order in step.orders)


def test_an_order_of_a_number_that_the_new_ledger_has_given_to_another_order_is_not_taken_for_its_own() -> None:
    d = Driven().healthy()
    assert d.known.orders_issued == 1, "a burn-in"
    (step,) = compare(d, marked(1))
    assert step.state.held


def test_a_host_held_for_reasons_of_its_own_is_held_for_the_earlier_one_too() -> None:
    d = Driven().healthy()
    d.send(burnt(Verdict.FAIL, ("G0", FaultClass.MEMORY), order=None, id="f"))
    assert compare(d, marked(d.known.orders_issued, why="")) == (), "its own"
    (step,) = compare(d, marked(50))
    assert [hold.owner for hold in step.state.holds] == [FLEETD, EARLIER]
    (step,) = compare(d, marked(60, why="fan"))
    assert [hold.owner for hold in step.state.holds] == [FLEETD, EARLIER]
    assert "h1/60/" in step.state.holds[1].reason
    assert "h1/50/" in step.state.holds[1].reason


def test_a_retired_host_and_one_that_is_closed_by_somebody_else_are_left_alone() -> None:
    d = Driven().healthy()
    assert compare(d, Stands(closed=True)) == ()
    d.send(OperatorRetires(host=H1, who="ann", reason="old"))
    assert compare(d, marked(9)) == ()
    assert d.send(SchedulerDiffers(host=H1, closed=True, order_id=OrderId("h1/9/quarantine"))).orders == ()


def test_what_was_adopted_and_opened_by_hand_is_closed_again_unless_automation_is_stopped() -> None:
    d = adopted()
    (step,) = compare(d, Stands(closed=False))
    (order,) = [order for order in step.orders if isinstance(order, Quarantine)]
    assert "this ledger does not have: gpu 2 is wrong" in order.why
    assert held_back(order, d.known, None) is None
    d.tell(AutomationStopped(who="ann", reason="wait"))
    assert held_back(order, d.known, d.fleet.record.stopped) is not None


def test_a_node_that_was_closed_for_a_host_of_another_name_is_told_once_of_all_and_no_order_is_given() -> None:
    d = Driven(replace(POLICY, tell_again_seconds=3600.0)).healthy().others(3)
    stands = Stands(closed=True, why="gpu 2 is wrong", other=OrderId("old-name/4/quarantine"))
    before = d.known
    (step,) = compare(d, stands)
    (told,) = step.orders
    assert isinstance(told, Notify)
    assert "have a node that fleetd closed for a host of another name" in told.why
    assert "by old-name/4/quarantine" in step.why
    assert (d.known.holds, d.known.state, d.known.proof) == (before.holds, before.state, before.proof)
    name = HostName("o1")
    assert d.send(SchedulerDiffers(host=name, closed=True, order_id=OrderId("old/9/quarantine"))).orders == ()
    assert [incident.id for incident in d.fleet.record.incidents] == ["earlier/renamed/1"]
    d.send(OperatorQuarantined(host=H1, who="ann", reason="fan"))
    assert compare(d, stands) == (), "it is held, and closed"


# ── how it comes back ───────────────────────────────────────────────────────────────────────────────────────────────


def test_it_comes_back_by_the_hardest_proof_and_a_person() -> None:
    d = adopted(replace(STRICT, returns=Returns.AUTOMATIC))
    asked = OperatorReleased(host=H1, who="ann", reason="fine", override=False)
    assert "a passing `qualify` burn-in" in d.send(asked).why
    proven(d, "smoke")
    assert d.known.proof is None
    assert d.send(asked).refused
    proven(d, "qualify")
    assert d.known.state is Lifecycle.QUARANTINED, "not by itself: who closed it may have been a person"
    step = d.send(asked)
    assert [type(order) for order in step.orders] == [Release]
    assert not d.known.held
    assert compare(d, marked(9))[0].orders, "should the scheduler not have it open, it is opened: the order is known"


def test_a_person_may_override() -> None:
    d = adopted()
    step = d.send(OperatorReleased(host=H1, who="ann", reason="I know", override=True))
    assert [type(order) for order in step.orders] == [Release]


def test_the_proof_that_was_there_before_counts_for_nothing() -> None:
    d = Driven().healthy()
    assert d.known.proof is not None
    compare(d, marked(9))
    assert d.send(OperatorReleased(host=H1, who="ann", reason="fine", override=False)).refused


def test_the_hardest_proof_of_a_policy() -> None:
    assert hardest_proof(POLICY) == Proof(level="smoke")
    assert hardest_proof(STRICT) == Proof(level="qualify")
    rebooted = {**POLICY.proofs, FaultClass.MEMORY: Proof(level="quick", after_reboot=True)}
    assert hardest_proof(replace(POLICY, proofs=rebooted)) == Proof(level="quick", after_reboot=True)
    assert hardest_proof(replace(POLICY, proofs={})) == Proof(level="smoke"), "what every host must pass"


# ── very many ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lost_ledger_is_one_incident_trips_no_budget_and_uses_up_none_of_the_window() -> None:
    d = Driven(replace(POLICY, tell_again_seconds=3600.0)).healthy().others(40)
    names = [HostName(f"o{n}") for n in range(40)]
    orders = []
    for name in names:
        event = SchedulerDiffers(host=name, closed=True, order_id=OrderId(f"{name}/7/quarantine"), why="w")
        orders += d.send(event).orders
    assert [type(order) for order in orders] == [Notify]
    record = d.fleet.record
    assert record.tripped == ()
    (incident,) = record.incidents
    assert (incident.kind, incident.hosts_total) == (IncidentKind.EARLIER, 40)
    assert d.fleet.count(FLEET).held == 40
    assert d.fleet.quarantined_since(FLEET, -1.0) == 0
    d.tell(IncidentClosed(incident=incident.id, who="ann", reason="seen", acquit=True))
    assert all(d.replay.hosts[name].held for name in names), "an incident that is closed opens nothing"


def test_a_policy_that_only_observes_orders_nothing_either() -> None:
    d = Driven(replace(POLICY, rules=())).healthy()
    steps = compare(d, marked(9))
    assert not any(isinstance(order, Quarantine | Release) for step in steps for order in step.orders)


def test_holds_and_orders_that_are_known_are_bounded() -> None:
    d = Driven().healthy()
    for n in range(MAX_HOLDS):
        d.send(OperatorQuarantined(host=H1, who=f"p{n}", reason="fan"))
    (step,) = compare(d, marked(500))
    assert len(step.state.holds) == MAX_HOLDS
    assert compare(d, marked(500)) == ()
    for number in range(501, 501 + 2 * MAX_CLOSINGS):
        compare(d, marked(number))
    assert len(d.known.closings) == MAX_CLOSINGS


def test_the_orders_of_a_new_ledger_have_numbers_that_no_earlier_one_gave() -> None:
    begin_s = NUMBERS_BEGIN_S + 100 * NUMBER_SECONDS
    assert unknown_host(H1, begin_s).orders_issued == 100
    assert unknown_host(H1, NUMBERS_BEGIN_S - 1.0).orders_issued == 0
    d = Driven(now_s=begin_s)
    d.send(hello())
    assert d.pending == "h1/101/burnin"
    (step,) = compare(d, marked(100))
    assert step.state.held
    assert knows(d.known, OrderId("h1/100/quarantine"))


# ── a ledger that was put back, and one of an earlier version ───────────────────────────────────────────────────────


def restored(d: Driven) -> Driven:
    d.send(LedgerRestored(host=H1, who="ann", reason="disk died", orders_skipped=1000))
    return d


def test_what_was_closed_after_the_backup_is_adopted_and_what_was_closed_before_is_known() -> None:
    d = Driven().healthy()
    d.send(OperatorQuarantined(host=H1, who="ann", reason="fan"))
    before = d.known.closings[-1]
    d.send(OperatorReleased(host=H1, who="ann", reason="fine", override=True))
    restored(d)
    assert knows(d.known, before)
    (step,) = compare(d, marked(d.known.orders_issued - 500))
    assert step.state.holds[0].owner == EARLIER
    again = restored(Driven().healthy())
    again.send(OperatorQuarantined(host=H1, who="ann", reason="fan"))
    assert knows(again.known, again.known.closings[-1])


def old_version(d: Driven) -> Driven:
    """The host as a version left it that did not list what closed it."""
    d.replay.hosts[H1] = replace(d.known, closings=(), closings_from=0)
    return d


def test_in_a_ledger_of_an_earlier_version_every_number_it_gave_is_its_own() -> None:
    d = Driven().healthy()
    d.send(burnt(Verdict.FAIL, ("G0", FaultClass.MEMORY), order=None, id="f"))
    mark = Stands(closed=True, order_id=d.known.closings[-1])
    old_version(d)
    assert compare(d, mark) == ()
    d.send(OperatorQuarantined(host=H1, who="ann", reason="fan"))
    for order in d.send(SchedulerDiffers(host=H1, closed=False)).orders:
        assert knows(d.known, order.id) or not isinstance(order, Quarantine)
    assert d.known.closings_from > 1
    assert compare(d, mark) == ()
    assert compare(d, marked(d.known.orders_issued + 1))[0].state.holds[-1].owner == EARLIER


def test_what_was_closed_after_the_backup_of_an_earlier_version_is_adopted() -> None:
    d = restored(old_version(Driven().healthy()))
    assert knows(d.known, OrderId("h1/1/quarantine"))
    (step,) = compare(d, marked(2))
    assert step.state.held


def test_a_host_of_which_nothing_is_known_is_adopted_after_its_hello_only() -> None:
    d = Driven()
    event = SchedulerDiffers(host=H1, closed=True, order_id=OrderId("h1/9/quarantine"))
    assert d.replay.play(0.0, event)[0].step.refused
    assert isinstance(hello(), AgentConnected)
    d.send(hello())
    assert d.send(event).state.held
