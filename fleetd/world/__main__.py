"""`python -m fleetd.world --seed 7`: run one drawn world, or many; a failure prints the command that reproduces it."""

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from traceback import format_exception

import click

from fleetd.sim.loop import DeadlockError
from fleetd.world.swarm import run
from fleetd.world.world import WorldError

_SHOWN_EACH = 100


def failure(seed: int) -> str:
    """Run the world of a seed; returns what is wrong with it and how to see that again, "" when nothing is."""
    try:
        run(seed)
    except (WorldError, DeadlockError) as error:
        cause = error.__cause__
        trace = "" if cause is None else "\n" + "".join(format_exception(cause)).rstrip()
        return f"{error}{trace}\nreproduce: {sys.executable} -m fleetd.world --seed {seed}"
    return ""


@click.command(name="python -m fleetd.world")
@click.option("--seed", default=0, show_default=True, help="Of the first world.")
@click.option("--worlds", default=1, show_default=True, type=click.IntRange(min=1), help="How many, from that seed on.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Processes side by side.")
def command(seed: int, worlds: int, jobs: int) -> None:
    """Run drawn worlds. Exit code 1 when a check fails in one of them."""
    say = partial(click.echo, err=True)
    bad = 0
    with ProcessPoolExecutor(jobs) as pool:
        for number, wrong in enumerate(pool.map(failure, range(seed, seed + worlds)), 1):
            if wrong:
                bad += 1
                say(f"world {seed + number - 1}: {wrong}")
            if number % _SHOWN_EACH == 0:
                say(f"{number} worlds, {bad} bad")
    say(f"{worlds} worlds from seed {seed} on, {bad} bad")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    command()
