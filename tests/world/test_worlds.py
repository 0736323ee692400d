"""What a fleet lives through besides sick GPUs: silence, partitions, wrong clocks, moved parts, full disks, people."""

from dataclasses import replace

import pytest

from fleetd.core.limits import Budget, Budgets, Outliers
from fleetd.model.event import BurninRefused, FindingReceived, OutlierFound, Outvoted
from fleetd.model.finding import FaultClass, Severity
from fleetd.model.fleet import Area, IncidentKind
from fleetd.model.host import Lifecycle
from fleetd.model.order import Notify, Quarantine, Release, RunBurnin
from fleetd.sim.gpu import Cure, Trouble
from fleetd.sim.wire import Weather
from fleetd.world.settings import Settings
from fleetd.world.world import World
from tests.world.fakes_world import POLICIES, fleet

HOUR = 3600.0
SERVING = {Lifecycle.HEALTHY, Lifecycle.PROBATION}


def test_a_controller_that_loses_its_network_blames_no_host() -> None:
    world = fleet(hosts=8)
    world.at(600).isolate(*world.settings.names())
    world.at(2400).rejoin(*world.settings.names())
    world.expect(Lifecycle.SUSPECT).never()
    world.expect(Quarantine).never()
    outcome = world.run(seconds=2 * HOUR)
    assert {host.state for host in outcome.hosts} == {Lifecycle.HEALTHY}
    assert outcome.image.fleet.incidents == ()  # closed by itself
    opened = {i.kind for _, e in outcome.journal if e.fleet is not None for i in e.fleet.incidents}
    assert opened == {IncidentKind.PARTITION}


def test_agents_that_need_a_while_after_a_partition_are_not_lost() -> None:
    world = fleet(hosts=8)
    names = world.settings.names()
    world.at(600).isolate(*names)
    world.at(1150).rejoin(*names[1:])
    world.at(1400).rejoin(names[0])  # 800 s after it was cut off, 250 s after the partition's end
    world.expect(Notify, why="host lost").never()
    world.expect(Lifecycle.SUSPECT).never()
    world.run(seconds=2 * HOUR)


def test_a_host_that_is_lost_alone_is_told_and_is_again_what_it_was() -> None:
    world = fleet(hosts=8)
    world.at(600).isolate("h03")
    world.at(2400).rejoin("h03")
    world.expect(Notify, host="h03", why="host lost").between(900, 1000)
    world.expect(Lifecycle.SUSPECT, host="h03").between(900, 1000)
    world.expect(Quarantine).never()
    outcome = world.run(seconds=2 * HOUR)
    assert outcome.state("h03").state is Lifecycle.HEALTHY


@pytest.mark.parametrize("hours", [-1.0, 1.0])
@pytest.mark.parametrize("whose", ["h02", None], ids=["host", "controller"])
def test_a_clock_that_is_an_hour_off_stops_nothing(hours: float, whose: str | None) -> None:
    world = fleet()
    world.at(300).jump_clock(whose, hours * HOUR)
    world.at(600).plant("h02", 1, Trouble.WRONG)
    world.at(700).reboot("h02")
    world.at(1000).reboot("h03")
    world.expect(Quarantine, host="h02").between(700, 1500)
    outcome = world.run(seconds=3 * HOUR)
    assert outcome.state("h02").state is Lifecycle.QUARANTINED
    assert outcome.state("h03").state in SERVING


@pytest.mark.parametrize("hours", [-1.0, 1.0])
@pytest.mark.parametrize("whose", ["h02", None], ids=["host", "controller"])
def test_orders_are_understood_after_a_clock_was_set(hours: float, whose: str | None) -> None:
    world = fleet()
    world.at(300).jump_clock(whose, hours * HOUR)
    world.at(600).burnin("h02", "a look at it")
    outcome = world.run(seconds=HOUR)
    ends = [e for _, e in outcome.journal if isinstance(e.event, FindingReceived) and e.event.host == "h02"]
    assert len(ends) == 2  # to qualify, and the one that was ordered
    assert not any(isinstance(e.event, BurninRefused) for _, e in outcome.journal)


def test_what_is_known_of_a_gpu_goes_with_it() -> None:
    world = fleet(hosts=20)
    world.at(600).plant("h01", 1, Trouble.WRONG, cure=Cure.SWAP)
    world.at(600).reboot("h01")
    world.at(2 * HOUR).swap("h01", 1, other_host="h02", other_gpu=3)
    world.at(3 * HOUR).release("h01", "the part is another one")
    outcome = world.run(seconds=5 * HOUR)
    assert outcome.state("h01").state in SERVING
    bad = outcome.state("h02")
    assert {hold.gpu for hold in bad.holds} | {charge.hold.gpu for charge in bad.charges} == {"SIM-h01-01"}


