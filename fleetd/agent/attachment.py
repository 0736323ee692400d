"""Holding on to the GPUs, and letting go of them on request, so that a reset or a new driver finds no handle of ours.

A release ends by itself: whoever asked for it may die, and an agent that stays blind for ever would be worse than one
that is in the way.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.order import RunBurnin
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Burner, Clock, Devices, DevicesReleased

_log = structlog.get_logger(__name__)

RELEASE_MAX_S = 3600.0
"""The longest release: a reset takes a minute, a firmware update less than an hour. It can be asked for again."""
_POLL_S = 1.0


class Attachment:
    """A `Devices` port that can be released for some time. While it is, every call raises DevicesReleased."""

    def __init__(self, devices: Devices, *, clock: Clock) -> None:
        self._devices = devices
        self._clock = clock
        self._lock = asyncio.Lock()
        self._until_s: float | None = None
        self.burning = False
        """Whether a burn-in uses the GPUs: then they are not released."""

    @property
    def released_s(self) -> float | None:
        """Seconds until the agent takes the GPUs up again; None: it holds them."""
        if self._until_s is None:
            return None
        left_s = self._until_s - self._clock.elapsed_s()
        if left_s > 0:
            return left_s
        self._until_s = None
        _log.info("attached_again", why="the time of the release is over")
        return None

    async def release(self, seconds: float) -> str:
        """Let go of the GPUs for some time, at most `RELEASE_MAX_S`.

        Returns:
            "" once no process of the agent holds one, else why one does or why it was refused. A second call counts
            the time anew, and may be made to find out whether a process that was stuck has ended.
        """
        if not 0 < seconds <= RELEASE_MAX_S:
            return f"{seconds:g} s is not above 0 and at most {RELEASE_MAX_S:g} s"
        if self.burning:
            return "a burn-in is using the GPUs; wait for its end"
        # First, so that whoever waits for the lock behind us does not open the library again.
        self._until_s = self._clock.elapsed_s() + seconds
        async with self._lock:
            held = await self._devices.close()
        _log.warning("released", seconds=seconds, held=held)
        return held

    def attach(self) -> None:
        """End a release before its time; the next sample opens the library."""
        if self._until_s is not None:
            self._until_s = None
            _log.info("attached_again", why="it was asked for")

    async def wait(self) -> None:
        """Wait for the end of a release."""
        while (left_s := self.released_s) is not None:
            await self._clock.sleep_s(min(left_s, _POLL_S))

    # ── Devices ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def troubles(self) -> Mapping[GpuId, str]:
        """See `Devices`."""
        return self._devices.troubles

    async def inventory(self) -> tuple[Gpu, ...]:
        """See `Devices`. Raises DevicesReleased."""
        async with self._lock:
            self._held()
            return await self._devices.inventory()

    async def sample(self) -> tuple[GpuSample, ...]:
        """See `Devices`. Raises DevicesReleased."""
        async with self._lock:
            self._held()
            return await self._devices.sample()

    async def close(self) -> str:
        """See `Devices`."""
        return await self._devices.close()  # not behind the lock: the end of the agent waits for nobody

    def _held(self) -> None:
        if (left_s := self.released_s) is not None:
            raise DevicesReleased(f"the GPUs are released for another {left_s:.0f} s")


class PatientBurner:
    """A `Burner` that begins when the GPUs are not released, and keeps them from being released while it burns."""

    def __init__(self, burner: Burner, attachment: Attachment) -> None:
        self._burner = burner
        self._attachment = attachment

    async def burn(self, order: RunBurnin, report: Path) -> None:
        """See `Burner`."""
        await self._attachment.wait()
        self._attachment.burning = True
        try:
            await self._burner.burn(order, report)
        finally:
            self._attachment.burning = False
