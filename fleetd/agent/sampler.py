"""The sampling loop: read all GPUs at an interval, keep the latest reading, and tell when one has fallen silent."""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import structlog

from fleetd.agent.silence import Silence, SilenceWatch
from fleetd.core.detect_rules import lost
from fleetd.model.finding import DRIVER_MISSING, DRIVER_UNRESPONSIVE, DeviceFault, FaultClass, Scope, Severity
from fleetd.model.host import Gpu
from fleetd.model.ids import BootId, FindingId, GpuId, HostName
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock, DeviceError, Devices, DevicesReleased, DriverMissing, Spool, StoreError

_log = structlog.get_logger(__name__)


_INTERVAL_MIN_S = 0.05
"""Twenty times the usual; below it the driver would hardly have a pause, and the agent be in everybody's way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerConfig:
    """How often, and how patiently, the GPUs are read."""

    interval_seconds: float = 1.0
    unresponsive_after_seconds: float = 8.0
    """A GPU or a driver that gives no sample for so long is a finding. With a call's deadline it stays below 10 s."""
    discovery_seconds: float = 60.0
    """The same before the first answer after the agent's start: a cold driver takes its time."""
    retry_max_seconds: float = 30.0
    """Once the silence of a driver has been told, it is asked ever more rarely, down to this."""
    stale_after_seconds: float = 30.0
    """Older readings are no longer shown or sent as if they were the present."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name}: {getattr(self, field.name)} is not above 0")
        if self.interval_seconds < _INTERVAL_MIN_S:
            raise ValueError(f"interval_seconds: {self.interval_seconds:g} is below {_INTERVAL_MIN_S:g}")
        if self.stale_after_seconds <= self.interval_seconds:
            raise ValueError(
                f"stale_after_seconds: {self.stale_after_seconds:g} is not above interval_seconds"
                f" ({self.interval_seconds:g}): every reading would be stale before the next"
            )


Round = Callable[[tuple[GpuSample, ...], tuple[Gpu, ...], Mapping[GpuId, str]], None]
"""Told of every round that was answered: the samples, the inventory, why a GPU is missing."""


class Sampler:
    """Reads the GPUs until cancelled. Its attributes and properties may be read from another thread."""

    def __init__(
        self,
        *,
        host: HostName,
        boot_id: BootId,
        devices: Devices,
        spool: Spool,
        clock: Clock,
        config: SamplerConfig,
        on_round: Round | None = None,
    ) -> None:
        self._host = host
        self._boot_id = boot_id
        self._devices = devices
        self._spool = spool
        self._clock = clock
        self._config = config
        self._on_round = on_round
        self._watch = SilenceWatch(after_s=config.unresponsive_after_seconds, discovery_s=config.discovery_seconds)
        self._inventory: tuple[Gpu, ...] = ()
        self._inventory_known = False
        self._heard: frozenset[GpuId] = frozenset()
        self._samples: tuple[GpuSample, ...] = ()
        self._sampled_at_s: float | None = None
        self._failures = 0
        self.discovered = asyncio.Event()
        """Set when the inventory is known, or when its absence has been told."""
        self.inventory_changed = asyncio.Event()
        """Set when the inventory differs from before; whoever acts on it clears it."""
        self.silent_gpus: tuple[GpuId, ...] = ()
        self.findings_total = 0
        self.overruns_total = 0
        self.device_errors_total = 0
        self.store_errors_total = 0

    @property
    def config(self) -> SamplerConfig:
        """What it goes by now."""
        return self._config

    def configure(self, config: SamplerConfig) -> None:
        """Go by this from the next cycle on."""
        self._config = config
        self._watch.configure(after_s=config.unresponsive_after_seconds, discovery_s=config.discovery_seconds)

    @property
    def inventory(self) -> tuple[Gpu, ...]:
        """The GPUs of the last successful discovery; empty before it."""
        return self._inventory

    @property
    def unheard(self) -> tuple[GpuId, ...]:
        """GPUs that have not answered since the start, or since they were taken up again."""
        heard = self._heard
        return tuple(gpu.gpu for gpu in self._inventory if gpu.gpu not in heard)

    @property
    def driver_silent(self) -> str:
        """Code and reason when nobody answers, and that has been told; else ""."""
        return self._watch.driver_told

    @property
    def age_s(self) -> float | None:
        """Seconds since the latest reading; None before the first."""
        at_s = self._sampled_at_s
        return None if at_s is None else self._clock.elapsed_s() - at_s

    def latest(self) -> tuple[GpuSample, ...]:
        """The latest reading of each GPU that answered; nothing once it is stale."""
        samples, age_s = self._samples, self.age_s
        return samples if age_s is not None and age_s <= self._config.stale_after_seconds else ()

    async def run(self) -> None:
        """Sample until cancelled."""
        due_s = self._clock.elapsed_s()
        while True:
            wait_s = await self.sample_once()
            interval_s = self._config.interval_seconds
            now_s = self._clock.elapsed_s()
            due_s = due_s + interval_s if wait_s is None else now_s + wait_s
            if due_s < now_s:  # never catch up in a burst: the past cannot be sampled any more
                missed = math.ceil((now_s - due_s) / interval_s)
                self.overruns_total += missed
                due_s += missed * interval_s
            await self._clock.sleep_s(due_s - now_s)

    async def sample_once(self) -> float | None:
        """One cycle; returns how long to wait after a failure, None after a success."""
        began_s, began_at_s = self._clock.elapsed_s(), self._clock.wall_s()
        try:
            if not self._inventory_known:
                self._discovered(await self._devices.inventory())
            samples = await self._devices.sample()
        except DevicesReleased:
            self._watch.rest()
            self._inventory_known = False  # another GPU may stand there afterwards
            self._samples, self._sampled_at_s = (), None  # and what was read before proves nothing about it
            self._heard = frozenset()
            self.silent_gpus, self._failures = (), 0
            return self._config.interval_seconds
        except DeviceError as error:
            code = DRIVER_MISSING if isinstance(error, DriverMissing) else DRIVER_UNRESPONSIVE
            self._watch.fails(code, str(error), began_s=began_s, began_at_s=began_at_s)
            self._failed(error)
            told = self._tell()
            if not told:
                return self._config.interval_seconds
            doubled_s = self._config.interval_seconds * 2.0 ** min(self._failures, 30)
            return min(doubled_s, self._config.retry_max_seconds)
        self._samples, self._sampled_at_s = samples, self._clock.elapsed_s()
        answered = [sample.gpu for sample in samples]
        self._heard = self._heard.union(answered)
        if not {gpu.gpu for gpu in self._inventory}.issuperset(answered):
            self._inventory_known = False  # one was added while we ran
        ended = self._watch.answers(answered, self._devices.troubles, began_s=began_s, began_at_s=began_at_s)
        for silence in ended:
            _log.warning("answers_again", gpu=silence.gpu, silent_s=round(self._clock.elapsed_s() - silence.since_s, 1))
        if self._failures:
            _log.warning("sampling_again", after_failures=self._failures)
        self._failures = 0
        self._tell()
        if self._on_round is not None:
            self._on_round(samples, self._inventory, self._devices.troubles)
        return None

    def _discovered(self, inventory: tuple[Gpu, ...]) -> None:
        if inventory != self._inventory:
            self._inventory = inventory
            self._heard &= {gpu.gpu for gpu in inventory}
            self.inventory_changed.set()
            _log.info("gpus_found", count=len(inventory), gpus=[gpu.gpu for gpu in inventory])
        self._inventory_known = True
        self.discovered.set()

    def _failed(self, error: DeviceError) -> None:
        self.device_errors_total += 1
        self._failures += 1
        self._inventory_known = False  # whatever comes back may have lost a GPU
        if self._failures == 1:  # a line for each cycle would bury everything else
            _log.warning("sampling_fails", why=str(error))

    def _tell(self) -> bool:
        """Spool a finding for every silence that has become too long; whether the whole driver's has been told."""
        for silence in self._watch.overdue(self._clock.elapsed_s()):
            if silence.gpu is not None and self._on_round is not None and lost(silence.why):
                self._watch.tell(silence)  # it is silent, and whoever judges the rounds has told that it is lost
                continue
            try:
                self._spool.append(self._finding(silence))
            except StoreError as error:
                self.store_errors_total += 1
                _log.error("finding_not_spooled", why=str(error))  # stays overdue: the next cycle tries again
                continue
            self._watch.tell(silence)
            self.findings_total += 1
            self.discovered.set()
            _log.error("silent", code=silence.code, gpu=silence.gpu, why=silence.why)
        self.silent_gpus = self._watch.told_gpus
        return bool(self._watch.driver_told)

    def _finding(self, silence: Silence) -> DeviceFault:
        index = _index(self._inventory, silence.gpu)
        who = "no GPU answers" if silence.gpu is None else f"GPU {index if index is not None else '?'} does not answer"
        silent_s = self._clock.elapsed_s() - silence.since_s
        identity = f"{self._host}/{self._boot_id}/{silence.code}/{silence.gpu or 'host'}/{silence.began_at_s:.0f}"
        missing = silence.code == DRIVER_MISSING
        return DeviceFault(
            id=FindingId(identity),
            host=self._host,
            boot_id=self._boot_id,
            at_s=self._clock.wall_s(),
            why=f"{who} for {silent_s:.0f} s: {silence.why}",
            code=silence.code,
            gpu=silence.gpu,
            index=index,
            scope=Scope.HOST if silence.gpu is None else Scope.GPU,
            severity=Severity.ERROR,
            fault_class=FaultClass.CONFIGURATION if missing else FaultClass.UNRESPONSIVE,
        )


def _index(inventory: tuple[Gpu, ...], gpu: GpuId | None) -> int | None:
    return next((entry.index for entry in inventory if entry.gpu == gpu), None)
