"""The network comes and goes: who is away because of it is not blamed, and who is really lost does not hide in it."""

import pytest

from fleetd.core.limits import Silence
from fleetd.core.silence import PATIENCE, is_over, is_partition, patience_s
from fleetd.model.event import AgentSilent
from fleetd.model.host import Lifecycle
from fleetd.model.order import Notify, Quarantine
from fleetd.sim.wire import Weather
from tests.world.fakes_world import POLICIES, fleet

HOUR = 3600.0
LIMITS = POLICIES["default"].silence
SLOWEST_RETURN_S = 100.0
"""Of an agent: to see that its line is dead (40 s), its longest wait (60 s)."""


@pytest.mark.parametrize("cut_s", [20.0, 290.0, 310.0, 900.0])
@pytest.mark.parametrize("ratio", [0.5, 1.0])
def test_whoever_is_back_in_time_is_not_lost(cut_s: float, ratio: float) -> None:
    world = fleet(hosts=40, gpus=1, sample_seconds=300.0)
    names = world.settings.names()[: round(40 * ratio)]
    world.at(600).isolate(*names)
    world.at(600 + cut_s).rejoin(*names)
    world.expect(Notify, why="host lost").never()
    outcome = world.run(seconds=600 + cut_s + 2 * LIMITS.after_seconds)
    assert {host.state for host in outcome.hosts} == {Lifecycle.HEALTHY}
    assert outcome.image.fleet.incidents == ()


def test_a_partition_that_ends_by_and_by_blames_nobody() -> None:
    # The last sixth of the fleet is away for long after the others: fewer than open a partition, too many to be lost.
    world = fleet(hosts=60, gpus=1, sample_seconds=300.0)
    names = world.settings.names()
    world.at(600).isolate(*names)
    world.at(1200).rejoin(*names[10:])
    world.at(1200 + 2 * LIMITS.after_seconds).rejoin(*names[:10])
    world.expect(Notify, why="host lost").never()
    world.expect(Lifecycle.SUSPECT).never()
    world.run(seconds=HOUR)


def test_those_who_never_come_back_from_a_partition_are_lost() -> None:
    world = fleet(hosts=60, gpus=1, sample_seconds=300.0)
    names = world.settings.names()
    world.at(600).isolate(*names)
    world.at(1200).rejoin(*names[10:])
    patience = PATIENCE * LIMITS.after_seconds
    world.expect(Notify, host=names[0], why="host lost").between(1200 + LIMITS.after_seconds, 1300 + patience)
    outcome = world.run(seconds=HOUR)
    assert {host.name for host in outcome.hosts if host.state is Lifecycle.SUSPECT} == set(names[:10])
    assert outcome.image.fleet.incidents == ()  # those that were told do not keep it open


def test_a_network_that_comes_and_goes_does_not_hide_a_lost_host() -> None:
    world = fleet(hosts=40, gpus=1, sample_seconds=300.0, weather=Weather(notice_s=(0.0, 5.0)))
    names = world.settings.names()
    world.at(600).switch_off(names[0])
    cut_s, whole_s = 60.0, 150.0
    for number in range(40):
        at_s = 610 + number * (cut_s + whole_s)
        world.at(at_s).isolate(*names[1:])
        world.at(at_s + cut_s).rejoin(*names[1:])
    # Most agents are back for the length of `whole_s` less the slowest return, in each round.
    rounds = PATIENCE * LIMITS.after_seconds / (whole_s - SLOWEST_RETURN_S)
    world.expect(Notify, host=names[0], why="host lost").by(610 + (rounds + 1) * (cut_s + whole_s))
    world.expect(Quarantine).never()
    outcome = world.run(seconds=610 + 41 * (cut_s + whole_s), settled=False)
    told = {o.host for _, e in outcome.journal for o in e.orders if isinstance(o, Notify) and "host lost" in o.why}
    assert told == {names[0]}


def test_a_fleet_of_one_is_not_told_what_the_others_do() -> None:
    world = fleet(hosts=1)
    world.at(600).isolate("h01")
    world.expect(Notify, host="h01", why="no other agent is there").between(900, 1000)
    outcome = world.run(seconds=HOUR)
    silent = [e.why for _, e in outcome.journal if isinstance(e.event, AgentSilent)]
    assert silent
    assert not any("the others are there" in why for why in silent)


def test_a_host_that_is_switched_off_for_its_repair_is_not_reported_as_lost() -> None:
    world = fleet(hosts=8)
    world.at(600).quarantine("h03", "a fan is loud")
    world.at(700).switch_off("h03")
    world.expect(Notify, host="h03", why="host lost").never()
    outcome = world.run(seconds=HOUR, settled=False)
    assert outcome.state("h03").silent is not None  # and yet it is known


@pytest.mark.parametrize(
    ("away", "opens", "over"),
    [(10_000, True, False), (2000, True, False), (1999, False, False), (500, False, False), (499, False, True)],
)
def test_a_partition_ends_at_a_quarter_of_what_opens_it(away: int, opens: bool, over: bool) -> None:
    assert is_partition(Silence(), away=away, known=10_000) is opens
    assert is_over(Silence(), missing=away, known=10_000) is over


@pytest.mark.parametrize(("calm_away_s", "left_s"), [(0.0, 300.0), (600.0, 300.0), (700.0, 200.0), (901.0, 0.0)])
def test_patience_ends(calm_away_s: float, left_s: float) -> None:
    assert patience_s(Silence(after_seconds=300.0), calm_away_s=calm_away_s) == left_s
