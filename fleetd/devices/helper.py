"""The daemon's side of the helper process: the `Devices` port over a vendor library that may hang, lie or die.

A helper that does not answer in time is *abandoned*: its input is closed and it is asked to end (SIGTERM, which it
obeys when the library call returns), but it is never killed inside the driver, and never waited for. The GPU it hung
on is left alone until that helper has come out of the call, which is the sign that something changed, and for a
growing time after; the others go on with a new helper. Starts are spaced by a doubling back-off, and there are none
while `abandoned_max` helpers are stuck.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from fleetd.devices.child import Child, ChildError, ChildHung, Refusal
from fleetd.devices.config import DevicesConfig
from fleetd.devices.reader import PROCESSES
from fleetd.devices.readings import Readings, process_ids
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock, DeviceError, DriverMissing

_ASIDE_FIRST_S = 60.0
_ASIDE_MAX_S = 3600.0
"""A GPU that hung is asked again after the first time, which doubles with each hang up to the maximum."""
_BUSY_MAX_RATIO = 0.1
"""A driver that has become slow is asked no more than for this share of the time: its last sample stands until then.
At most ten times the deadline of a call, which is the latest that a sample can be."""
_KNOWN_MAX = 256
_GPU_FIELDS = frozenset(field.name for field in fields(Gpu))
_NEEDED = frozenset(field.name for field in fields(Gpu) if field.default is MISSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aside:
    """A GPU that is left alone because a call for it hung."""

    child: Child
    hangs: int
    not_before_s: float


class HelperDevices:
    """The `Devices` port of one vendor. One call at a time; a second caller waits for the first."""

    def __init__(
        self, *, vendor: str, clock: Clock, config: DevicesConfig, environ: Mapping[str, str] | None = None
    ) -> None:
        """Start nothing yet. `environ` is the helper's environment; None: the daemon's."""
        self._vendor = vendor
        self._clock = clock
        self._config = config
        self._environ = dict(os.environ if environ is None else environ)
        self._lock = asyncio.Lock()
        self._child: Child | None = None
        self._abandoned: list[Child] = []
        self._failures = 0
        self._not_before_s = 0.0
        self._last_error: DeviceError | None = None
        self._inventory: tuple[Gpu, ...] = ()
        self._gone: frozenset[GpuId] = frozenset()
        self._aside: dict[GpuId, _Aside] = {}
        self._slow_due_s: dict[GpuId, float] = {}
        self._troubles: dict[GpuId, str] = {}
        self._readings: dict[GpuId, Readings] = {}
        self._rests: dict[GpuId, tuple[GpuSample, float]] = {}
        self._discover_due_s = 0.0
        self._processes: Mapping[GpuId, tuple[int, ...]] = {}
        self.starts_total = 0

    @property
    def troubles(self) -> Mapping[GpuId, str]:
        """Why a GPU was missing in the last `sample()`; one that was not asked, for want of a helper, is not in it."""
        return self._troubles

    @property
    def processes(self) -> Mapping[GpuId, tuple[int, ...]]:
        """Ids of the processes that hold each GPU, as the driver told them last."""
        return self._processes

    @property
    def helpers(self) -> tuple[int, ...]:
        """Process ids of the helpers, abandoned ones too."""
        return tuple(child.pid for child in (self._child, *self._abandoned) if child is not None)

    async def inventory(self) -> tuple[Gpu, ...]:
        """The GPUs, from the library; from memory while one of them is left alone. Raises DeviceError."""
        async with self._lock:
            return await self._discover()

    async def sample(self) -> tuple[GpuSample, ...]:
        """One sample of each GPU that answered. Raises DeviceError when none did."""
        async with self._lock:
            if not self._inventory or self._clock.elapsed_s() >= self._discover_due_s:
                await self._discover()
            child = await self._ready()
            troubles = dict.fromkeys(self._gone, "the driver no longer names it")
            samples: list[GpuSample] = []
            for gpu in (entry.gpu for entry in self._inventory):
                if self._left_alone(gpu):
                    troubles[gpu] = "a call for it hung; it is left alone until that call returns, and for some time"
                    continue
                rest = self._rests.get(gpu)
                if rest is not None and self._clock.elapsed_s() < rest[1]:
                    samples.append(rest[0])
                    continue
                try:
                    samples.append(await self._sample(child, gpu))
                except DeviceError as trouble:
                    troubles[gpu] = str(trouble)
                    if self._child is None:
                        break  # the helper is gone, and the rest waits for the next one
            self._troubles = troubles
            if samples:
                if self._child is not None:
                    self._failures = 0
                return tuple(samples)
            error = DeviceError("; ".join(dict.fromkeys(troubles.values())))
            if self._child is not None and len(self._aside) < len(self._inventory):
                # Every GPU refuses: the driver was reloaded, or worse. Only a new start of the library finds out.
                await self._retire(error)
            raise error

    async def close(self) -> str:
        """End the helper, so that no handle of ours is open; see `Devices`."""
        async with self._lock:
            child, self._child = self._child, None
            if child is not None and not await child.end():
                self._abandoned.append(child)
            self._reap()
            # Who asks again has reset something, or waited: what went wrong before need not be so any more.
            self._failures, self._not_before_s, self._discover_due_s = 0, 0.0, 0.0
            self._aside = {gpu: aside for gpu, aside in self._aside.items() if not aside.child.ended()}
            stuck = [str(child.pid) for child in self._abandoned]
            return f"still inside the {self._vendor} driver: helper process {', '.join(stuck)}" if stuck else ""

    # ── the helper's life ───────────────────────────────────────────────────────────────────────────────────────────

    async def _ready(self) -> Child:
        """The helper, started if there is none and one may be started. Raises DeviceError."""
        if self._child is not None:
            return self._child
        self._reap()
        wait_s = self._not_before_s - self._clock.elapsed_s()
        if self._last_error is not None and wait_s > 0:
            raise type(self._last_error)(f"{self._last_error} (next try in {wait_s:.0f} s)")
        if len(self._abandoned) >= self._config.abandoned_max:
            raise DeviceError(f"{len(self._abandoned)} helpers are stuck inside the {self._vendor} driver; reboot")
        # An abandoned helper still keeps the driver open, so this one need not initialise the GPUs.
        config = self._config
        deadline_s = config.reopen_deadline_seconds if self._abandoned else config.open_deadline_seconds
        self.starts_total += 1
        try:
            self._child = await Child.start(self._vendor, self._environ)
        except ChildError as error:
            raise self._failed(DeviceError(str(error))) from error
        await self._ask(self._child, {"do": "open"}, deadline_s, fatal=True)
        return self._child

    async def _ask(self, child: Child, request: dict[str, Any], deadline_s: float, *, fatal: bool = False) -> Any:
        """One request. A hang, garbage or death of the helper, and with `fatal` a refusal too, end it. DeviceError."""
        try:
            return await child.ask(request, deadline_s)
        except Refusal as refusal:
            error = (DriverMissing if refusal.missing else DeviceError)(str(refusal))
            if fatal:
                await self._retire(error)
            raise error from refusal
        except ChildError as failure:
            error = DeviceError(str(failure))
            self._child = None
            child.abandon()
            self._abandoned.append(child)
            raise self._failed(error) from failure

    async def _retire(self, error: DeviceError) -> None:
        """End a helper that answers but cannot be used."""
        child, self._child = self._child, None
        self._failed(error)
        if child is not None and not await child.end():
            self._abandoned.append(child)

    def _failed(self, error: DeviceError) -> DeviceError:
        wait_s = self._config.restart_first_seconds * 2.0 ** min(self._failures, 30)
        self._failures += 1
        self._not_before_s = self._clock.elapsed_s() + min(wait_s, self._config.restart_max_seconds)
        self._last_error = error
        return error

    def _reap(self) -> None:
        self._abandoned = [child for child in self._abandoned if not child.ended()]

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _discover(self) -> tuple[Gpu, ...]:
        if self._aside and self._inventory:
            return self._inventory  # naming all GPUs would touch the one that is to be left alone
        child = await self._ready()
        # A driver that names no GPU at all may be one that has not found them yet: only a new start looks again.
        reply = await self._ask(child, {"do": "inventory"}, self._config.open_deadline_seconds, fatal=True)
        self._discover_due_s = self._clock.elapsed_s() + self._config.discovery_interval_seconds
        try:
            found = tuple(_gpu(entry) for entry in reply)
        except (TypeError, KeyError) as cause:
            error = DeviceError(f"the {self._vendor} helper sent an inventory that is none")
            await self._retire(error)
            raise error from cause
        named = frozenset(entry.gpu for entry in found)
        known = self._gone | {entry.gpu for entry in self._inventory}
        # A host whose GPUs are called differently at every start has no end of them: such a library is not believed.
        self._gone = known - named if len(known | named) <= _KNOWN_MAX else frozenset()
        now_s, interval_s = self._clock.elapsed_s(), self._config.slow_reading_interval_seconds
        self._slow_due_s = {
            entry.gpu: self._slow_due_s.get(entry.gpu, now_s + interval_s * place / len(found))
            for place, entry in enumerate(found)
        }
        self._inventory = found
        for kept in (self._readings, self._rests):
            for gpu in kept.keys() - named:
                del kept[gpu]
        self._processes = {gpu: ids for gpu, ids in self._processes.items() if gpu in named}
        return found

    async def _sample(self, child: Child, gpu: GpuId) -> GpuSample:
        now_s = self._clock.elapsed_s()
        slow = now_s >= self._slow_due_s[gpu]
        try:
            request = {"do": "sample", "gpu": gpu, "slow": slow}
            reply = await self._ask(child, request, self._config.call_deadline_seconds)
        except DeviceError as error:
            if isinstance(error.__cause__, ChildHung):
                self._set_aside(gpu, child)
            raise
        if slow:
            interval_s = self._config.slow_reading_interval_seconds
            missed = (now_s - self._slow_due_s[gpu]) // interval_s  # keeps the phase, so that the GPUs stay spread
            self._slow_due_s[gpu] += interval_s * (missed + 1)
        self._aside.pop(gpu, None)
        if not isinstance(reply, dict):
            raise DeviceError(f"the {self._vendor} helper sent a sample that is none")
        if PROCESSES in reply:
            self._processes = {**self._processes, gpu: process_ids(reply[PROCESSES])}
        sample = self._readings.setdefault(gpu, Readings()).sample(gpu, self._clock.wall_s(), reply, slow=slow)
        took_s = self._clock.elapsed_s() - now_s
        self._rests[gpu] = (sample, now_s + took_s / _BUSY_MAX_RATIO)
        return sample

    def _set_aside(self, gpu: GpuId, child: Child) -> None:
        hangs = self._aside[gpu].hangs + 1 if gpu in self._aside else 1
        wait_s = min(_ASIDE_FIRST_S * 2.0 ** min(hangs - 1, 30), _ASIDE_MAX_S)
        self._aside[gpu] = _Aside(child=child, hangs=hangs, not_before_s=self._clock.elapsed_s() + wait_s)

    def _left_alone(self, gpu: GpuId) -> bool:
        aside = self._aside.get(gpu)
        return aside is not None and (self._clock.elapsed_s() < aside.not_before_s or not aside.child.ended())


def _gpu(entry: Mapping[str, Any]) -> Gpu:
    """Raises TypeError or KeyError when it is none."""
    needed: dict[str, Any] = {name: entry[name] for name in _NEEDED}
    optional: dict[str, Any] = {name: entry.get(name) for name in _GPU_FIELDS - _NEEDED}
    return Gpu(**needed, **optional)
