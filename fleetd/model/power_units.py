"""Vendors' power units → watts, as one table: a milliwatt taken for a watt is a thousandfold power limit."""

import math
from enum import StrEnum


class PowerUnit(StrEnum):
    """Unit of a number from or for a vendor's interface."""

    MILLIWATT = "mW"
    """NVML: usage, limits."""
    MICROWATT = "uW"
    """AMD SMI: setting a power cap."""
    WATT = "W"
    """AMD SMI: socket power; all of fleetd."""
    MILLIWATT_PER_SECOND = "mW/s"
    """NVML: reading the ramp rates of power smoothing."""
    WATT_PER_SECOND = "W/s"
    """NVML: writing them."""
    NODE_TOTAL_WATT = "W/node"
    """Some vendor policies: all GPUs of a host together."""


_PER_BASE_UNIT = {
    PowerUnit.MILLIWATT: 1_000,
    PowerUnit.MICROWATT: 1_000_000,
    PowerUnit.WATT: 1,
    PowerUnit.MILLIWATT_PER_SECOND: 1_000,
    PowerUnit.WATT_PER_SECOND: 1,
    PowerUnit.NODE_TOTAL_WATT: 1,
}

NO_VALUE = frozenset({2**32 - 1, 2**64 - 1})
"""What vendors write where there is no value."""
NO_VALUE_WATT = 2**16 - 1
"""The same in AMD's 16-bit watts; 65 535 mW on the other hand is a power like any other."""


def to_base(value: float, unit: PowerUnit, *, gpus: int = 1) -> float | None:
    """Convert a vendor's number to watts (watts per second) of one GPU; None where the vendor says that there is none.

    Args:
        value: The vendor's number.
        unit: Its unit.
        gpus: GPUs that a node total is shared by.

    Raises:
        ValueError: The number is negative or not finite, or there is no GPU.
    """
    if value in NO_VALUE or (unit is PowerUnit.WATT and value == NO_VALUE_WATT):
        return None
    return _checked(value, unit, gpus) / _PER_BASE_UNIT[unit] / _share(unit, gpus)


def from_base(value: float, unit: PowerUnit, *, gpus: int = 1) -> int:
    """Convert watts (watts per second) of one GPU to a vendor's whole number, rounded down: never above what was meant.

    Raises:
        ValueError: As in `to_base`.
    """
    exact = _checked(value, unit, gpus) * _PER_BASE_UNIT[unit] * _share(unit, gpus)
    # 0.29 W is 289 999.999… µW in binary: what is nearer to a whole number than a double can tell is that number.
    nearest = round(exact)
    return nearest if math.isclose(exact, nearest, rel_tol=1e-12) else math.floor(exact)


def _share(unit: PowerUnit, gpus: int) -> int:
    return gpus if unit is PowerUnit.NODE_TOTAL_WATT else 1


def _checked(value: float, unit: PowerUnit, gpus: int) -> float:
    if not math.isfinite(value) or value < 0 or gpus < 1:
        raise ValueError(f"{value} {unit} for {gpus} GPUs is no power")
    return value