def test_a_host_that_is_installed_anew_is_the_same_host() -> None:
    world = fleet()
    world.at(600).report("h02", "nvidia.xid.79", gpu=1, severity=Severity.FATAL, fault_class=FaultClass.UNRESPONSIVE)
    world.at(900).reinstall("h02")
    world.expect(Quarantine, host="h02").times(1)
    outcome = world.run(seconds=2 * HOUR)
    host = outcome.state("h02")
    assert (host.state, len(outcome.hosts)) == (Lifecycle.QUARANTINED, 4)
    assert host.proof is not None  # proven in the new boot, an operator may release it


def test_full_disks_lose_nothing() -> None:
    world = fleet()
    world.at(500).fill_disk("h02").fill_disk(None)
    world.at(600).report("h02", "nvidia.xid.79", gpu=1, severity=Severity.FATAL, fault_class=FaultClass.UNRESPONSIVE)
    world.at(900).free_disk("h02")
    world.at(1500).free_disk(None)
    world.expect(Quarantine, host="h02").between(1500, 1700)
    world.run(seconds=2 * HOUR)


def test_findings_of_a_long_outage_arrive_in_order_and_once() -> None:
    world = fleet(weather=Weather(delay_s=(0.0, 2.0), life_s=20.0, repeat_ratio=0.3))
    world.at(600).isolate("h02")
    for number in range(200):
        world.at(700.0 + number).report("h02", f"nvidia.xid.{number}", gpu=1, severity=Severity.INFO)
    world.at(HOUR).rejoin("h02")
    outcome = world.run(seconds=3 * HOUR)
    codes = [
        int(e.event.finding.code.rsplit(".", 1)[1])
        for _, e in outcome.journal
        if isinstance(e.event, FindingReceived) and hasattr(e.event.finding, "code")
    ]
    assert codes == list(range(200))


def test_while_the_kill_switch_is_on_nothing_is_taken_and_then_the_present_is_judged() -> None:
    world = fleet()
    world.at(300).stop_automation("a network change")
    world.at(600).plant("h02", 1, Trouble.MEMORY)
    world.at(700).plant("h03", 1, Trouble.MEMORY)
    world.at(1200).heal("h03").burnin("h03", "it was the cable")
    world.at(HOUR).resume_automation("the change is done")
    world.expect(Quarantine).between(HOUR, HOUR + 60)
    world.expect(Quarantine, host="h03").never()
    outcome = world.run(seconds=2 * HOUR)
    assert outcome.state("h02").state is Lifecycle.QUARANTINED
    assert outcome.state("h03").state in SERVING


def test_the_kill_switch_recalls_burnins_that_run_over_crashes_and_they_come_again() -> None:
    """Agents that the controller can reach stop at once; one that is cut off is told when it is back."""
    world = fleet()
    world.at(15).isolate("h02")  # its first burn-in takes a minute from about the fifth second on
    world.at(25).stop_automation("a network change")
    world.at(30).kill_controller()
    world.at(45).rejoin("h02")
    world.at(2 * HOUR).resume_automation("the change is done")
    outcome = world.run(seconds=3 * HOUR)
    ended = [
        (e.event.finding.host, e.event.finding.at_s)
        for _, e in outcome.journal
        if isinstance(e.event, FindingReceived) and "recalled" in e.event.finding.why
    ]
    assert {host for host, _ in ended} == set(world.settings.names())
    assert {host.state for host in outcome.hosts} == {Lifecycle.HEALTHY}
    assert all(host.attempts == 0 for host in outcome.hosts)
    pages = [o for _, e in outcome.journal for o in e.orders if isinstance(o, Notify)]
    assert pages == []


def test_a_hold_for_a_time_goes_by_itself_and_ours_does_not() -> None:
    world = fleet()
    world.at(600).quarantine("h01", "a look at it", for_s=HOUR)
    world.at(700).plant("h02", 1, Trouble.LOST)
    world.expect(Release, host="h01").between(600 + HOUR, 660 + HOUR)
    world.expect(Release, host="h02").never()
    outcome = world.run(seconds=2 * HOUR)
    assert outcome.state("h01").state in SERVING


def test_a_retired_host_is_left_alone() -> None:
    world = fleet()
    world.at(600).retire("h02", "sold")
    world.at(700).plant("h02", 1, Trouble.LOST)
    world.at(1200).reboot("h02")
    outcome = world.run(seconds=2 * HOUR)
    assert outcome.state("h02").state is Lifecycle.RETIRED
    assert outcome.drained == {"h02"}


def test_a_budget_that_tripped_is_rearmed_by_a_human_and_only_then() -> None:
    world = fleet(hosts=8)
    for number, host in enumerate(("h01", "h02")):
        world.at(600.0 + 1000 * number).plant(host, 1, Trouble.MEMORY)
    world.at(2 * HOUR).release("h01", "repaired elsewhere", override=True).heal("h01")
    world.at(3 * HOUR).rearm("looked at both")
    world.expect(Quarantine, host="h01").between(600, 660)
    world.expect(Quarantine, host="h02", withheld=True).between(1600, 1660)
    world.expect(Quarantine, host="h02").between(3 * HOUR, 3 * HOUR + 60)
    outcome = world.run(seconds=4 * HOUR)
    assert outcome.state("h02").state is Lifecycle.QUARANTINED


