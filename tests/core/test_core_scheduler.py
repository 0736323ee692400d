"""The scheduler against the ledger: what is told, what is put right, and how urgently jobs leave."""

from dataclasses import dataclass, replace

import pytest

from fleetd.core.scheduler import differences
from fleetd.model.event import (
    OperatorQuarantined,
    OperatorReleased,
    OperatorRepairs,
    OperatorRetires,
    OrderObstructed,
    SchedulerDiffers,
)
from fleetd.model.finding import FaultClass, Verdict
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import Drain, Notify, Quarantine, Release
from tests.core.make_core import H1, POLICY, Driven, burnt, hello

PERSISTENT, MEMORY = FaultClass.CHIP_PERSISTENT, FaultClass.MEMORY


@dataclass(frozen=True)
class Stands:
    closed: bool
    order_id: OrderId | None = None
    known: bool = True
    why: str = ""
    other: OrderId | None = None


THEIRS = Stands(closed=True)
OPEN = Stands(closed=False)
LOST = Stands(closed=False, known=False)


def healthy() -> Driven:
    return Driven(policy=POLICY).healthy()


def condemned(drains: dict[FaultClass, Drain] | None, *classes: FaultClass) -> tuple[Driven, Quarantine]:
    d = Driven(policy=replace(POLICY, drains=drains or {})).healthy()
    culprits = [(f"G{n}", fault_class) for n, fault_class in enumerate(classes)]
    orders = d.send(burnt(Verdict.FAIL, *culprits, order=None, id="f")).orders
    (order,) = [order for order in orders if isinstance(order, Quarantine)]
    return d, order


def held() -> Driven:
    return condemned(None, PERSISTENT)[0]


def released() -> Driven:
    d = held()
    d.send(OperatorReleased(host=H1, who="ann", reason="fine", override=True))
    return d


OURS = Stands(closed=True, order_id=held().known.closings[-1])


@pytest.mark.parametrize(
    ("is_held", "stands", "differs"),
    [
        (False, OPEN, None),
        (False, THEIRS, None),
        (False, OURS, True),
        (True, OPEN, False),
        (True, THEIRS, None),
        (True, OURS, None),
        (True, None, None),
        (False, None, None),
    ],
)
def test_only_what_is_ours_or_missing_is_a_difference(
    is_held: bool, stands: Stands | None, differs: bool | None
) -> None:
    host = (held() if is_held else released()).known
    standing = {} if stands is None else {H1: stands}
    by = OURS.order_id if differs else None
    expected = () if differs is None else (SchedulerDiffers(host=H1, closed=differs, order_id=by),)
    assert differences([host], standing, (), close_at_most=9) == expected
    assert differences([host], standing, {H1}, close_at_most=9) == (), "an order is open that changes it"


def test_a_held_host_whose_node_is_gone_is_told_and_nothing_is_ordered_that_could_not_be_done() -> None:
    d = held()
    (lost,) = differences([d.known], {H1: LOST}, (), close_at_most=0)
    assert lost == SchedulerDiffers(host=H1, closed=False, known=False)
    step = d.send(lost)
    (told,) = step.orders
    assert isinstance(told, Notify)
    assert "knows no node of the host" in told.why
    assert "fleetd host repair" in told.why
    assert differences([healthy().known], {H1: LOST}, (), close_at_most=9) == ()
    assert differences([d.known], {H1: LOST}, {H1}, close_at_most=9) == (), "the order that is open says so"
    d.send(OperatorRepairs(host=H1, who="ann", reason="sent away"))
    assert differences([d.known], {H1: LOST}, (), close_at_most=9) == ()


def test_a_retired_host_is_left_as_it_stands() -> None:
    d = held()
    d.send(OperatorRetires(host=H1, who="ann", reason="old"))
    assert differences([d.known], {H1: OPEN}, (), close_at_most=9) == ()


def test_who_repairs_a_host_may_open_it() -> None:
    d = held()
    d.send(OperatorRepairs(host=H1, who="ann", reason="new GPU"))
    assert differences([d.known], {H1: OPEN}, (), close_at_most=9) == ()


