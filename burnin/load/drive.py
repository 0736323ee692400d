"""Runs a plan on a machine and tells JSON lines: settings, points, energy, settings again."""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TextIO

from burnin.load.plan import Low, Plan, Point
from burnin.stop import Stop

BASE_EVERY = 8
"""Points between two back-to-back measurements: the machine drifts with its temperature."""
SOAK = Point(duty=1.0, kernel_s=0.01)
"""Back to back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measurement of one point. None: this machine cannot say."""

    rate: float
    """Floating-point operations a second inside the bursts."""
    duty: float
    """Share of the time that was spent in bursts, as measured."""
    bursts: int
    power_watts: float | None = None
    """Mean over the measurement."""
    power_max_watts: float | None = None
    """The highest sample."""
    work: str = ""
    """What a burst is made of; only bursts of the same are compared."""
    clock_hertz: float | None = None
    temperature_celsius: float | None = None
    limited: str = ""
    """Why the point says nothing about power: temperature, a brake; empty when it does."""


class Machine(Protocol):
    """Something to put a load on."""

    def settings(self) -> dict[str, Any]:
        """Every limit, clock and mode that could be set, as it is now."""

    def unable(self, low: Low) -> str:
        """Why this low phase cannot be made here; empty when it can."""

    def work(self, point: Point) -> str:
        """What the bursts of a point are made of."""

    def measure(self, point: Point, seconds: float) -> Measured:
        """Load for about so long and read."""

    def energy(self, seconds: float) -> dict[str, float] | None:
        """Counter and integrated samples over a load, joules; None where there is no counter."""


def drive(plan: Plan, machine: Machine, *, out: TextIO, stop: Stop) -> bool:
    """Run the plan, telling each result at once. Returns whether it was finished (and not stopped)."""
    tell(out, event="settings", when="before", settings=machine.settings())
    usable = []
    for index, point in enumerate(plan.points):
        why = machine.unable(point.low)
        if why:
            tell(out, event="skipped", point=index, why=why)
        else:
            usable.append(index)
    if plan.soak_s:
        for _ in range(max(1, round(plan.soak_s / plan.seconds))):
            machine.measure(SOAK, plan.seconds)
            if stop.asked:
                return False
    bases = {machine.work(plan.points[index]): plan.points[index].kernel_s for index in usable}
    order = tuple(_order(plan, usable, tuple(bases.values())))
    tell(out, event="plan", measurements=len(order))
    for repeat, place, kernel_s in order:
        if stop.asked:
            return False
        point = Point(duty=1.0, kernel_s=kernel_s) if place is None else plan.points[place]
        measured = machine.measure(point, plan.seconds)
        limited = measured.limited
        celsius = measured.temperature_celsius
        if not limited and celsius is not None and celsius > plan.temperature_max_celsius:
            limited = f"{celsius:.0f} °C is above {plan.temperature_max_celsius:.0f} °C"
        tell(out, event="measured", repeat=repeat, point=place, **(asdict(measured) | {"limited": limited}))
    if plan.energy_s:
        tell(out, event="energy", energy=machine.energy(plan.energy_s))
    tell(out, event="settings", when="after", settings=machine.settings())
    return True


def _order(plan: Plan, usable: list[int], bases: tuple[float, ...]) -> Iterator[tuple[int, int | None, float]]:
    """(repeat, point or None for back to back, length of its bursts), each repeat in an order of its own.

    Back to back is measured first, after every eight points, and last, once with each kind of work.
    """
    rng = random.Random(plan.seed)  # noqa: S311 - an order, no secret
    for repeat in range(plan.repeats):
        shuffled = rng.sample(usable, len(usable))
        for place, index in enumerate(shuffled):
            if place % BASE_EVERY == 0:
                yield from ((repeat, None, kernel_s) for kernel_s in bases)
            yield repeat, index, plan.points[index].kernel_s
        yield from ((repeat, None, kernel_s) for kernel_s in bases)


def tell(out: TextIO, **line: Any) -> None:
    """Write one JSON line at once."""
    out.write(json.dumps(line) + "\n")
    out.flush()
