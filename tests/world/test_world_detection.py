"""A simulated fleet whose agents judge what they read, as real ones do."""

from fleetd.model.event import FindingReceived
from fleetd.model.finding import DeviceFault
from fleetd.sim.gpu import Trouble
from tests.world.fakes_world import fleet

HOUR = 3600.0


def test_a_power_brake_that_only_readings_show_is_found_and_healthy_gpus_are_left_alone() -> None:
    world = fleet(hosts=3, gpus=4, detect=True)
    world.at(600).plant("h02", 1, Trouble.POWER_BRAKE)
    outcome = world.run(seconds=HOUR / 2, settled=False)
    told = {
        (entry.event.finding.host, entry.event.finding.index, entry.event.finding.code)
        for _, entry in outcome.journal
        if isinstance(entry.event, FindingReceived) and isinstance(entry.event.finding, DeviceFault)
    }
    assert ("h02", 1, "telemetry.throttle.power_brake") in told
    assert {(host, index) for host, index, _ in told} == {("h02", 1)}, told


def test_without_detection_nobody_sees_it() -> None:
    world = fleet(hosts=3, gpus=4)
    world.at(600).plant("h02", 1, Trouble.POWER_BRAKE)
    outcome = world.run(seconds=HOUR / 2, settled=False)
    assert not any(
        isinstance(entry.event, FindingReceived) and isinstance(entry.event.finding, DeviceFault)
        for _, entry in outcome.journal
    )
