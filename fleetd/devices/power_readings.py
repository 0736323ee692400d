"""What a helper says of power limits, made sure of: a number that is none is absent."""

from collections.abc import Sequence
from functools import lru_cache
from math import inf, isfinite
from typing import Any

from fleetd.devices.packed import unpack
from fleetd.model.ids import GpuId
from fleetd.model.power import KnobReading, PowerReading
from fleetd.ports import DeviceError

_KNOBS_MAX = 4
_WORDS_MAX = 200
_SAMPLES_MAX = 4096
_LIMIT_MAX_WATTS = 1e6
"""As the power guard's own bound; one limit that is out of its mind would have it refuse those of all GPUs."""


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
            knobs=tuple(_knob(*knob) for knob in reply["knobs"][:_KNOBS_MAX]),
            enforced_watts=_limit(reply["enforced_watts"]),
            power_watts=_number(reply["power_watts"]),
            temperature_celsius=_number(reply["temperature_celsius"]),
            brake=bool(reply["brake"]),
            locked=str(reply["locked"])[:_WORDS_MAX],
            energy_joules=_number(reply["energy_joules"]),
            clock_hertz=_number(reply["clock_hertz"]),
            mark=_number(reply["mark"]),
            samples=_samples(reply["samples"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DeviceError(f"the helper sent power limits that are none: {error}") from error


@lru_cache(maxsize=256, typed=True)  # a limit mostly stands as it was in the last turn
def _knob(name: object, now: object, low: object, high: object, default: object) -> KnobReading:
    """Raises TypeError when it is none."""
    return KnobReading(
        knob=str(name),
        set_watts=_limit(now),
        low_watts=_number(low),
        high_watts=_number(high),
        default_watts=_number(default),
    )


def _samples(value: Any) -> tuple[tuple[float, float], ...]:
    """Pairs of finite numbers; a power that cannot be is left out. Raises TypeError, ValueError."""
    if value == "":
        return ()
    times_s, watts = (numbers[-_SAMPLES_MAX:] for numbers in unpack(value))
    pairs = zip(times_s, watts, strict=True)
    if all(map(isfinite, times_s)) and all(map(isfinite, watts)) and min(watts) >= 0.0:
        return tuple(pairs)  # as always, but for a library that is out of its mind
    return tuple(one for one in pairs if isfinite(one[0]) and 0.0 <= one[1] < inf)


def _number(value: object) -> float | None:
    """A number that can be one; None where there is none. Raises TypeError on anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is no number")
    return float(value) if isfinite(value) and value >= 0 else None


def _limit(value: object) -> float | None:
    """A limit that can be in force; None where there is none: no part runs at 0 W. Raises TypeError as `_number`."""
    watts = _number(value)
    return watts if watts is not None and 0.0 < watts < _LIMIT_MAX_WATTS else None
