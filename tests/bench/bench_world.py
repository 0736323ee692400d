"""How fast simulated fleets run: `make bench-world`. Virtual hours against seconds of one core."""

import random
import resource
import time

import click

from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.model.finding import FaultClass, Severity
from fleetd.model.order import Quarantine
from fleetd.world.settings import Settings
from fleetd.world.world import World

HOUR = 3600.0


def quiet(hosts: int) -> World:
    """An hour in which nothing happens: 8 GPUs, sampled every 10 seconds."""
    return World(Settings(policy=load_policy(policy_path("default")), hosts=hosts))


def storm(hosts: int) -> World:
    """An hour in the middle of which a third of the fleet has the same fault within a minute."""
    settings = Settings(
        policy=load_policy(policy_path("default")), hosts=hosts, sample_seconds=60.0, start_seconds=300.0
    )
    world, rng = World(settings), random.Random(1)  # noqa: S311 - a simulation
    for host in rng.sample(settings.names(), hosts // 3):
        world.at(HOUR / 2 + rng.uniform(0.0, 60.0)).report(
            host, "nvidia.xid.119", gpu=0, severity=Severity.FATAL, fault_class=FaultClass.UNRESPONSIVE
        )
    return world


@click.command()
@click.option("--hosts", default=10_000, show_default=True, help="Of the storm.")
def main(hosts: int) -> None:
    """Run both and print what they cost. The checks of every world run too."""
    for name, world, size in (("quiet", quiet(128), 128), ("storm", storm(hosts), hosts)):
        began_s = time.process_time()
        outcome = world.run(seconds=HOUR, settled=False)
        spent_s = time.process_time() - began_s
        taken = sum(isinstance(carried.order, Quarantine) for carried in outcome.carried)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        click.echo(
            f"{name}: {size} hosts, 1 h, {spent_s:.1f} s of CPU, {peak:.0f} MiB; "
            f"{len(outcome.journal)} journal entries, "
            f"{taken} quarantines, {sum(len(e.withheld) for _, e in outcome.journal)} withheld, "
            f"{len(outcome.image.fleet.incidents)} incidents"
        )


if __name__ == "__main__":
    main()
