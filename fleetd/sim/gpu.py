"""Simulated GPUs: plausible readings that wander slowly, from a seed, and what may be wrong with a GPU.

Power follows the work, temperature follows power with a time constant, the clock falls when it is hot. A first-order
thermal model is enough: what is tested is fleetd, not the silicon.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId, HostName
from fleetd.model.telemetry import GpuSample, Labelled
from fleetd.ports import Clock, DeviceError

_POWER_LIMIT_WATTS = 700.0
_MEMORY_BYTES = float(141 * 1024**3)
_INLET_CELSIUS = 28.0
_CELSIUS_PER_WATT = 0.053
_THERMAL_SECONDS = 40.0
_SLOWDOWN_CELSIUS = 87.0


class Trouble(StrEnum):
    """What may be wrong with a simulated GPU."""

    WRONG = "wrong"
    """It computes wrong results, every time. Only a burn-in sees it."""
    SOMETIMES_WRONG = "sometimes_wrong"
    """It computes wrong results now and then."""
    MEMORY = "memory"
    """Uncorrected memory errors; counters grow, a burn-in sees them too."""
    HOT = "hot"
    """Badly cooled: hotter than its siblings, slower when that is too hot."""
    SLOW = "slow"
    """A low clock without any reason that it gives."""
    POWER_BRAKE = "power_brake"
    """The hardware power brake is on."""
    HUNG = "hung"
    """It does not answer until it is reset."""
    LOST = "lost"
    """It has fallen off the bus."""


SILENT = frozenset({Trouble.HUNG, Trouble.LOST})
"""Troubles in which a GPU gives no sample."""


class Cure(StrEnum):
    """What ends a trouble."""

    RESET = "reset"
    """A reset of the GPU, hence also a reboot."""
    REBOOT = "reboot"
    SWAP = "swap"
    """Only another part."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """A random walk that is pulled back to its home, so that it neither escapes nor sticks to a border."""

    home: float
    step: float
    value: float

    def next(self, rng: random.Random) -> float:
        """Move once; stays within about four steps of home (standard deviation: 1.7 steps)."""
        self.value += 0.2 * (self.home - self.value) + self.step * (rng.random() * 3.6 - 1.8)
        return self.value


class SimGpu:
    """One part: it keeps its identity and its troubles when it is moved to another host."""

    def __init__(self, *, gpu: GpuId, sku: str, seed: int) -> None:
        """A healthy part at work. Its readings follow from the seed and its id."""
        self.gpu = gpu
        self.sku = sku
        self.troubles: dict[Trouble, Cure] = {}
        """What is wrong with it now, and what would cure it."""
        rng = random.Random(f"{seed}/{gpu}")  # noqa: S311 - a simulation
        power, clock = rng.uniform(560.0, 660.0), rng.uniform(1.52e9, 1.58e9)
        self._rng = rng
        self._power = _Walk(home=power, step=8.0, value=power)
        self._clock = _Walk(home=clock, step=1.5e7, value=clock)
        self._inlet = _INLET_CELSIUS + rng.uniform(-2.0, 2.0)
        self._temperature = self._inlet + _CELSIUS_PER_WATT * power
        self._energy_joules = 0.0
        self._uncorrected = 0
        self._read_at_s: float | None = None

    def cure(self, cures: Iterable[Cure]) -> None:
        """End the troubles that one of these ends."""
        ended = frozenset(cures)
        self.troubles = {trouble: cure for trouble, cure in self.troubles.items() if cure not in ended}

    def read(self, *, at_s: float, elapsed_s: float) -> GpuSample:
        """One reading; moves the part on from the last one. `at_s` is wall time, `elapsed_s` monotonic."""
        past_s = 0.0 if self._read_at_s is None else elapsed_s - self._read_at_s
        self._read_at_s = elapsed_s
        power = min(self._power.next(self._rng), _POWER_LIMIT_WATTS)
        clock = self._clock.next(self._rng)
        per_watt, hot, braked = _CELSIUS_PER_WATT, False, False
        if self.troubles:  # rare: a fleet of healthy parts pays nothing for it
            braked = Trouble.POWER_BRAKE in self.troubles
            per_watt *= 2.2 if Trouble.HOT in self.troubles else 1.0
            hot = self._temperature > _SLOWDOWN_CELSIUS
            slow = 0.8 if Trouble.SLOW in self.troubles else 1.0
            power *= (0.5 if braked else 1.0) * (0.75 if hot else 1.0) * (0.9 if slow < 1.0 else 1.0)
            clock *= (0.4 if braked else 1.0) * (0.7 if hot else 1.0) * slow
            if Trouble.MEMORY in self.troubles and past_s and self._rng.random() < past_s / 300.0:
                self._uncorrected += 1
        self._energy_joules += power * past_s
        settled = self._inlet + per_watt * power
        self._temperature = settled + (self._temperature - settled) * math.exp(-past_s / _THERMAL_SECONDS)
        return GpuSample(
            gpu=self.gpu,
            at_s=at_s,
            power_watts=power,
            power_instant_watts=power,
            power_limit_watts=_POWER_LIMIT_WATTS,
            energy_joules_total=self._energy_joules,
            temperature_celsius=self._temperature,
            memory_temperature_celsius=self._temperature + 6.0,
            sm_clock_hertz=clock,
            memory_clock_hertz=3.201e9,
            utilization_ratio=1.0,
            memory_used_bytes=0.8 * _MEMORY_BYTES,
            memory_total_bytes=_MEMORY_BYTES,
            ecc_corrected_total=float(8 * self._uncorrected),
            ecc_uncorrected_total=float(self._uncorrected),
            row_remap_pending_ratio=1.0 if self._uncorrected else 0.0,
            row_remap_failed_ratio=0.0,
            pcie_replay_total=0.0,
            throttle_active_ratio=_THROTTLED[hot, braked],
        )


_THROTTLED: Mapping[tuple[bool, bool], Labelled] = {
    (hot, braked): (("power_cap", 0.0), ("hardware_thermal", float(hot)), ("power_brake", float(braked)))
    for hot in (False, True)
    for braked in (False, True)
}
"""What lowers the clocks, by whether it is hot and braked: of thousands of parts each reading shares one of four."""


def parts(*, host: HostName, gpus: int, seed: int) -> list[SimGpu]:
    """As many healthy parts, named as the burn-in's `sim` backend names them."""
    return [SimGpu(gpu=GpuId(f"SIM-{host}-{n:02d}"), sku="simulated", seed=seed) for n in range(gpus)]