def test_with_a_budget_of_nothing_automation_takes_no_host_and_a_human_hears_of_each() -> None:
    nothing = Budget(max_ratio=0.0, at_least=0, max_in_window=9, window_seconds=HOUR)
    policy = replace(POLICIES["default"], budgets=Budgets(quarantines=nothing))
    world = World(Settings(policy=policy, hosts=6, gpus=2, sample_seconds=30.0))
    world.at(600).plant("h01", 1, Trouble.MEMORY)
    world.at(700).plant("h02", 0, Trouble.LOST)
    world.at(1000).quarantine("h03", "an operator may")
    world.expect(Quarantine, host="h01", withheld=True).between(600, 660)
    world.expect(Quarantine, host="h02", withheld=True).between(700, 760)
    world.expect(Quarantine, host="h01").never()
    world.expect(Quarantine, host="h02").never()
    world.expect(Quarantine, host="h03").times(1)
    world.expect(Notify).after(600)
    outcome = world.run(seconds=2 * HOUR)
    assert outcome.drained == {"h03"}
    assert {outcome.state(name).state for name in ("h01", "h02")} == {Lifecycle.SUSPECT}


@pytest.mark.parametrize("ratio", [-0.1, 0.1])
@pytest.mark.parametrize("whose", ["h02", None], ids=["host", "controller"])
def test_a_clock_that_drifts_stops_nothing(ratio: float, whose: str | None) -> None:
    world = fleet()
    world.at(300).drift_clock(whose, ratio)
    world.at(3 * HOUR).burnin("h02", "a look at it")  # by then it is 18 minutes off
    world.at(4 * HOUR).plant("h02", 1, Trouble.LOST)
    world.expect(Quarantine, host="h02").between(4 * HOUR, 4 * HOUR + 120)
    outcome = world.run(seconds=5 * HOUR)
    ends = [e for _, e in outcome.journal if isinstance(e.event, FindingReceived) and hasattr(e.event.finding, "level")]
    assert len([e for e in ends if e.event.host == "h02"]) >= 2  # to qualify, and the one that was ordered
    assert not any(isinstance(e.event, BurninRefused) for _, e in outcome.journal)


def test_a_rack_has_a_budget_of_its_own() -> None:
    by_rack = Budget(max_ratio=0.0, at_least=1, max_in_window=9, window_seconds=HOUR)
    ample = replace(POLICIES["default"].budgets.quarantines, at_least=8, max_in_window=9)
    policy = replace(POLICIES["default"], budgets=Budgets(quarantines=ample, quarantines_by={Area.RACK: by_rack}))
    world = World(Settings(policy=policy, hosts=8, gpus=2, rack_hosts=4, sample_seconds=30.0))
    for number, host in enumerate(("h01", "h02", "h05")):
        world.at(600.0 + 1000 * number).plant(host, 1, Trouble.MEMORY)
    world.expect(Quarantine, host="h01").times(1)
    world.expect(Quarantine, host="h02", withheld=True, why="").after(1600)
    world.expect(Quarantine, host="h02").never()
    world.expect(Quarantine, host="h05").times(1)
    world.run(seconds=2 * HOUR)


@pytest.mark.parametrize("trouble", [Trouble.SLOW, Trouble.HOT])
def test_a_gpu_unlike_its_siblings_is_found_without_a_threshold(trouble: Trouble) -> None:
    policy = replace(POLICIES["default"], outliers=Outliers())
    world = World(Settings(policy=policy, hosts=8, gpus=4, sample_seconds=30.0))
    world.at(1800).plant("h03", 2, trouble)
    world.expect(RunBurnin, host="h03").after(1800)
    outcome = world.run(seconds=2 * HOUR)
    found = [e.event for _, e in outcome.journal if isinstance(e.event, OutlierFound)]
    assert {(event.host, event.index) for event in found} == {("h03", 2)}
    assert outcome.state("h03").state is Lifecycle.SUSPECT  # slow is no reason to quarantine; a human is told


def test_two_machines_under_one_name_are_told_and_nobody_is_accused() -> None:
    world = fleet()
    world.at(600).double("h02")
    world.expect(Notify, host="h02", why="second machine").by(800)
    world.expect(Quarantine).never()
    outcome = world.run(seconds=2 * HOUR, settled=False)
    pages = [o for _, e in outcome.journal for o in e.orders if isinstance(o, Notify) and "second machine" in o.why]
    assert len(pages) <= 3  # one an hour, however often the other one comes again


def test_a_host_whose_gpus_are_all_wrong_alike_is_outvoted_by_the_fleet() -> None:
    world = fleet(hosts=6)
    world.at(0).compute_wrong("h02")
    world.expect(Quarantine).never()
    outcome = world.run(seconds=2 * HOUR)
    assert {e.event.host for _, e in outcome.journal if isinstance(e.event, Outvoted)} == {"h02"}
    assert {host.name for host in outcome.hosts if host.state not in SERVING} == {"h02"}
