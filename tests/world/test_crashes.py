"""Every place at which a process may be cut is cut once: whatever was going on, the story ends the same."""

import pytest

from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.model.finding import FaultClass, Severity
from fleetd.model.host import Lifecycle
from fleetd.model.order import Quarantine
from fleetd.sim.gpu import Trouble
from fleetd.sim.life import Fuse
from fleetd.sim.wire import Weather
from fleetd.world.outcome import Outcome
from fleetd.world.settings import Settings
from fleetd.world.world import World

SECONDS = 1800.0
POLICY = load_policy(policy_path("default"))
WEATHER = Weather(notice_s=(0.0, 2.0))
ENDS = {"h01": Lifecycle.HEALTHY, "h02": Lifecycle.QUARANTINED, "h03": Lifecycle.HEALTHY}


def play(fuse: Fuse) -> Outcome:
    """Two good hosts and a bad one; an operator holds a good one for a while, another needs a second look."""
    world = World(Settings(policy=POLICY, hosts=3, gpus=2, weather=WEATHER, sample_seconds=30.0), fuse=fuse)
    world.at(0).plant("h02", 1, Trouble.WRONG)
    world.at(300).quarantine("h01", "smells burnt")
    world.at(500).report("h03", "nvidia.xid.74", gpu=0, fault_class=FaultClass.LINK, severity=Severity.ERROR)
    world.at(800).release("h01", "was toast")
    world.expect(Quarantine, host="h02", why="chip-persistent").times(1)
    world.expect(Quarantine, host="h01", why="smells burnt").times(1)
    world.expect(Quarantine, host="h03").never()
    outcome = world.run(seconds=SECONDS)
    assert {host.name: host.state for host in outcome.hosts} == ENDS
    return outcome


UNCUT = Fuse()
play(UNCUT)
PLACES = UNCUT.passed


def test_the_boundaries_of_both_sides_are_enumerated() -> None:
    kinds = {place.split(" h0")[0].split(": ")[1].rsplit(" /", 1)[0] for place in PLACES}
    print(len(PLACES), sorted(kinds))


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("part", range(8))
def test_a_cut_anywhere_changes_nothing_that_counts(part: int, power: bool) -> None:
    for cut_at in range(part, len(PLACES), 8):
        try:
            play(Fuse(cut_at, power=power))
        except BaseException as error:
            raise AssertionError(f"cut at {cut_at} ({PLACES[cut_at]})") from error
