"""What the governor needs of the world: somebody who reads the limits, and the line to the guard who writes them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fleetd.core.power.govern import GovernConfig, Limits
from fleetd.model.power import PowerReading


class Line(Protocol):
    """The line to the power guard; see `fleetd.devices.guard_line.GuardLine`."""

    why: str
    program_replaced: bool
    renewed_total: int

    @property
    def live(self) -> bool:
        """Whether there is a lease."""

    def beat(self) -> None:
        """The loop turns."""

    async def arm(self, gpus: Sequence[Mapping[str, Any]], *, ttl_s: float, grace_s: float) -> str:
        """Begin a lease; "" or why not."""

    async def write(self, limits: Mapping[str, Limits], reason: str) -> Mapping[str, str]:
        """Write; {gpu: why not}. Raises DeviceError."""

    async def seen(self, limits: Mapping[str, Limits]) -> None:
        """Less is in force than was written. Raises DeviceError."""

    async def hand_over(self, seconds: float) -> str:
        """The next agent takes over."""

    async def disarm(self) -> str:
        """Fall to the safe caps."""


Plan = Callable[[str | None], GovernConfig]
"""Firmware of the part → what holds for it now: a set-point lapses with firmware, envelope and time."""


class Read(Protocol):
    """Reads the limits of all GPUs."""

    async def __call__(self, *, energy: bool) -> Sequence[PowerReading]:
        """With the energy counter if asked, which takes milliseconds. Raises DeviceError."""
