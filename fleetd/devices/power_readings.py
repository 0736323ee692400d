"""What a helper says of power limits, made sure of: a number that is none is absent."""

import math
from collections.abc import Sequence
from typing import Any

from fleetd.model.ids import GpuId
from fleetd.model.power import KnobReading, PowerReading
from fleetd.ports import DeviceError

_KNOBS_MAX = 4
_WORDS_MAX = 200


def power_readings(gpus: Sequence[GpuId], at_s: float, reply: Any) -> list[PowerReading]:
    """Make readings of a helper's reply, of those that answered. Raises DeviceError when it is none."""
    if not isinstance(reply, dict):
        raise DeviceError("the helper sent power limits that are none")
    return [_reading(gpu, at_s, reply[gpu]) for gpu in gpus if gpu in reply]


def _reading(gpu: GpuId, at_s: float, reply: Any) -> PowerReading:
    try:
        return PowerReading(
            gpu=gpu,
            at_s=at_s,
            knobs=tuple(
                KnobReading(knob=str(name), set_watts=_number(now), low_watts=_number(low), high_watts=_number(high))
                for name, now, low, high in reply["knobs"][:_KNOBS_MAX]
            ),
            enforced_watts=_number(reply["enforced_watts"]),
            power_watts=_number(reply["power_watts"]),
            temperature_celsius=_number(reply["temperature_celsius"]),
            brake=bool(reply["brake"]),
            locked=str(reply["locked"])[:_WORDS_MAX],
            energy_joules=_number(reply["energy_joules"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DeviceError(f"the helper sent power limits that are none: {error}") from error


def _number(value: object) -> float | None:
    """A number that can be one; None where there is none. Raises TypeError on anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is no number")
    return float(value) if math.isfinite(value) and value >= 0 else None
