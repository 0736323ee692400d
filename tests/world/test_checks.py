"""The checks are checked: a good world passes, and one with a planted wrong is found out, each by the right check."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fleetd.core.policy import Policy
from fleetd.model.event import FindingReceived, OperatorQuarantined, OperatorReleased
from fleetd.model.fleet import FleetRecord, Stopped
from fleetd.model.host import Lifecycle
from fleetd.model.ids import FindingId, HostName
from fleetd.model.journal import JournalEntry
from fleetd.model.order import Quarantine
from fleetd.sim.gpu import Cure, Trouble
from fleetd.world import checks
from fleetd.world.__main__ import failure
from fleetd.world.outcome import Outcome
from tests.world.fakes_world import fleet

Change = Callable[[Outcome], Outcome]


@pytest.fixture(name="good", scope="module")
def _good() -> Outcome:
    world = fleet(crew=True)
    world.at(600).plant("h02", 1, Trouble.LOST, cure=Cure.SWAP)
    world.at(9000).quarantine("h03", "firmware update")
    world.at(9600).burnin("h03", "firmware is updated")
    world.at(9000).quarantine("h04", "smells burnt")
    world.at(9300).release("h04", "was toast")
    return world.run(seconds=3 * 3600.0)


def entry_where(outcome: Outcome, holds: Callable[[JournalEntry], bool]) -> int:
    return next(number for number, (_, entry) in enumerate(outcome.journal) if holds(entry))


def taken(entry: JournalEntry) -> bool:
    by_people = isinstance(entry.event, OperatorQuarantined)
    return not by_people and any(isinstance(order, Quarantine) for order in entry.orders)


def with_entry(outcome: Outcome, number: int, entry: JournalEntry) -> Outcome:
    at_s, _ = outcome.journal[number]
    return replace(outcome, journal=(*outcome.journal[:number], (at_s, entry), *outcome.journal[number + 1 :]))


def without_evidence(outcome: Outcome) -> Outcome:
    number = entry_where(outcome, taken)
    entry = outcome.journal[number][1]
    assert entry.host is not None
    holds = tuple(replace(hold, evidence=()) for hold in entry.host.holds)
    return with_entry(outcome, number, replace(entry, host=replace(entry.host, holds=holds)))


def without_a_reason(outcome: Outcome) -> Outcome:
    return replace(outcome, planted=frozenset())


def beyond_the_budget(outcome: Outcome) -> Outcome:
    budgets = outcome.policy.budgets
    none = replace(budgets.quarantines, max_ratio=0.0, at_least=0)
    policy: Policy = replace(outcome.policy, budgets=replace(budgets, quarantines=none))
    return replace(outcome, policy=policy)


def counted_twice(outcome: Outcome) -> Outcome:
    number = entry_where(outcome, lambda e: isinstance(e.event, FindingReceived) and bool(e.orders))
    at_s, entry = outcome.journal[number]
    return replace(outcome, journal=(*outcome.journal, (at_s, entry)))


def decided_otherwise(outcome: Outcome) -> Outcome:
    return with_entry(outcome, 3, replace(outcome.journal[3][1], why="because"))


def taken_in_spite_of_the_switch(outcome: Outcome) -> Outcome:
    stopped = FleetRecord(stopped=Stopped(who="eve", reason="r", at_s=1.0))
    return with_entry(outcome, 0, replace(outcome.journal[0][1], fleet=stopped))


def done_before_it_was_on_disk(outcome: Outcome) -> Outcome:
    return replace(outcome, carried=tuple(replace(carried, at_s=1.0) for carried in outcome.carried))


def a_hold_that_went_by_itself(outcome: Outcome) -> Outcome:
    number = entry_where(outcome, lambda e: isinstance(e.event, OperatorQuarantined))
    host = outcome.journal[number][1].host
    assert host is not None
    later = next(
        n for n in range(number + 1, len(outcome.journal)) if (h := outcome.journal[n][1].host) and h.name == host.name
    )
    return with_entry(outcome, later, replace(outcome.journal[later][1], host=replace(host, holds=())))


def a_lost_finding(outcome: Outcome) -> Outcome:
    known = next(iter(outcome.found.values()))
    return replace(outcome, found={**outcome.found, FindingId("lost"): replace(known, id=FindingId("lost"))})


def a_hold_that_somebody_else_released(outcome: Outcome) -> Outcome:
    """Eve's hold goes when Mallory, without an override, releases the host."""
    number = entry_where(outcome, lambda e: isinstance(e.event, OperatorReleased) and e.event.host == "h04")
    entry = outcome.journal[number][1]
    assert isinstance(entry.event, OperatorReleased)
    return with_entry(outcome, number, replace(entry, event=replace(entry.event, who="mallory")))


def a_row_that_is_missing(outcome: Outcome) -> Outcome:
    return replace(outcome, rows=outcome.rows[1:])


def a_row_that_is_there_twice(outcome: Outcome) -> Outcome:
    return replace(outcome, rows=(*outcome.rows, outcome.rows[0]))


def a_row_that_says_something_else(outcome: Outcome) -> Outcome:
    return replace(outcome, rows=(replace(outcome.rows[0], why="something else"), *outcome.rows[1:]))


def a_place_that_was_accepted_twice(outcome: Outcome) -> Outcome:
    number = entry_where(outcome, lambda e: e.progress is not None)
    return replace(outcome, journal=(*outcome.journal, outcome.journal[number]))


def an_order_nobody_did(outcome: Outcome) -> Outcome:
    return replace(outcome, carried=())


def a_host_left_behind(outcome: Outcome) -> Outcome:
    changed = tuple(replace(host, state=Lifecycle.SUSPECT) if host.name == "h04" else host for host in outcome.hosts)
    return replace(outcome, hosts=changed)


def a_drain_left_behind(outcome: Outcome) -> Outcome:
    return replace(outcome, drained=outcome.drained | {HostName("h04")})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_evidence, "without evidence of its own"),
        (without_a_reason, "nothing was ever wrong with it"),
        (beyond_the_budget, "goes beyond the budget"),
        (counted_twice, "decided 2 times"),
        (decided_otherwise, "judged again, why differ"),
        (taken_in_spite_of_the_switch, "automation was stopped"),
        (done_before_it_was_on_disk, "carried out before it was on disk"),
        (a_hold_that_went_by_itself, "by itself"),
        (a_hold_that_somebody_else_released, "lost the hold of operator:eve"),
        (a_row_that_is_missing, "accepted and is not stored"),
        (a_row_that_is_there_twice, "is stored 2 times"),
        (a_row_that_says_something_else, "is stored as nobody told it"),
        (a_place_that_was_accepted_twice, "was accepted 2 times"),
        (a_lost_finding, "finding lost never reached the ledger"),
        (an_order_nobody_did, "was never carried out"),
        (a_host_left_behind, "h04 is well and yet suspect"),
        (a_drain_left_behind, "its scheduler believes otherwise"),
    ],
)
def test_a_planted_wrong_is_found(good: Outcome, change: Change, said: str) -> None:
    found = checks.broken(change(good), settled=True)
    assert any(said in line for line in found), found


def test_a_good_world_passes(good: Outcome) -> None:
    assert checks.broken(good, settled=True) == []


def test_a_burnin_that_was_ordered_just_now_is_no_standstill() -> None:
    assert failure(1010) == ""  # an outlier by chance, seven seconds before the end of this world
