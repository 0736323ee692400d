"""What the benchmark reads of an NVIDIA GPU while it is under load. Reads only: nothing here sets anything.

The 20 ms power ring (`nvmlDeviceGetSamples`) is the only source that shows an excursion; the plain power reading is a
one-second average. The energy counter costs 4 ms of CPU a call on an H200, so it is read at the ends only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Any

RING_MAX_WATTS = 10_000.0
"""Samples above are no readings (a blank sentinel is UINT32_MAX milliwatts)."""


class Sensors:
    """One GPU's NVML handle; everything is None or empty where the driver or the part has it not."""

    def __init__(self, gpu: str) -> None:
        """Open by UUID (`GPU-…`)."""
        self._nvml: Any = None
        self._handle: Any = None
        self._last_us = 0
        try:
            nvml = import_module("pynvml")
        except ImportError:
            return
        try:
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
        except nvml.NVMLError:
            return  # another vendor's GPU, or no driver
        self._nvml = nvml

    def _read(self, name: str, *args: int) -> Any:
        if self._nvml is None:
            return None
        try:
            return getattr(self._nvml, name)(self._handle, *args)
        except self._nvml.NVMLError:
            return None

    def driver(self) -> str | None:
        """The driver's version."""
        if self._nvml is None:
            return None
        try:
            return str(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError:
            return None

    def settings(self) -> dict[str, Any]:
        """Every limit, clock and mode that somebody could have set."""
        n = self._nvml
        if n is None:
            return {}
        names: dict[str, tuple[Any, ...]] = {
            "power_limit_milliwatts": ("nvmlDeviceGetPowerManagementLimit",),
            "power_limit_enforced_milliwatts": ("nvmlDeviceGetEnforcedPowerLimit",),
            "application_clock_sm_megahertz": ("nvmlDeviceGetApplicationsClock", n.NVML_CLOCK_SM),
            "application_clock_memory_megahertz": ("nvmlDeviceGetApplicationsClock", n.NVML_CLOCK_MEM),
            "persistence_mode": ("nvmlDeviceGetPersistenceMode",),
            "compute_mode": ("nvmlDeviceGetComputeMode",),
            "ecc_mode": ("nvmlDeviceGetEccMode",),
            "mig_mode": ("nvmlDeviceGetMigMode",),
            "auto_boost": ("nvmlDeviceGetAutoBoostedClocksEnabled",),
        }
        read = {name: self._read(*call) for name, call in names.items()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in read.items()}

    def clock_hertz(self) -> float | None:
        """The SM clock now."""
        megahertz = self._read("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM) if self._nvml else None
        return megahertz * 1e6 if megahertz is not None else None

    def temperature_celsius(self) -> float | None:
        """The core temperature now."""
        celsius = self._read("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU) if self._nvml else None
        return float(celsius) if celsius is not None else None

    def limited(self) -> str:
        """A throttle reason that makes a point say nothing about the power limit; tested bit by bit."""
        if self._nvml is None:
            return ""
        bits = self._read("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        words = {
            "HwThermalSlowdown": "hardware thermal slowdown",
            "SwThermalSlowdown": "software thermal slowdown",
            "HwPowerBrakeSlowdown": "hardware power brake",
        }
        found = [text for name, text in words.items() if bits & getattr(self._nvml, f"nvmlClocksThrottleReason{name}")]
        return ", ".join(found)

    def energy_joules(self) -> float | None:
        """The energy counter (mJ)."""
        millijoules = self._read("nvmlDeviceGetTotalEnergyConsumption")
        return millijoules / 1e3 if millijoules is not None else None

    def ring(self) -> list[tuple[float, float]]:
        """The power samples since the last call: (seconds on the driver's clock, watts), oldest first."""
        if self._nvml is None:
            return []
        got = self._read("nvmlDeviceGetSamples", self._nvml.NVML_TOTAL_POWER_SAMPLES, self._last_us)
        if got is None:
            return []
        samples = []
        for sample in got[1]:
            watts = sample.sampleValue.uiVal / 1e3
            if sample.timeStamp > self._last_us and 0.0 < watts < RING_MAX_WATTS:
                samples.append((sample.timeStamp / 1e6, watts))
        if samples:
            self._last_us = int(max(at for at, _ in samples) * 1e6)
        return sorted(samples)


@contextmanager
def watching(sensors: Sensors) -> Iterator[list[tuple[float, float]]]:
    """The power samples of a stretch of time; the list is filled at its end (the driver keeps about 2.3 s)."""
    sensors.ring()
    found: list[tuple[float, float]] = []
    yield found
    found.extend(sensors.ring())


def integrate(samples: list[tuple[float, float]]) -> float:
    """Joules by the trapezoid rule over (seconds, watts)."""
    return sum(0.5 * (w0 + w1) * (t1 - t0) for (t0, w0), (t1, w1) in pairwise(samples))
