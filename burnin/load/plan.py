"""What a load run is asked to do: one JSON object, checked before anything starts. Torch-free."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from burnin.spec import SpecError

Low = Literal["sleep", "vector", "copy", "collective"]
"""What runs between the bursts: a kernel that only waits, an elementwise pass, a copy on the device, a collective."""
MAX_POINTS = 1024
KERNEL_MIN_S = 1e-6
MAX_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One duty cycle."""

    duty: float
    """Share of a period in the burst, 0 < duty <= 1; 1 is back to back."""
    kernel_s: float
    """Length of a burst at the sustained clock, in seconds."""
    low: Low = "sleep"

    def __post_init__(self) -> None:
        """Refuse what makes no load. Raises SpecError."""
        if not 0.0 < self.duty <= 1.0:
            raise SpecError(f"duty {self.duty!r}: must be above 0 and at most 1")
        if not KERNEL_MIN_S <= self.kernel_s <= 1.0:
            raise SpecError(f"kernel_s {self.kernel_s!r}: must be between 1e-6 and 1 second")
        if self.low not in get_args(Low):
            raise SpecError(f"low {self.low!r}: must be one of {', '.join(get_args(Low))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole run."""

    points: tuple[Point, ...]
    repeats: int = 5
    """Each in an order of its own; every repeat measures back-to-back bursts as its base, first and last."""
    seconds: float = 1.0
    """Of one measurement."""
    soak_s: float = 20.0
    """Back-to-back load before the first measurement."""
    energy_s: float = 0.0
    """Load under which the energy counter is held against the integrated power; 0: not done."""
    temperature_max_celsius: float = 85.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be measured. Raises SpecError."""
        if not 1 <= len(self.points) <= MAX_POINTS:
            raise SpecError(f"points: {len(self.points)} given; 1 to {MAX_POINTS} can be measured")
        if not 1 <= self.repeats <= 100:  # noqa: PLR2004 - said in the message
            raise SpecError(f"repeats {self.repeats!r}: must be 1 to 100")
        for name in ("seconds", "soak_s", "energy_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0.0 <= value <= MAX_SECONDS):
                raise SpecError(f"{name} {value!r}: must be 0 to {MAX_SECONDS:.0f} seconds")
        if self.seconds <= 0.0:
            raise SpecError("seconds: must be above 0")


def parse(text: str) -> Plan:
    """Read a plan. Raises SpecError with the field's name."""
    try:
        found = json.loads(text)
        points = tuple(Point(**_known(point, Point)) for point in found.pop("points"))
        return Plan(points=points, **_known(found, Plan))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"the plan is not usable: {error}") from None


def _known(found: Mapping[str, Any], kind: type[Point] | type[Plan]) -> dict[str, Any]:
    unknown = set(found) - set(kind.__slots__)
    if unknown:
        raise SpecError(f"the plan has unknown fields: {', '.join(sorted(unknown))}")
    for name, value in found.items():
        if name != "low" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise SpecError(f"{name}: {value!r} is not a number")
    return dict(found)
