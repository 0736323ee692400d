"""Simulated GPUs: plausible readings that wander slowly, from a seed."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId, HostName
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock

_POWER_LIMIT_WATTS = 700.0
_MEMORY_BYTES = float(141 * 1024**3)


@dataclass(slots=True, kw_only=True)
class _Walk:
    """A random walk that is pulled back to its home, so that it neither escapes nor sticks to a border."""

    home: float
    step: float
    value: float

    def next(self, rng: random.Random) -> float:
        """Move once; stays within about four steps of home (standard deviation: 1.7 steps)."""
        self.value += 0.2 * (self.home - self.value) + self.step * rng.uniform(-1.0, 1.0) * 1.8
        return self.value


@dataclass(slots=True, kw_only=True)
class _Part:
    """State of one simulated GPU."""

    gpu: GpuId
    rng: random.Random
    power: _Walk
    temperature: _Walk
    clock: _Walk
    energy_joules: float = 0.0
    read_at_s: float | None = None


class SimDevices:
    """The `Devices` port over `gpus` simulated GPUs, named as the burn-in's `sim` backend names them."""

    def __init__(self, *, host: HostName, gpus: int, seed: int, clock: Clock) -> None:
        self._clock = clock
        self._parts = tuple(_part(host, index, seed) for index in range(gpus))

    @property
    def troubles(self) -> Mapping[GpuId, str]:
        """A simulated GPU always answers."""
        return {}

    async def inventory(self) -> tuple[Gpu, ...]:
        """The simulated GPUs, in order of their index."""
        return tuple(
            Gpu(gpu=part.gpu, index=index, vendor="sim", sku="simulated", pci_address=None)
            for index, part in enumerate(self._parts)
        )

    async def sample(self) -> tuple[GpuSample, ...]:
        """One reading of each; every call moves the walks one step."""
        return tuple(_read(part, at_s=self._clock.wall_s(), elapsed_s=self._clock.elapsed_s()) for part in self._parts)

    async def close(self) -> None:
        """Nothing is held."""


def _part(host: HostName, index: int, seed: int) -> _Part:
    gpu = GpuId(f"SIM-{host}-{index:02d}")
    rng = random.Random(f"{seed}/{gpu}")  # noqa: S311 - a simulation
    power, temperature, clock = rng.uniform(560.0, 660.0), rng.uniform(52.0, 68.0), rng.uniform(1.45e9, 1.65e9)
    return _Part(
        gpu=gpu,
        rng=rng,
        power=_Walk(home=power, step=8.0, value=power),
        temperature=_Walk(home=temperature, step=0.4, value=temperature),
        clock=_Walk(home=clock, step=1.5e7, value=clock),
    )


def _read(part: _Part, *, at_s: float, elapsed_s: float) -> GpuSample:
    power = min(part.power.next(part.rng), _POWER_LIMIT_WATTS)
    if part.read_at_s is not None:
        part.energy_joules += power * (elapsed_s - part.read_at_s)
    part.read_at_s = elapsed_s
    temperature = part.temperature.next(part.rng)
    return GpuSample(
        gpu=part.gpu,
        at_s=at_s,
        power_watts=power,
        power_instant_watts=power,
        power_limit_watts=_POWER_LIMIT_WATTS,
        energy_joules_total=part.energy_joules,
        temperature_celsius=temperature,
        memory_temperature_celsius=temperature + 6.0,
        sm_clock_hertz=part.clock.next(part.rng),
        memory_clock_hertz=3.201e9,
        utilization_ratio=1.0,
        memory_used_bytes=0.8 * _MEMORY_BYTES,
        memory_total_bytes=_MEMORY_BYTES,
        ecc_corrected_total=0.0,
        ecc_uncorrected_total=0.0,
        row_remap_pending_ratio=0.0,
        row_remap_failed_ratio=0.0,
        pcie_replay_total=0.0,
        throttle_power_ratio=0.0,
        throttle_thermal_ratio=0.0,
        throttle_power_brake_ratio=0.0,
    )