def test_not_more_hosts_are_closed_at_once_than_the_budget_allows_but_any_number_is_opened() -> None:
    one, free = held().known, released().known
    held_hosts = [replace(one, name=HostName(f"h{n}")) for n in (3, 1, 2)]
    free_hosts = [replace(free, name=HostName(f"f{n}")) for n in range(3)]
    standing = {host.name: OPEN for host in held_hosts} | {host.name: OURS for host in free_hosts}
    found = differences([*held_hosts, *free_hosts], standing, (), close_at_most=2)
    assert [(d.host, d.closed) for d in found] == [
        ("f0", True),
        ("f1", True),
        ("f2", True),
        ("h1", False),
        ("h2", False),
    ]


def test_an_operator_says_how_work_leaves_also_on_a_host_that_is_held_already() -> None:
    d, first = condemned({PERSISTENT: Drain.JOB_END}, PERSISTENT)
    assert first.drain is Drain.JOB_END
    assert d.send(OperatorQuarantined(host=H1, who="ann", reason="fan")).orders == ()
    (order,) = d.send(OperatorQuarantined(host=H1, who="ann", reason="fire", drain=Drain.NOW)).orders
    assert isinstance(order, Quarantine)
    assert order.drain is Drain.NOW
    assert order.id != first.id
    d = healthy()
    (order,) = d.send(OperatorQuarantined(host=H1, who="ann", reason="fan", drain=Drain.CHECKPOINT)).orders
    assert isinstance(order, Quarantine)
    assert order.drain is Drain.CHECKPOINT


def test_a_held_host_that_somebody_opened_is_closed_again_and_he_is_told_where_to_release_it() -> None:
    d = held()
    step = d.send(SchedulerDiffers(host=H1, closed=False))
    again, told = step.orders
    assert isinstance(again, Quarantine)
    assert isinstance(told, Notify)
    assert "fleetd host release" in told.why
    assert step.state.state is Lifecycle.QUARANTINED


def test_a_free_host_that_we_still_close_is_opened() -> None:
    d = released()
    (order,) = d.send(SchedulerDiffers(host=H1, closed=True, order_id=OURS.order_id)).orders
    assert isinstance(order, Release)


def test_a_difference_of_a_journal_that_names_no_order_is_judged_as_it_was() -> None:
    (order,) = healthy().send(SchedulerDiffers(host=H1, closed=True)).orders
    assert isinstance(order, Release)


@pytest.mark.parametrize("closed", [True, False])
def test_a_difference_that_is_over_when_it_is_judged_changes_nothing(closed: bool) -> None:
    d = held() if closed else healthy()
    step = d.send(SchedulerDiffers(host=H1, closed=closed))
    assert step.orders == ()


def test_an_obstructed_order_is_told_once_in_a_while_and_changes_nothing_else() -> None:
    d = held()
    before = d.known
    event = OrderObstructed(host=H1, order_id=OrderId("h1/3/quarantine"), why="drained by alice")
    (told,) = d.send(event).orders
    assert isinstance(told, Notify)
    assert "h1/3/quarantine is not carried out yet: drained by alice" in told.why
    assert d.send(event).orders == ()
    assert (d.known.holds, d.known.state) == (before.holds, before.state)


def test_an_obstructed_order_of_a_retired_host_is_told() -> None:
    d = Driven(policy=POLICY)
    d.send(hello())
    d.send(OperatorRetires(host=H1, who="ann", reason="old"))
    step = d.send(OrderObstructed(host=H1, order_id=OrderId("h1/3/quarantine"), why="no such node"))
    assert [type(order) for order in step.orders] == [Notify]


# ── drains ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def drain_of(drains: dict[FaultClass, Drain] | None, *classes: FaultClass) -> Drain:
    return condemned(drains, *classes)[1].drain


def test_jobs_run_to_their_end_unless_the_policy_is_more_urgent() -> None:
    assert drain_of(None, PERSISTENT) is Drain.JOB_END
    assert drain_of({MEMORY: Drain.NOW}, PERSISTENT) is Drain.JOB_END
    assert drain_of({PERSISTENT: Drain.CHECKPOINT}, PERSISTENT) is Drain.CHECKPOINT


def test_of_several_faults_the_most_urgent_counts() -> None:
    drains = {PERSISTENT: Drain.CHECKPOINT, MEMORY: Drain.NOW}
    assert drain_of(drains, PERSISTENT, MEMORY) is Drain.NOW
