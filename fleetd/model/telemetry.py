"""THE metric catalogue: one dataclass whose fields are the fleet's metrics, with unit, kind and help.

A field's name is the metric without the `fleetd_gpu_` prefix, the proto field, the policy variable and the column.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from fleetd.model.ids import GpuId

Kind = Literal["gauge", "counter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One entry of the catalogue."""

    name: str
    kind: Kind
    help: str


def _metric(kind: Kind, help_text: str) -> Any:
    return field(default=None, metadata={"kind": kind, "help": help_text})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One reading of one GPU. Prometheus base units; None: not supported by the part or not read this time."""

    gpu: GpuId
    at_s: float
    """Wall time of the reading, seconds since the epoch."""
    power_watts: float | None = _metric("gauge", "Board power, averaged over the vendor's window (NVML: about 1 s).")
    power_instant_watts: float | None = _metric("gauge", "Board power, the newest instant reading of the vendor.")
    power_limit_watts: float | None = _metric("gauge", "Power limit that is enforced now.")
    energy_joules_total: float | None = _metric("counter", "Energy since the driver was loaded.")
    temperature_celsius: float | None = _metric("gauge", "GPU core temperature (AMD: junction).")
    memory_temperature_celsius: float | None = _metric("gauge", "HBM temperature.")
    sm_clock_hertz: float | None = _metric("gauge", "SM/CU clock.")
    memory_clock_hertz: float | None = _metric("gauge", "Memory clock.")
    utilization_ratio: float | None = _metric("gauge", "Share of the vendor's window with at least one kernel running.")
    memory_used_bytes: float | None = _metric("gauge", "Device memory in use.")
    memory_total_bytes: float | None = _metric("gauge", "Device memory of the part.")
    ecc_corrected_total: float | None = _metric("counter", "Corrected memory errors since the driver was loaded.")
    ecc_uncorrected_total: float | None = _metric("counter", "Uncorrected memory errors since the driver was loaded.")
    row_remap_pending_ratio: float | None = _metric("gauge", "1 when a row remap waits for a reset, else 0.")
    row_remap_failed_ratio: float | None = _metric("gauge", "1 when a row remap has failed, else 0.")
    pcie_replay_total: float | None = _metric("counter", "PCIe replays since the driver was loaded.")
    throttle_power_ratio: float | None = _metric("gauge", "1 while a power limit lowers the clocks, else 0.")
    throttle_thermal_ratio: float | None = _metric("gauge", "1 while temperature lowers the clocks, else 0.")
    throttle_power_brake_ratio: float | None = _metric("gauge", "1 while the hardware power brake is on, else 0.")


METRICS: tuple[Metric, ...] = tuple(
    Metric(name=f.name, kind=f.metadata["kind"], help=f.metadata["help"]) for f in fields(GpuSample) if f.metadata
)
"""The catalogue in declaration order."""
