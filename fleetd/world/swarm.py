"""The swarm: worlds drawn from a seed. Fleet, policy, weather and faults are arbitrary; what must hold is not."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.core.limits import Budget, Outliers, Returns, Share
from fleetd.core.policy import Policy
from fleetd.model.finding import FaultClass, Scope, Severity
from fleetd.model.fleet import Area
from fleetd.sim.gpu import Cure, Trouble
from fleetd.sim.wire import Weather
from fleetd.world.outcome import Outcome
from fleetd.world.settings import Settings
from fleetd.world.world import World

TROUBLED_SECONDS = 4 * 3600.0
"""Virtual time in which faults are planted."""
CALM_SECONDS = 10 * 3600.0
"""Virtual time after it, in which everything must become well: repairs and a tripped budget take their time."""

_NO_BUDGET_RATIO = 0.1
"""Of the worlds, whose policy lets automation take no host at all."""

POLICIES = ("default", "strict", "observe")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dice:
    """What the drawers of one world share."""

    rng: random.Random
    world: World
    names: tuple[str, ...] = field(default=())

    def host(self) -> str:
        """Draw a host."""
        return self.rng.choice(self.names)

    def gpu(self) -> int:
        """Draw an index of a GPU."""
        return self.rng.randrange(self.world.settings.gpus)

    def later(self, at_s: float, most_s: float = 3600.0) -> float:
        """Draw a time after another one, before the calm."""
        return min(at_s + self.rng.uniform(1.0, most_s), TROUBLED_SECONDS)


def _trouble(dice: _Dice, at_s: float) -> None:
    cure = dice.rng.choice(list(Cure))
    dice.world.at(at_s).plant(dice.host(), dice.gpu(), dice.rng.choice(list(Trouble)), cure=cure)


def _report(dice: _Dice, at_s: float) -> None:
    code = dice.rng.choice(["nvidia.xid.13", "nvidia.xid.31", "nvidia.xid.63", "nvidia.xid.79", "nvidia.xid.999"])
    dice.world.at(at_s).report(
        dice.host(),
        code,
        gpu=dice.rng.choice([None, dice.gpu()]),
        fault_class=dice.rng.choice(list(FaultClass)),
        severity=dice.rng.choice(list(Severity)),
        scope=dice.rng.choice(list(Scope)),
    )


def _storm(dice: _Dice, at_s: float) -> None:
    fault_class, severity = dice.rng.choice(list(FaultClass)), dice.rng.choice([Severity.ERROR, Severity.FATAL])
    for host in dice.rng.sample(dice.names, dice.rng.randint(2, len(dice.names))):
        moment = dice.world.at(at_s + dice.rng.uniform(0.0, 60.0))
        moment.report(host, "nvidia.xid.119", gpu=dice.gpu(), fault_class=fault_class, severity=severity)


def _reboot(dice: _Dice, at_s: float) -> None:
    dice.world.at(at_s).reboot(dice.host())


def _outage(dice: _Dice, at_s: float) -> None:
    host = dice.host()
    dice.world.at(at_s).switch_off(host)
    dice.world.at(dice.later(at_s)).switch_on(host)


def _kill_agent(dice: _Dice, at_s: float) -> None:
    dice.world.at(at_s).kill_agent(dice.host())


def _kill_controller(dice: _Dice, at_s: float) -> None:
    dice.world.at(at_s).kill_controller()


def _partition(dice: _Dice, at_s: float) -> None:
    hosts = dice.rng.sample(dice.names, dice.rng.randint(1, len(dice.names)))
    dice.world.at(at_s).isolate(*hosts)
    dice.world.at(dice.later(at_s)).rejoin(*hosts)


def _clock(dice: _Dice, at_s: float) -> None:
    whose, by_s = dice.rng.choice([None, dice.host(), dice.host()]), dice.rng.uniform(-3600.0, 3600.0)
    dice.world.at(at_s).jump_clock(whose, by_s)
    if dice.rng.random() < 0.5:  # noqa: PLR2004 - a coin
        dice.world.at(dice.later(at_s)).jump_clock(whose, -by_s)


def _disk(dice: _Dice, at_s: float) -> None:
    whose = dice.rng.choice([None, dice.host()])
    dice.world.at(at_s).fill_disk(whose)
    dice.world.at(dice.later(at_s)).free_disk(whose)


def _driver(dice: _Dice, at_s: float) -> None:
    host = dice.host()
    dice.world.at(at_s).hang_driver(host)
    dice.world.at(dice.later(at_s)).reboot(host)


def _alike(dice: _Dice, at_s: float) -> None:
    host = dice.host()
    dice.world.at(at_s).compute_wrong(host)
    dice.world.at(dice.later(at_s)).reboot(host)  # nobody knows before the next burn-in


def _swap(dice: _Dice, at_s: float) -> None:
    dice.world.at(at_s).swap(dice.host(), dice.gpu(), other_host=dice.host(), other_gpu=dice.gpu())


def _reinstall(dice: _Dice, at_s: float) -> None:
    dice.world.at(at_s).reinstall(dice.host())


def _operator(dice: _Dice, at_s: float) -> None:
    host, override = dice.host(), dice.rng.random() < 0.5  # noqa: PLR2004 - a coin
    dice.world.at(at_s).quarantine(host, "a look at it")
    dice.world.at(dice.later(at_s)).release(host, "looked at it", override=override)
    dice.world.at(TROUBLED_SECONDS + 60.0).release(host, "the end of it", override=True)


def _holds(dice: _Dice, at_s: float) -> None:
    """Several operators hold a host; one hold goes by itself, each of the others when its owner says so."""
    host = dice.host()
    dice.world.at(at_s).quarantine(host, "for a time", for_s=dice.rng.uniform(60.0, 3600.0), who="adam")
    for who in ("lilith", "cain"):
        dice.world.at(dice.later(at_s)).quarantine(host, f"{who} looks at it", who=who)
    for who in ("lilith", "cain"):
        dice.world.at(TROUBLED_SECONDS).release(host, "looked at it", who=who)
    dice.world.at(TROUBLED_SECONDS + 60.0).release(host, "the end of it", override=True)


def _switch(dice: _Dice, at_s: float) -> None:
    """The kill switch is thrown, and taken back before the calm."""
    dice.world.at(at_s).stop_automation("a network change", for_s=dice.later(at_s) - at_s)


def _drift(dice: _Dice, at_s: float) -> None:
    """A clock gains or loses until it is put right (a tenth is far more than a real one does)."""
    whose = dice.rng.choice([None, dice.host(), dice.host()])
    dice.world.at(at_s).drift_clock(whose, dice.rng.choice([-0.1, -0.01, 0.001, 0.01, 0.1]))
    dice.world.at(dice.later(at_s)).drift_clock(whose, 0.0)


def _double(dice: _Dice, at_s: float) -> None:
    """A second machine uses the name of a host for a time."""
    host = dice.host()
    dice.world.at(at_s).double(host)
    dice.world.at(dice.later(at_s)).single(host)


def _lose_state(dice: _Dice, at_s: float) -> None:
    """The agent's files are deleted: everything in the kernel log of this boot is told again."""
    dice.world.at(at_s).lose_state(dice.host())


