"""Sensor map by part, as data: which source gives the average and which the instant, and what a part does not have.

Readers look a part up by its name; `metrics_table.py` makes the documentation of it. Stdlib only: the helper is small.
"""

from dataclasses import dataclass

from fleetd.model.telemetry import METRICS

_GPM = (
    *("graphics_active_ratio", "sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "fp64_active_ratio"),
    *("fp32_active_ratio", "fp16_active_ratio", "dram_active_ratio"),
    *("pcie_receive_bytes_per_second", "pcie_transmit_bytes_per_second"),
    *("fabric_receive_bytes_per_second", "fabric_transmit_bytes_per_second"),
)
_AMD_ONLY = ("ecc_deferred_total", "bad_pages_total", "bad_pages_pending", "ecc_block_deferred_total")
_AMD_ABSENT = (
    *("sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio"),
    *("fp64_active_ratio", "fp32_active_ratio", "fp16_active_ratio"),
    *("temperature_margin_celsius", "encoder_utilization_ratio", "decoder_utilization_ratio"),
    *("memory_reserved_bytes", "ecc_enabled_ratio", "recovery_action"),
    *("pcie_receive_bytes_per_second", "pcie_transmit_bytes_per_second"),
    *(metric.name for metric in METRICS if metric.name.startswith("row_remap_")),
    *("fabric_link_crc_errors_total", "fabric_link_replay_errors_total", "fabric_link_recovery_errors_total"),
    "throttle_active_ratio",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is particular to the sensors of one part."""

    name: str
    """Found in the product's name, as the vendor's library tells it."""
    vendor: str
    power_average: str | None
    """Source of `power_watts`; None: the part has no average."""
    average_window_seconds: float | None
    power_instant: str | None
    """Source of `power_instant_watts`."""
    absent: tuple[str, ...]
    """Entries of the catalogue that the part, or its reader, does not have."""
    basis: str
    """What this row rests on."""


def _nvidia(name: str, basis: str) -> Part:
    return Part(
        name=name,
        vendor="nvidia",
        power_average="nvmlDeviceGetPowerUsage",
        average_window_seconds=1.0,
        power_instant="NVML_FI_DEV_POWER_INSTANT",
        absent=_AMD_ONLY,
        basis=basis,
    )


def _mi300(name: str) -> Part:
    return Part(
        name=name,
        vendor="amd",
        power_average=None,
        average_window_seconds=None,
        power_instant="amdsmi_get_power_info.current_socket_power",
        absent=("power_watts", *_AMD_ABSENT),
        basis="vendor's documents, not run",
    )


PARTS: tuple[Part, ...] = (
    # nvml.h: before Ampere, and on GA100, nvmlDeviceGetPowerUsage is the present power and no average.
    Part(
        name="A100",
        vendor="nvidia",
        power_average=None,
        average_window_seconds=None,
        power_instant="nvmlDeviceGetPowerUsage",
        absent=("power_watts", *_GPM, *_AMD_ONLY),
        basis="vendor's documents, not run",
    ),
    _nvidia("H100", "as H200, not run"),
    _nvidia("H200", "measured"),
    _nvidia("B200", "vendor's documents, not run"),
    _mi300("MI300X"),
    _mi300("MI325X"),
    _mi300("MI350X"),
    _mi300("MI355X"),
)
"""The parts whose sensors are known. Any other is read as the newest of its vendor, and what it lacks is absent."""


def part_of(product: str) -> Part | None:
    """The part of a product's name; None when it is none of the map's."""
    return next((part for part in PARTS if part.name in product), None)
