"""What the kill switch holds back of what is decided already, and what becomes of a burn-in that waited too long."""

import pytest

from fleetd.core.intent import held_back, void_since, void_without_node
from fleetd.model.event import (
    AutomationResumed,
    AutomationStopped,
    BurninAccepted,
    BurninRefused,
    Event,
    OperatorBurnin,
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepairs,
    OperatorRetires,
    TimePassed,
)
from fleetd.model.finding import FaultClass, Verdict
from fleetd.model.fleet import Stopped
from fleetd.model.host import Lifecycle
from fleetd.model.ids import OrderId
from fleetd.model.order import Notify, Quarantine, Release, RunBurnin
from tests.core.make_core import H1, POLICY, Driven, burnt, hello

STOPPED = Stopped(who="ann", reason="roll-out", at_s=0.0)
STOPS, RESUMES = AutomationStopped(who="ann", reason="r"), AutomationResumed(who="ann", reason="r")
TIMEOUT_S = POLICY.qualify.timeout_seconds


def condemned() -> tuple[Driven, Quarantine]:
    d = Driven().healthy()
    step = d.send(burnt(Verdict.FAIL, ("G0", FaultClass.CHIP_PERSISTENT), order=None, id="f"))
    (order,) = [o for o in step.orders if isinstance(o, Quarantine)]
    return d, order


def test_a_quarantine_waits_while_automation_is_stopped_and_no_longer() -> None:
    d, order = condemned()
    assert held_back(order, d.host, None) is None
    assert held_back(order, d.host, STOPPED) == "automation is stopped by ann: roll-out"


def test_only_a_retired_host_needs_no_node() -> None:
    d, order = condemned()
    assert void_without_node(order, d.host) is None
    assert void_without_node(order, None) is None
    d.send(OperatorRetires(host=H1, who="ann", reason="sold"))
    assert void_without_node(order, d.host) is not None
    assert void_since(order, d.host) is None, "where it has a node, that is closed: its hold stays"


@pytest.mark.parametrize(
    "asks",
    [OperatorQuarantined(host=H1, who="ann", reason="r"), OperatorRepairs(host=H1, who="ann", reason="r")],
    ids=["holds it too", "works on it"],
)
def test_a_host_that_a_person_wants_out_goes_out(asks: Event) -> None:
    d, order = condemned()
    d.send(asks)
    assert (void_since(order, d.host), held_back(order, d.host, STOPPED)) == (None, None)


def test_a_persons_hold_that_is_gone_leaves_an_automatic_one() -> None:
    d, order = condemned()
    d.send(OperatorQuarantined(host=H1, who="ann", reason="r", expires_at_s=10.0))
    d.send(TimePassed(host=H1), at_s=11.0)
    assert d.known.state is Lifecycle.QUARANTINED
    assert held_back(order, d.host, STOPPED) is not None


def test_releases_and_word_to_a_human_always_go_out() -> None:
    d, _ = condemned()
    step = d.send(OperatorReleased(host=H1, who="ann", reason="r", override=True))
    (release,) = [o for o in step.orders if isinstance(o, Release)]
    notify = Notify(id=OrderId("n"), host=H1, issued_at_s=0.0, why="w")
    assert [held_back(order, d.host, STOPPED) for order in (release, notify)] == [None, None]


@pytest.mark.parametrize("by_person", [False, True])
def test_a_burnin_waits_unless_a_person_asked_for_it(by_person: bool) -> None:
    d = Driven()
    step = d.send(hello())
    if by_person:
        d.send(burnt(Verdict.PASS, order=d.pending, id="p"))
        step = d.send(OperatorBurnin(host=H1, who="ann", reason="r", level=None))
    (order,) = [o for o in step.orders if isinstance(o, RunBurnin)]
    assert (held_back(order, d.host, STOPPED) is None) is by_person
    assert held_back(order, d.host, None) is None


# ── a burn-in that waited too long ──────────────────────────────────────────────────────────────────────────────────


def test_a_burnin_that_was_held_back_uses_up_no_attempt() -> None:
    d = Driven()
    d.send(hello())
    d.tell(STOPS)
    step = d.send(TimePassed(host=H1), at_s=2 * TIMEOUT_S + 1)
    assert (step.orders, d.known.pending, d.known.attempts) == ((), None, 0)
    taken = d.tell(RESUMES)
    assert [type(order) for order in taken[1].step.orders] == [RunBurnin]


def test_a_burnin_whose_time_ran_out_while_it_was_held_back_is_ordered_at_once_when_automation_goes_on() -> None:
    d = Driven()
    d.send(hello())
    old = d.pending
    d.tell(STOPS)
    d.now_s = TIMEOUT_S + 1
    taken = d.tell(RESUMES)
    assert f"{old} never reached the agent, it was held back: no attempt is used up" in taken[1].step.why
    assert [type(order) for order in taken[1].step.orders] == [RunBurnin]
    assert (d.pending != old, d.known.attempts) == (True, 0)


def test_one_that_the_agent_has_is_awaited_and_one_in_time_is_not_ordered_twice() -> None:
    d = Driven()
    d.send(hello())
    d.tell(STOPS)
    d.tell(RESUMES)
    assert d.pending == "h1/1/burnin"
    d.send(BurninAccepted(host=H1, order_id=OrderId(d.pending)))
    d.tell(STOPS)
    d.now_s = TIMEOUT_S + 1
    assert len(d.tell(RESUMES)) == 1  # nothing of it was kept back
    d.tell(STOPS)
    d.send(TimePassed(host=H1), at_s=3 * TIMEOUT_S)
    assert d.known.attempts == 1


def test_a_persons_burnin_that_its_agent_never_took_is_an_attempt_also_while_automation_is_stopped() -> None:
    d = Driven().healthy()
    d.tell(STOPS)
    d.send(OperatorBurnin(host=H1, who="ann", reason="r", level=None))
    d.send(TimePassed(host=H1), at_s=2 * TIMEOUT_S + 1)
    assert d.known.attempts == 1


def test_a_persons_burnin_stays_his_when_the_agent_was_away() -> None:
    d = Driven().healthy()
    d.tell(STOPS)
    d.send(OperatorBurnin(host=H1, who="ann", reason="r", level=None))
    step = d.send(hello(), at_s=TIMEOUT_S + 1)
    (order,) = [o for o in step.orders if isinstance(o, RunBurnin)]
    assert held_back(order, d.host, STOPPED) is None


def test_a_refusal_while_automation_is_stopped_waits() -> None:
    d = Driven()
    d.send(hello())
    d.tell(STOPS)
    step = d.send(BurninRefused(host=H1, order_id=OrderId(d.pending), why="busy"))
    assert (step.orders, d.known.due is not None) == ((), True)