def pci_address(index: int) -> str:
    """Where the GPU with this index sits on the bus of every simulated host; the kernel names it so."""
    return f"0000:{0x10 + index:02x}:00.0"


class SimDevices:
    """The `Devices` port over simulated parts."""

    def __init__(
        self,
        *,
        host: HostName,
        gpus: int,
        seed: int,
        clock: Clock,
        built_in: Sequence[SimGpu] | None = None,
        driver_hangs: bool = False,
    ) -> None:
        """Open the driver.

        Args:
            host: names the parts.
            gpus: how many, unless `built_in` says which.
            seed: of their readings.
            clock: of the host.
            built_in: the parts of this host, by index; they may get into trouble at any time.
            driver_hangs: no call is answered.
        """
        self._clock = clock
        self._parts = tuple(built_in) if built_in is not None else tuple(parts(host=host, gpus=gpus, seed=seed))
        self._troubles: dict[GpuId, str] = {}
        self.driver_hangs = driver_hangs

    @property
    def troubles(self) -> Mapping[GpuId, str]:
        """The parts that gave no answer to the last `sample()`."""
        return self._troubles

    async def inventory(self) -> tuple[Gpu, ...]:
        """The parts that are on the bus, in order of their index. Raises DeviceError when the driver hangs."""
        self._ask()
        return tuple(
            Gpu(gpu=part.gpu, index=index, vendor="sim", sku=part.sku, pci_address=pci_address(index))
            for index, part in enumerate(self._parts)
            if Trouble.LOST not in part.troubles
        )

    async def sample(self) -> tuple[GpuSample, ...]:
        """One reading of each that answers. Raises DeviceError when the driver hangs or no part answers."""
        self._ask()
        at_s, elapsed_s = self._clock.wall_s(), self._clock.elapsed_s()
        self._troubles = {}
        samples = []
        for part in self._parts:
            if part.troubles and not SILENT.isdisjoint(part.troubles):
                self._troubles[part.gpu] = "the simulated GPU does not answer"
            else:
                samples.append(part.read(at_s=at_s, elapsed_s=elapsed_s))
        if not samples:
            raise DeviceError("no simulated GPU answers")
        return tuple(samples)

    async def close(self) -> str:
        """Nothing is held."""
        return ""

    def _ask(self) -> None:
        if self.driver_hangs:
            raise DeviceError("the simulated driver does not answer")
