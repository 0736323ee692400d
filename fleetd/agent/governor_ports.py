"""What the governor needs of the world: somebody who reads the limits, and the line to the guard who writes them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from fleetd.agent.power_lease import PowerCap
from fleetd.core.power.govern import GovernConfig, Limits
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.power import GpuPower, PowerReading
from fleetd.model.power_lease import LeaseStatus


class Line(Protocol):
    """The line to the power guard; see `fleetd.devices.guard_line.GuardLine`."""

    why: str
    program_replaced: bool
    renewed_total: int
    clocks: Mapping[str, float]
    """GPU → highest clock that the guard has locked, in hertz."""

    @property
    def live(self) -> bool:
        """Whether there is a lease."""

    def beat(self) -> None:
        """The loop turns."""

    async def arm(self, gpus: Sequence[Mapping[str, Any]], *, ttl_s: float, grace_s: float) -> str:
        """Begin a lease; "" or why not."""

    async def write(
        self, limits: Mapping[str, Limits], clocks: Mapping[str, float | None], reason: str
    ) -> Mapping[str, str]:
        """Write limits, lock clocks (None: unlock); {gpu: why not}. Raises DeviceError."""

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

    async def __call__(self, *, energy: bool = False, samples: Collection[GpuId] = ()) -> Sequence[PowerReading]:
        """With the energy counter if asked, which takes milliseconds; of some GPUs the new power samples, too.

        Raises DeviceError.
        """


class Outside(Protocol):
    """What is known of power from elsewhere; see `fleetd.agent.power_outside.PowerOutside`."""

    def look(self, gpus: Collection[Gpu]) -> None:
        """A turn begins, with these GPUs."""

    def against(self, gpu: GpuId) -> str:
        """Why there must be no boost; "": nothing is known."""

    def smoothing_lost(self, gpu: GpuId) -> bool | None:
        """Whether the GPU's power-smoothing hardware has dropped out; None: it has not spoken."""


class Budget(Protocol):
    """The host's part of the fleet's power budgets; see `fleetd.agent.power_lease.PowerLease`."""

    def cap(self, wishes: Sequence[float]) -> PowerCap:
        """A turn begins; `wishes`: watts that each governed GPU would be set to."""

    def turned(self, cap: PowerCap, gpus: Sequence[GpuPower]) -> None:
        """The turn has ended; it began by reading the limits that `gpus` show."""

    def status(self) -> LeaseStatus:
        """A snapshot."""
