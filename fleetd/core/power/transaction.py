"""The orders of one turn's writes, in their sequence: what goes down first, then what goes up; clocks with them.

A clock is locked with the first order, before any limit goes up, and unlocked with the last one, after the limits fell.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetd.core.power.govern import Decision, Limits, stages
from fleetd.model.ids import GpuId
from fleetd.model.power import PowerReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the guard is asked to write at once; within a GPU it locks first, and unlocks last."""

    limits: Mapping[str, Limits]
    clocks: Mapping[str, float | None]
    """Highest clock in hertz; None: unlocked."""

    def without(self, gpus: frozenset[str]) -> "Order":
        """The same for all other GPUs: one whose first write failed gets no second."""
        return Order(
            limits={gpu: limits for gpu, limits in self.limits.items() if gpu not in gpus},
            clocks={gpu: hertz for gpu, hertz in self.clocks.items() if gpu not in gpus},
        )

    @property
    def gpus(self) -> frozenset[str]:
        """Whom it concerns."""
        return frozenset(self.limits) | frozenset(self.clocks)


def orders(decisions: Mapping[GpuId, Decision], readings: Mapping[GpuId, PowerReading]) -> tuple[Order, ...]:
    """Order the writes of decisions; `readings` say what is in force. Empty: there is nothing to write.

    A GPU without a reading is only ever lowered, so its writes go first.
    """
    writes = {gpu: one.write for gpu, one in decisions.items() if one.write}
    before = {
        n: {k.knob: k.set_watts for k in readings[n].knobs if k.set_watts is not None} for n in writes if n in readings
    }
    steps: tuple[Mapping[str, Limits], ...] = stages(writes, before)
    locks: dict[str, float | None] = {
        gpu: one.clock[0] for gpu, one in decisions.items() if one.clock and one.clock[0] is not None
    }
    unlocks: dict[str, float | None] = {
        gpu: None for gpu, one in decisions.items() if one.clock and one.clock[0] is None
    }
    if not steps and (locks or unlocks):
        steps = ({},)
    last = len(steps) - 1
    return tuple(
        Order(limits=step, clocks={**(locks if at == 0 else {}), **(unlocks if at == last else {})})
        for at, step in enumerate(steps)
    )