DRAWERS: tuple[Callable[[_Dice, float], None], ...] = (
    *(_trouble, _trouble, _report, _report, _storm, _reboot, _outage, _kill_agent, _kill_controller),
    *(_partition, _clock, _disk, _driver, _alike, _swap, _reinstall, _operator),
    *(_holds, _switch, _drift, _double, _lose_state),
)
"""What may happen; those that stand twice happen twice as often."""


def _policy(rng: random.Random) -> Policy:
    """A shipped policy, with budgets by rack, returns, a probation and a look at outliers of its own."""
    policy = load_policy(policy_path(rng.choice(POLICIES)))
    by_rack = Budget(max_ratio=0.5, at_least=rng.choice([0, 1]), max_in_window=2, window_seconds=3600.0)
    nothing = rng.random() < _NO_BUDGET_RATIO
    budgets = replace(
        policy.budgets,
        quarantines=replace(
            policy.budgets.quarantines,
            at_least=0 if nothing else rng.choice([0, 1, 4]),
            max_ratio=0.0 if nothing else policy.budgets.quarantines.max_ratio,
        ),
        quarantines_by=rng.choice([policy.budgets.quarantines_by, {Area.RACK: by_rack}]),
        burnins=rng.choice([None, Share(max_ratio=0.2, at_least=1)]),
    )
    return replace(
        policy,
        budgets=budgets,
        returns=rng.choice(list(Returns)),
        probation_seconds=rng.choice([0.0, 1800.0]),
        requalify_after_reboot=rng.choice([False, True]),
        outliers=rng.choice([None, Outliers(siblings_at_least=6, in_a_row=3)]),
    )


def draw(seed: int) -> World:
    """A world from a seed: it need only be run."""
    rng = random.Random(f"swarm/{seed}")  # noqa: S311 - a simulation
    settings = Settings(
        policy=_policy(rng),
        hosts=rng.randint(2, 12),
        gpus=rng.randint(1, 4),
        seed=seed,
        sample_seconds=rng.choice([60.0, 300.0]),
        weather=Weather(
            delay_s=(0.0, rng.choice([0.0, 0.01, 5.0])),
            life_s=rng.choice([None, None, 30.0, 600.0]),
            repeat_ratio=rng.choice([0.0, 0.2]),
            notice_s=(0.0, rng.choice([0.0, 60.0])),
        ),
        actuator_refuse_ratio=rng.choice([0.0, 0.3]),
        rack_hosts=rng.choice([None, 2, 4]),
    )
    world = World(settings, crew=True)
    dice = _Dice(rng=rng, world=world, names=settings.names())
    for _ in range(rng.randint(1, 16)):
        rng.choice(DRAWERS)(dice, rng.uniform(0.0, TROUBLED_SECONDS))
    _calm(dice)
    return world


def _calm(dice: _Dice) -> None:
    """End whatever goes on: after this only repairs are due."""
    moment = dice.world.at(TROUBLED_SECONDS)
    moment.free_disk(None).rejoin(*dice.names)
    for host in dice.names:
        moment.free_disk(host).heal(host)


def run(seed: int) -> Outcome:
    """Draw a world and run it. Raises WorldError."""
    return draw(seed).run(seconds=TROUBLED_SECONDS + CALM_SECONDS)
