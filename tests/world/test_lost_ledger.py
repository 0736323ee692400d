"""A controller that begins on an empty ledger, beside a scheduler that keeps hosts closed for the last one's orders."""

import pytest

from fleetd.core.invariants import EARLIER, FLEETD
from fleetd.model.fleet import IncidentKind
from fleetd.model.host import Lifecycle
from fleetd.model.order import Notify, Release, RunBurnin
from fleetd.sim.gpu import Trouble
from tests.world.fakes_world import fleet

HOUR = 3600.0


@pytest.mark.parametrize("policy", ["observe", "default", "strict"])
def test_nothing_that_the_lost_ledger_held_goes_back_to_its_users(policy: str) -> None:
    world = fleet(policy=policy, hosts=8)
    for number in range(1, 4):
        world.at(600.0 + number).quarantine(f"h0{number}", "smells burnt")
    world.at(2000).quarantine("h04", "looked at").release("h04", "fine")
    world.at(HOUR).do("the ledger is lost", lambda _: world.lose_ledger())
    world.expect(Release).never()
    outcome = world.run(seconds=3 * HOUR, settled=False)
    assert outcome.drained == {"h01", "h02", "h03"}
    for host in outcome.hosts:
        owners = [hold.owner for hold in host.holds]
        assert owners == ([EARLIER] if host.name in outcome.drained else [])
        if host.held:
            assert host.state is Lifecycle.QUARANTINED
            assert "smells burnt" in host.holds[0].reason
        else:
            assert host.state in {Lifecycle.HEALTHY, Lifecycle.PROBATION}
    assert [incident.kind for incident in outcome.image.fleet.incidents] == [IncidentKind.EARLIER]
    assert outcome.image.fleet.incidents[0].hosts_total == 3
    pages = [o for _, e in outcome.journal for o in e.orders if isinstance(o, Notify) and "Was a ledger lost" in o.why]
    assert len(pages) == 1


def test_a_person_gives_a_host_back_and_a_bad_one_is_found_again() -> None:
    world = fleet(hosts=8)
    world.at(600).plant("h02", 1, Trouble.LOST)
    world.at(900).quarantine("h03", "smells burnt")
    world.at(HOUR).do("the ledger is lost", lambda _: world.lose_ledger())
    world.at(1.5 * HOUR).release("h03", "was toast")  # not proven since it was adopted
    world.at(1.6 * HOUR).burnin("h03", "was toast")
    world.at(2 * HOUR).release("h03", "was toast")
    world.expect(Release, host="h03").times(1)
    world.expect(Release, host="h03").after(2 * HOUR)
    world.expect(Release, host="h02").never()
    outcome = world.run(seconds=3 * HOUR, settled=False)
    assert outcome.drained == {"h02"}
    assert EARLIER in {hold.owner for hold in outcome.state("h02").holds}
    assert {hold.owner for hold in outcome.state("h02").holds} <= {EARLIER, FLEETD}
    assert not outcome.state("h03").held


def test_agents_that_know_the_orders_of_the_last_ledger_run_those_of_the_new_one() -> None:
    world = fleet()
    for number in range(5):
        world.at(600.0 + 900.0 * number).reboot("h01")  # each time it must prove itself
    world.at(2 * HOUR).do("the ledger is lost", lambda _: world.lose_ledger())
    world.expect(RunBurnin).times(4)
    world.expect(Notify).never()
    outcome = world.run(seconds=3 * HOUR, settled=False)
    assert {host.state for host in outcome.hosts} == {Lifecycle.HEALTHY}
