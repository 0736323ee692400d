"""The daemon's side of the helper processes: the `Devices` port over a vendor library that may hang, lie or die.

One helper reads all GPUs in turn. When it hangs or crashes, the GPU it was at is left alone until that call is over,
and from the second time on for a growing time; all others are asked at once, side by side, each through a helper of its
own, so that several that hang together are found together. One of the helpers that answered goes on. A GPU that was
left alone is asked again in the same way, so that it costs the others nothing when it hangs again.

A running library names the GPUs that were there when it was initialised. When the kernel's list of devices changes, a
GPU has trouble, or after an hour, a fresh helper names them anew, and takes over if they are others.
"""

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import structlog

from fleetd.devices.aside import Asides
from fleetd.devices.child import Child
from fleetd.devices.config import DevicesConfig
from fleetd.devices.helpers import Helpers, Hung
from fleetd.devices.inventory import named
from fleetd.devices.pci import PciGpus
from fleetd.devices.power_readings import power_readings
from fleetd.devices.reader import PROCESSES
from fleetd.devices.readings import Readings
from fleetd.devices.replies import process_ids, read_replies
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.power import PowerReading
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock, DeviceError

_log = structlog.get_logger(__name__)

_BUSY_MAX_RATIO = 0.1
"""A driver that has become slow is asked no more than for this share of the time: its last sample stands until then.
At most ten times the deadline of a call, which is the latest that a sample can be."""
_SIDE_BY_SIDE_MAX = 8
"""Helpers that ask at the same time, each with the memory of one; more GPUs than this take turns."""
_PATIENCE = 2.0
"""A helper that has only just started, with others and on a host that may be busy, has so many times the deadline of a
call: a GPU that is merely slow to be found must not be taken for one that hangs."""
_KNOWN_MAX = 256
_LEFT_ALONE = "a call for it hung; it is left alone until that call returns, or for some time"


