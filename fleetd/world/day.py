"""A day of a fleet, drawn from a seed: what goes wrong in a real one, at about ten times the rate."""

import random

from fleetd.core.policy import Policy
from fleetd.model.finding import FaultClass, Severity
from fleetd.sim.gpu import Cure, Trouble
from fleetd.sim.wire import Weather
from fleetd.world.settings import Settings
from fleetd.world.world import World

_TROUBLES = (
    (Trouble.LOST, Cure.REBOOT),
    (Trouble.LOST, Cure.SWAP),
    (Trouble.HUNG, Cure.RESET),
    (Trouble.MEMORY, Cure.SWAP),
    (Trouble.SOMETIMES_WRONG, Cure.SWAP),
    (Trouble.WRONG, Cure.SWAP),
    (Trouble.SLOW, Cure.SWAP),
    (Trouble.HOT, Cure.SWAP),
)
_SAMPLE_SECONDS = 60.0
_TROUBLE_PER_HOST_DAY = 0.15
_REBOOTS_PER_HOST_DAY = 0.1
_APP_FAULTS_PER_HOST_DAY = 0.2
_STORM_RATIO = 0.3
_DAY_SECONDS = 86400.0


def lay_out(*, hosts: int, hours: float, seed: int, policy: Policy, gpus: int = 8) -> World:
    """A world whose timetable is a day (or as many hours) of a fleet.

    Besides single GPUs that fail, in the middle of it: a driver roll-out makes one fault appear on a third of the
    fleet at once, the controller loses its network, dies and comes back.

    Args:
        hosts: how many.
        hours: virtual length.
        seed: of everything.
        policy: the site's.
        gpus: of each host.
    """
    seconds = hours * 3600.0
    settings = Settings(
        policy=policy,
        hosts=hosts,
        gpus=gpus,
        seed=seed,
        sample_seconds=_SAMPLE_SECONDS,
        weather=Weather(life_s=6 * 3600.0),
        actuator_refuse_ratio=0.05,
        start_seconds=min(300.0, float(hosts)),
    )
    rng = random.Random(f"day/{seed}")  # noqa: S311 - a simulation
    world = World(settings, crew=True)
    names = settings.names()

    def times(per_host_day: float) -> list[float]:
        expected = per_host_day * hosts * seconds / _DAY_SECONDS
        return [rng.uniform(0.05, 0.9) * seconds for _ in range(max(1, round(expected)))]

    for number, at_s in enumerate(times(_TROUBLE_PER_HOST_DAY)):
        trouble, cure = _TROUBLES[number % len(_TROUBLES)]
        host = rng.choice(names)
        world.at(at_s).plant(host, rng.randrange(gpus), trouble, cure=cure)
        if trouble in (Trouble.SOMETIMES_WRONG, Trouble.WRONG):
            world.at(at_s + rng.uniform(60.0, 1800.0)).reboot(host)  # nobody knows before the next burn-in
    for at_s in times(_REBOOTS_PER_HOST_DAY):
        world.at(at_s).reboot(rng.choice(names))
    for at_s in times(_APP_FAULTS_PER_HOST_DAY):
        moment = world.at(at_s)
        moment.report(rng.choice(names), "nvidia.xid.31", gpu=rng.randrange(gpus), severity=Severity.WARNING)
    for host in rng.sample(names, round(_STORM_RATIO * hosts)):
        moment = world.at(0.4 * seconds + rng.uniform(0.0, 120.0))
        moment.report(host, "nvidia.xid.119", gpu=0, fault_class=FaultClass.UNRESPONSIVE, severity=Severity.FATAL)
    world.at(0.6 * seconds).isolate(*names)
    world.at(0.6 * seconds + 900.0).rejoin(*names)
    world.at(0.7 * seconds).kill_controller()
    maintained = rng.choice(names)
    world.at(0.2 * seconds).quarantine(maintained, "firmware update", who="maintenance")
    world.at(0.3 * seconds).release(maintained, "firmware is updated", who="maintenance")
    return world
