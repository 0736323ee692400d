"""The clock that a power limit allows. Pure.

After the formula in `burnin.parts.part.Power`: what is drawn rises with the clock, so the highest clock that keeps the
limit is found by bisection.
"""

from collections.abc import Callable

from burnin.parts.part import CLOCK_REFERENCE_HERTZ, Power

CLOCK_MIN_HERTZ = 3e8
"""Below this nothing is looked for; the slowest clock of the parts known is 345 MHz."""
HALVINGS = 40
"""Of the search for a clock: far below a hertz."""


def drawn(power: Power, *, clock_hertz: float, dtype_watts: float, busy: float, memory: float) -> float:
    """Watts.

    Args:
        power: the part's constants.
        clock_hertz: of the units.
        dtype_watts: of matrix units that are always busy, data included, at the reference clock.
        busy: share of the time in which the matrix units are.
        memory: share of the device memory's bandwidth in use.
    """
    voltage = 1.0 + power.voltage_per_gigahertz * (clock_hertz - CLOCK_REFERENCE_HERTZ) / 1e9
    scale = clock_hertz / CLOCK_REFERENCE_HERTZ * voltage**2
    return power.base_watts + (power.clock_watts + dtype_watts * busy) * scale + power.memory_watts * memory


def allowed(watts: Callable[[float], float], limit_watts: float, *, highest_hertz: float) -> float:
    """Highest clock at which no more than the limit is drawn; the lowest clock there is, if that draws more.

    Args:
        watts: clock → watts, never falling.
        limit_watts: the power limit.
        highest_hertz: that the part reaches when power does not hold it back.
    """
    if watts(highest_hertz) <= limit_watts:
        return highest_hertz
    low, high = CLOCK_MIN_HERTZ, highest_hertz
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if watts(middle) <= limit_watts else (low, middle)
    return low
