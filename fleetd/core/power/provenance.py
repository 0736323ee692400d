"""Whose doing a limit is: the difference between what was written and what is read, told apart by what else moved.

NVML: "enforced" is the lowest of all limiters, also of those set out of band, while the management limit is what was
set through the driver (nvml.h); the energy counter counts since the driver was loaded, so one that went back says that
the driver is another one. AMD SMI tells the same by the cap, the power limit and the energy accumulator.
"""

from collections.abc import Mapping

from fleetd.model.power import Drift, PowerReading, Writer

TOLERANCE_WATTS = 0.6
"""Some firmware takes whole watts only."""


def same(one: float, other: float) -> bool:
    """Whether two limits are the same to a driver."""
    return abs(one - other) <= TOLERANCE_WATTS


def drift_of(
    targets: Mapping[str, float],
    falls: Mapping[str, float],
    reading: PowerReading,
    *,
    energy_joules: float | None,
    just_written: bool = False,
) -> Drift | None:
    """Say who moved a limit away from what was written; None: nobody.

    Args:
        targets: what is meant to be in force, by knob.
        falls: where the guard would have gone from there.
        reading: what the driver tells, with its energy counter if a reload is to be told apart.
        energy_joules: the newest reading of the counter before; None: none.
        just_written: the targets were written a moment ago: a difference is the write's own failure.
    """
    seen = {knob.knob: knob.set_watts for knob in reading.knobs if knob.set_watts is not None}
    moved = [knob for knob in targets if knob in seen and not same(seen[knob], targets[knob])]
    if moved:
        knob = max(moved, key=lambda name: (seen[name] - targets[name], name))  # a raise is the worse news
        return Drift(
            writer=_who(targets, falls, seen, reading, energy_joules=energy_joules, just_written=just_written),
            knob=knob,
            from_watts=targets[knob],
            to_watts=seen[knob],
        )
    lowest = min((targets[knob] for knob in targets if knob in seen), default=None)
    enforced = reading.enforced_watts
    if lowest is None or enforced is None or enforced >= lowest - TOLERANCE_WATTS:
        return None
    return Drift(writer=Writer.OUT_OF_BAND, knob="", from_watts=lowest, to_watts=enforced)


def _who(
    targets: Mapping[str, float],
    falls: Mapping[str, float],
    seen: Mapping[str, float],
    reading: PowerReading,
    *,
    energy_joules: float | None,
    just_written: bool,
) -> Writer:
    if energy_joules is not None and reading.energy_joules is not None and reading.energy_joules < energy_joules:
        return Writer.DRIVER_RELOAD
    if all(same(seen[knob], falls.get(knob, targets[knob])) for knob in targets if knob in seen):
        return Writer.GUARD
    return Writer.NOT_TAKEN if just_written else Writer.FOREIGN
