"""The helper processes of one vendor: one that works, others for a moment beside it, and those that are stuck.

A helper that does not answer in time is *abandoned*: its input is closed and it is asked to end (SIGTERM, which it
obeys when the library call returns), but it is never killed inside the driver, and never waited for. How many there
may be is bounded: one for each GPU, which is left alone while its helper is stuck; `abandoned_max` that are stuck
elsewhere in the driver, beyond which no more are started; and those beside, which answer one question and end.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fleetd.devices.child import END_S, Child, ChildError, ChildHung, Refusal
from fleetd.devices.config import DevicesConfig
from fleetd.model.ids import GpuId
from fleetd.ports import Clock, DeviceError, DriverMissing

_LENT_END_S = 3.0
"""Several end at once, on a host that may be busy, and none of them is what a stop waits for."""


class Hung(DeviceError):  # noqa: N818 - it says what happened
    """The helper did not answer in time, or crashed inside a call for a GPU, and has been abandoned."""

    def __init__(self, message: str, child: Child, gpu: GpuId | None) -> None:
        super().__init__(message)
        self.child = child
        self.gpu = gpu
        """The GPU it hung on; None: elsewhere in the driver."""


class Helpers:
    """Starts, asks, ends and abandons the helpers. A failure of the working one is followed by a doubling back-off."""

    def __init__(self, *, vendor: str, clock: Clock, config: DevicesConfig, environ: Mapping[str, str]) -> None:
        self.vendor = vendor
        self._clock = clock
        self._config = config
        self.environ = dict(environ)
        self.main: Child | None = None
        """The one that works."""
        self.places: Mapping[GpuId, str] = {}
        """PCI addresses of the GPUs, where a new helper finds one without touching the others."""
        self._abandoned: list[tuple[Child, GpuId | None]] = []
        self._failures = 0
        self._not_before_s = 0.0
        self._last_error: DeviceError | None = None
        self.starts_total = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the working and of the abandoned ones."""
        return (*(() if self.main is None else (self.main.pid,)), *self.stuck)

    @property
    def stuck(self) -> tuple[int, ...]:
        """Process ids of the abandoned ones alone."""
        return tuple(child.pid for child, _ in self._abandoned)

    async def ready(self) -> Child:
        """The working helper, started if there is none and one may be started. Raises DeviceError."""
        self.reap()
        if self.main is not None:
            return self.main
        wait_s = self._not_before_s - self._clock.elapsed_s()
        if self._last_error is not None and wait_s > 0:
            raise type(self._last_error)(f"{self._last_error} (next try in {wait_s:.0f} s)")
        try:
            self.main = await self.beside()
        except DeviceError as error:
            self._failed(error)
            raise
        return self.main

    @asynccontextmanager
    async def lent(self, child: Child | None = None) -> AsyncIterator[Child]:
        """A helper beside the working one (None: a new one) for a moment: ended afterwards, unless it is `main` then.

        Raises DeviceError when none can be had.
        """
        child = child or await self.beside()
        try:
            yield child
        except DeviceError:
            await self.end(child)
            raise
        except BaseException:  # cancelled, as when the agent is stopped: nobody waits for its answer
            self.abandon(child)
            raise
        if child is not self.main:
            await self.end(child, _LENT_END_S)

    async def beside(self) -> Child:
        """A further helper with its library open; whoever asked for it ends it or lends it. Raises DeviceError."""
        self.reap()
        stuck = sum(gpu is None for _, gpu in self._abandoned)
        if stuck >= self._config.abandoned_max:
            raise DeviceError(f"{stuck} helpers are stuck inside the {self.vendor} driver; reboot")
        # While another helper keeps the driver open, this one need not initialise the GPUs.
        opened = self._abandoned or self.main is not None
        deadline_s = self._config.reopen_deadline_seconds if opened else self._config.open_deadline_seconds
        self.starts_total += 1
        try:
            child = await Child.start(self.vendor, self.environ)
        except ChildError as error:
            raise DeviceError(str(error)) from error
        try:
            await self.ask(child, {"do": "open", "places": dict(self.places)}, deadline_s)
        except DeviceError:
            await self.end(child)
            raise
        except BaseException:
            self.abandon(child)
            raise
        return child

    async def ask(self, child: Child, request: dict[str, Any], deadline_s: float, *, fatal: bool = False) -> Any:
        """One request. Garbage or death of the helper, and with `fatal` a refusal too, end it. Raises DeviceError.

        Raises Hung when it did not answer in time, which a request for several `gpus` has for each of them, or crashed
        at a GPU. Whatever ends the working helper delays the next, but for such a GPU: that one is left alone, so the
        others need not wait.
        """
        try:
            return await child.ask(request, deadline_s)
        except Refusal as refusal:
            error = (DriverMissing if refusal.missing else DeviceError)(str(refusal))
            if fatal and child is self.main:
                await self.retire(error)
            raise error from refusal
        except ChildError as failure:
            gpu = None if failure.gpu is None else GpuId(failure.gpu)
            hung = gpu is not None or isinstance(failure, ChildHung)
            error = Hung(str(failure), child, gpu) if hung else DeviceError(str(failure))
            if child is self.main:
                self.main = None
                if gpu is None:
                    self._failed(error)
            self.abandon(child, gpu)
            raise error from failure

    def works(self) -> None:
        """All is well: the next failure is a first one."""
        if self.main is not None:
            self._failures = 0

    async def retire(self, error: DeviceError) -> None:
        """End a working helper that answers but cannot be used."""
        child, self.main = self.main, None
        self._failed(error)
        if child is not None:
            await self.end(child)

    async def take_over(self, child: Child) -> None:
        """Let this one work; the one that worked so far ends after it, so that the driver is never closed between."""
        before, self.main = self.main, child
        if before is not None:
            await self.end(before, _LENT_END_S)

    async def end(self, child: Child, within_s: float = END_S) -> None:
        """Let a helper end by itself; it is abandoned when it does not. One that is abandoned stays so."""
        if any(one is child for one, _ in self._abandoned):
            return
        ended = False
        try:
            ended = await child.end(within_s)
        finally:
            if not ended:
                self._abandoned.append((child, None))

    def abandon(self, child: Child, gpu: GpuId | None = None) -> None:
        """Give up a helper that is inside a call for a GPU (None: for the driver as a whole); does not wait."""
        child.abandon()
        self._abandoned.append((child, gpu))

    async def close(self) -> str:
        """End the working one; "" when no helper is left, else which are stuck."""
        child, self.main = self.main, None
        if child is not None:
            await self.end(child)
        self.reap()
        # Who asks again has reset something, or waited: what went wrong before need not be so any more.
        self._failures, self._not_before_s = 0, 0.0
        stuck = [str(child.pid) for child, _ in self._abandoned]
        return f"still inside the {self.vendor} driver: helper process {', '.join(stuck)}" if stuck else ""

    def reap(self) -> None:
        """Forget the abandoned ones that have ended."""
        self._abandoned = [(child, gpu) for child, gpu in self._abandoned if not child.ended()]

    def _failed(self, error: DeviceError) -> None:
        wait_s = self._config.restart_first_seconds * 2.0 ** min(self._failures, 30)
        self._failures += 1
        self._not_before_s = self._clock.elapsed_s() + min(wait_s, self._config.restart_max_seconds)
        self._last_error = error