class HelperDevices:
    """The `Devices` port of one vendor. One caller at a time; a second one waits for the first."""

    def __init__(
        self,
        *,
        vendor: str,
        clock: Clock,
        config: DevicesConfig,
        environ: Mapping[str, str] | None = None,
        pci: PciGpus | None = None,
    ) -> None:
        """Start nothing yet. `environ` is the helpers' environment; None: the daemon's. `pci`: None: the kernel's."""
        self._vendor = vendor
        self._clock = clock
        self._config = config
        self._helpers = Helpers(
            vendor=vendor, clock=clock, config=config, environ=os.environ if environ is None else environ
        )
        self._pci = pci or PciGpus(vendor)
        self._lock = asyncio.Lock()
        self._inventory: tuple[Gpu, ...] = ()
        self._gone: frozenset[GpuId] = frozenset()
        self._asides = Asides()
        self._slow_due_s: dict[GpuId, float] = {}
        self._troubles: dict[GpuId, str] = {}
        self._readings: dict[GpuId, Readings] = {}
        self._rests: dict[GpuId, tuple[GpuSample, float]] = {}
        self._discover_due_s = 0.0
        self._on_bus: frozenset[str] = frozenset()
        self._looked_s = 0.0
        self._looks = 0
        self._processes: Mapping[GpuId, tuple[int, ...]] = {}

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
        return self._helpers.pids

    @property
    def stuck(self) -> tuple[int, ...]:
        """Process ids of the abandoned ones alone: not even the end of the agent ends them."""
        return self._helpers.stuck

    @property
    def starts_total(self) -> int:
        """Helpers that were started."""
        return self._helpers.starts_total

    async def inventory(self) -> tuple[Gpu, ...]:
        """The GPUs, from the library; from memory while one of them is left alone. Raises DeviceError."""
        async with self._lock:
            return await self._discover()

    async def sample(self) -> tuple[GpuSample, ...]:
        """One sample of each GPU that answered. Raises DeviceError when none did."""
        async with self._lock:
            if not self._inventory or self._clock.elapsed_s() >= self._discover_due_s:
                await self._discover()
            elif self._helpers.main is not None and self._look_is_due():
                await self._look_anew()
            troubles = dict.fromkeys(self._gone, "the driver no longer names it")
            samples = await self._round(troubles)
            self._troubles = troubles
            if samples:
                self._helpers.works()
                return tuple(samples[entry.gpu] for entry in self._inventory if entry.gpu in samples)
            told = "; ".join(dict.fromkeys(troubles.values()))
            error = DeviceError(told or f"the {self._vendor} library names no GPU")
            if self._helpers.main is not None and len(self._asides) < len(self._inventory):
                # Every GPU refuses: the driver was reloaded, or worse. Only a new start of the library finds out.
                await self._helpers.retire(error)
            raise error

    async def power(self, *, energy: bool = False, samples: Collection[GpuId] = ()) -> tuple[PowerReading, ...]:
        """Limits and draw of each GPU that answered and is not left alone, of some with their new samples.

        Raises DeviceError when there is none.
        """
        async with self._lock:
            child = await self._helpers.ready()
            gpus = [one.gpu for one in self._inventory if one.gpu not in self._asides]
            request = {"do": "power", "gpus": gpus, "energy": energy, "samples": list(samples)}
            reply = await self._put_to(child, request)
            found = power_readings(gpus, self._clock.elapsed_s(), reply)
            if not found:
                raise DeviceError("no GPU tells its power limits")
            return tuple(found)

    async def close(self) -> str:
        """End the helper, so that no handle of ours is open; see `Devices`."""
        async with self._lock:
            held = await self._helpers.close()
            # Who asks again has reset something, or waited: what was so before need not be so any more.
            self._discover_due_s, self._rests = 0.0, {}
            self._asides.forget_returned()
            return held

    # ── which GPUs there are ────────────────────────────────────────────────────────────────────────────────────────

    async def _discover(self) -> tuple[Gpu, ...]:
        if self._asides and self._inventory:
            return self._inventory  # naming all GPUs would touch the one that is to be left alone
        on_bus, fresh = self._pci.now(), self._helpers.main is None
        if not fresh and on_bus != self._on_bus:
            await self._look_anew()
        child = await self._helpers.ready()
        if fresh:
            self._on_bus, self._looked_s = on_bus, self._clock.elapsed_s()
        # A driver that names no GPU at all may be one that has not found them yet: only a new start looks again.
        self._take(await self._named(child))
        self._discover_due_s = self._clock.elapsed_s() + self._config.discovery_interval_seconds
        return self._inventory

    async def _named(self, child: Child) -> tuple[Gpu, ...]:
        reply = await self._helpers.ask(child, {"do": "inventory"}, self._config.open_deadline_seconds, fatal=True)
        try:
            return named(reply)
        except (TypeError, KeyError) as cause:
            error = DeviceError(f"the {self._vendor} helper sent an inventory that is none")
            if child is self._helpers.main:
                await self._helpers.retire(error)
            raise error from cause

    def _take(self, found: tuple[Gpu, ...]) -> None:
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
        self._helpers.places = {entry.gpu: entry.pci_address for entry in found if entry.pci_address}
        for kept in (self._readings, self._rests):
            for gpu in kept.keys() - named:
                del kept[gpu]
        self._processes = {gpu: ids for gpu, ids in self._processes.items() if gpu in named}

    def _look_is_due(self) -> bool:
        if self._asides:
            return False  # as in `_discover`
        wait_s = self._config.fresh_look_interval_seconds
        if self._troubles:
            wait_s = min(wait_s, self._config.discovery_interval_seconds * 2.0 ** min(self._looks, 30))
        else:
            self._looks = 0
        return self._clock.elapsed_s() - self._looked_s >= wait_s

    async def _look_anew(self) -> None:
        """Have a fresh helper name the GPUs. The one that works goes on when they are the same and all is well."""
        self._on_bus, self._looked_s = self._pci.now(), self._clock.elapsed_s()
        self._looks += 1
        try:
            async with self._helpers.lent() as child:
                found = await self._named(child)
                if self._troubles or {one.gpu for one in found} != {one.gpu for one in self._inventory}:
                    await self._helpers.take_over(child)
                    self._take(found)
        except DeviceError as error:
            _log.warning("no_fresh_look_at_the_gpus", vendor=self._vendor, why=str(error))

    # ── readings ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _round(self, troubles: dict[GpuId, str]) -> dict[GpuId, GpuSample]:
        """Read every GPU that may be asked; why others are missing is added to `troubles`. Raises DeviceError."""
        now_s = self._clock.elapsed_s()
        resting = {one.gpu for one in self._inventory if self._asides.rests(one.gpu, now_s=now_s)}
        troubles |= dict.fromkeys(resting, _LEFT_ALONE)
        again = [one.gpu for one in self._inventory if one.gpu in self._asides and one.gpu not in resting]
        others = [one.gpu for one in self._inventory if one.gpu not in self._asides]
        samples: dict[GpuId, GpuSample] = {}
        if others and await self._in_turn(await self._helpers.ready(), others, samples, troubles):
            # Those that answered in this round, too: they may have begun to hang since, like their neighbour.
            again += [gpu for gpu in others if gpu not in self._asides]
        if again:
            await self._side_by_side(again, samples, troubles)
        return samples

    async def _in_turn(
        self, child: Child, gpus: Sequence[GpuId], samples: dict[GpuId, GpuSample], troubles: dict[GpuId, str]
    ) -> bool:
        """Ask GPUs one after the other through the helper that works; whether it hung."""
        now_s = self._clock.elapsed_s()  # one that is too slow to be asked again already is as it was
        samples |= {gpu: self._rests[gpu][0] for gpu in gpus if gpu in self._rests and now_s < self._rests[gpu][1]}
        asked = [gpu for gpu in gpus if gpu not in samples]
        try:
            if asked:
                await self._ask(child, asked, samples, troubles)
        except Hung as hung:
            troubles |= dict.fromkeys(asked if hung.gpu is None else [hung.gpu], str(hung))
            return True
        except DeviceError as error:
            troubles |= dict.fromkeys(asked, str(error))
        return False

    async def _side_by_side(
        self, gpus: Sequence[GpuId], samples: dict[GpuId, GpuSample], troubles: dict[GpuId, str]
    ) -> None:
        """Ask GPUs at the same time, each through a helper of its own, of which one goes on if no other works."""
        for gpu in gpus:
            samples.pop(gpu, None)  # it speaks for the time before
        try:
            # One first: when the library does not even open, the others would get stuck there, too.
            opened = [await self._helpers.beside()]
        except DeviceError as error:
            for gpu in gpus:
                troubles[gpu] = str(error)
                self._asides.wait_longer(gpu, now_s=self._clock.elapsed_s())
            return
        slots = asyncio.Semaphore(_SIDE_BY_SIDE_MAX)

        async def ask(gpu: GpuId) -> None:
            try:
                async with slots, self._helpers.lent(opened.pop() if opened else None) as child:
                    await self._ask(child, [gpu], samples, troubles, patience=_PATIENCE)
                    if gpu in samples:
                        self._helpers.main = self._helpers.main or child
            except DeviceError as trouble:
                troubles[gpu] = str(trouble)

        try:
            await asyncio.gather(*map(ask, gpus))
        finally:
            for child in opened:  # cancelled before anybody took it
                self._helpers.abandon(child)

    async def _ask(
        self,
        child: Child,
        gpus: Sequence[GpuId],
        samples: dict[GpuId, GpuSample],
        troubles: dict[GpuId, str],
        *,
        patience: float = 1.0,
    ) -> None:
        """Have one helper read GPUs, in one request; why a GPU refused is added to `troubles`. Raises DeviceError."""
        now_s = self._clock.elapsed_s()
        slow = [gpu for gpu in gpus if now_s >= self._slow_due_s[gpu]]
        request = {"do": "sample", "gpus": list(gpus), "slow": slow}
        reply = await self._put_to(child, request, patience)
        wall_s, took_s = self._clock.wall_s(), self._clock.elapsed_s() - now_s
        for one in read_replies(gpus, reply):
            if one.gpu in slow:  # the next time keeps its phase, so that the GPUs stay spread
                interval_s, due_s = self._config.slow_reading_interval_seconds, self._slow_due_s[one.gpu]
                self._slow_due_s[one.gpu] = due_s + interval_s * ((now_s - due_s) // interval_s + 1)
            self._asides.answered(one.gpu, now_s=now_s + took_s)
            if one.reading is None:
                troubles[one.gpu] = one.trouble
                continue
            if PROCESSES in one.reading:
                self._processes = {**self._processes, one.gpu: process_ids(one.reading[PROCESSES])}
            at_s = wall_s - one.ago_ratio * took_s
            sample = self._readings.setdefault(one.gpu, Readings()).sample(
                one.gpu, at_s, one.reading, slow=one.gpu in slow, source=child.pid
            )
            samples[one.gpu] = sample
            if child is self._helpers.main:  # another had to look for the GPU first, which takes longer
                ended_s = now_s + (1.0 - one.ago_ratio) * took_s
                self._rests[one.gpu] = sample, ended_s + one.took_ratio * took_s * (1.0 / _BUSY_MAX_RATIO - 1.0)

    async def _put_to(self, child: Child, request: dict[str, Any], patience: float = 1.0) -> Any:
        """A request for several GPUs; one that hangs is left alone. Raises DeviceError."""
        try:
            return await self._helpers.ask(child, request, patience * self._config.call_deadline_seconds)
        except Hung as error:
            if error.gpu is not None:
                self._asides.put(error.gpu, error.child, now_s=self._clock.elapsed_s())
            raise
