# ruff: noqa: RUF009 - the calls describe fields, as dataclasses.field does
"""THE metric catalogue: one dataclass whose fields are the fleet's metrics, with unit, kind and help.

A field's name is the metric without the `fleetd_gpu_` prefix, the proto field, the policy variable and the column.
A *metric* is one number of a GPU. A *family* is one number for each link, ECC block or throttle reason of it: a tuple
of (label value, number) in the order of the links, blocks or reasons, at most `LABELS_MAX` long, whose label has the
same name everywhere. Exporter, wire format and helper process follow from `METRICS` and `FAMILIES`; no list of them
exists twice.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from fleetd.model.ids import GpuId

Kind = Literal["gauge", "counter"]
Labelled = tuple[tuple[str, float], ...]
"""Numbers by label value, without repeats; empty: not supported by the part or not read this time."""
LABELS_MAX = 36
"""Label values of a family of one GPU. NVML names at most 36 links; an MI300X has 20 ECC blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One entry of the catalogue."""

    name: str
    kind: Kind
    help: str
    label: str | None = None
    """Name of the label of a family; None: a single number."""


def _metric(kind: Kind, help_text: str) -> Any:
    return field(default=None, metadata={"kind": kind, "help": help_text, "label": None})


def _family(kind: Kind, label: str, help_text: str) -> Any:
    return field(default=(), metadata={"kind": kind, "help": help_text, "label": label})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One reading of one GPU. Prometheus base units; None: not supported by the part or not read this time."""

    gpu: GpuId
    at_s: float
    """Wall time of the reading, seconds since the epoch."""

    # power and energy
    power_watts: float | None = _metric("gauge", "Board power, averaged over the vendor's window (NVML: about 1 s).")
    power_instant_watts: float | None = _metric(
        "gauge", "Board power, the newest instant reading of the vendor (a new one every 50 to 100 ms)."
    )
    power_limit_watts: float | None = _metric("gauge", "Power limit that is enforced now.")
    power_limit_requested_watts: float | None = _metric(
        "gauge", "Power limit that was asked for; a lower one may be enforced."
    )
    power_limit_default_watts: float | None = _metric("gauge", "Power limit after the driver was loaded.")
    power_limit_min_watts: float | None = _metric("gauge", "Lowest power limit that the part accepts.")
    power_limit_max_watts: float | None = _metric("gauge", "Highest power limit that the part accepts.")
    energy_joules_total: float | None = _metric("counter", "Energy since the driver was loaded.")

    # temperatures
    temperature_celsius: float | None = _metric("gauge", "GPU core temperature (AMD: junction), instant.")
    memory_temperature_celsius: float | None = _metric("gauge", "HBM temperature, instant.")
    temperature_margin_celsius: float | None = _metric(
        "gauge", "Distance to the temperature that lowers the clocks; below 0: beyond it."
    )

    # clocks
    sm_clock_hertz: float | None = _metric("gauge", "SM/CU clock, instant.")
    sm_clock_max_hertz: float | None = _metric("gauge", "Highest SM/CU clock of the part.")
    memory_clock_hertz: float | None = _metric("gauge", "Memory clock, instant.")
    memory_clock_max_hertz: float | None = _metric("gauge", "Highest memory clock of the part.")

    # use
    utilization_ratio: float | None = _metric(
        "gauge", "Share of the vendor's window with at least one kernel running (NVML: 1/6 to 1 s)."
    )
    memory_utilization_ratio: float | None = _metric(
        "gauge", "Share of the vendor's window in which memory was read or written."
    )
    encoder_utilization_ratio: float | None = _metric(
        "gauge", "Share of the vendor's window with the video encoder busy."
    )
    decoder_utilization_ratio: float | None = _metric(
        "gauge", "Share of the vendor's window with the video decoder busy."
    )
    memory_used_bytes: float | None = _metric("gauge", "Device memory in use.")
    memory_reserved_bytes: float | None = _metric(
        "gauge", "Device memory that driver and firmware keep for themselves."
    )
    memory_total_bytes: float | None = _metric("gauge", "Device memory of the part.")
    processes: float | None = _metric("gauge", "Processes that hold the GPU for computing.")
    process_memory_bytes: float | None = _metric(
        "gauge", "Device memory of the processes that hold the GPU for computing, summed."
    )

    # efficiency (NVIDIA: GPM, Hopper and newer; AMD: accumulators of gpu_metrics), mean between two readings
    graphics_active_ratio: float | None = _metric(
        "gauge", "Share of time with any kernel running, mean between two readings."
    )
    sm_active_ratio: float | None = _metric("gauge", "SMs/CUs that had work, mean between two readings.")
    sm_occupancy_ratio: float | None = _metric(
        "gauge", "Resident warps by the most that fit, mean between two readings."
    )
    tensor_active_ratio: float | None = _metric(
        "gauge", "Share of time with the tensor cores busy, mean between two readings."
    )
    fp64_active_ratio: float | None = _metric(
        "gauge", "Share of time with the FP64 pipes busy (no tensor cores), mean between two readings."
    )
    fp32_active_ratio: float | None = _metric(
        "gauge", "Share of time with the FP32 pipes busy (no tensor cores), mean between two readings."
    )
    fp16_active_ratio: float | None = _metric(
        "gauge", "Share of time with the FP16 pipes busy (no tensor cores), mean between two readings."
    )
    dram_active_ratio: float | None = _metric(
        "gauge", "Memory bandwidth by the highest of the part, mean between two readings."
    )

    # memory health
    ecc_enabled_ratio: float | None = _metric("gauge", "1 when ECC is on, else 0.")
    ecc_corrected_total: float | None = _metric("counter", "Corrected memory errors since the driver was loaded.")
    ecc_uncorrected_total: float | None = _metric("counter", "Uncorrected memory errors since the driver was loaded.")
    ecc_deferred_total: float | None = _metric(
        "counter", "Uncorrected errors that nothing has used yet (AMD), since the driver was loaded."
    )
    row_remap_correctable_total: float | None = _metric(
        "counter", "Rows remapped for corrected errors in the life of the part."
    )
    row_remap_uncorrectable_total: float | None = _metric(
        "counter", "Rows remapped for uncorrected errors in the life of the part."
    )
    row_remap_pending_ratio: float | None = _metric("gauge", "1 when a row remap waits for a reset, else 0.")
    row_remap_failed_ratio: float | None = _metric("gauge", "1 when a row remap has failed, else 0.")
    bad_pages_total: float | None = _metric("counter", "Memory pages retired in the life of the part.")
    bad_pages_pending: float | None = _metric("gauge", "Memory pages that wait for a reset to be retired.")
    recovery_action: float | None = _metric(
        "gauge",
        "Asked for by the driver: 0 nothing, 1 GPU reset, 2 reboot, 3 drain of peers, 4 drain and reset, "
        "5 recovery of the fabric's domain, 6 bus reset, 7 reboot of the system.",
    )

    # PCIe
    pcie_link_generation: float | None = _metric(
        "gauge", "PCIe generation of the link now; an idle link may be slower on purpose."
    )
    pcie_link_generation_max: float | None = _metric("gauge", "PCIe generation that slot and GPU can reach.")
    pcie_link_width: float | None = _metric("gauge", "PCIe lanes in use.")
    pcie_link_width_max: float | None = _metric("gauge", "PCIe lanes that slot and GPU have.")
    pcie_replay_total: float | None = _metric("counter", "PCIe replays since the driver was loaded.")
    pcie_nak_sent_total: float | None = _metric("counter", "PCIe NAKs sent since the driver was loaded.")
    pcie_nak_received_total: float | None = _metric("counter", "PCIe NAKs received since the driver was loaded.")
    pcie_recovery_total: float | None = _metric(
        "counter", "Transitions of the PCIe link from L0 to recovery since the driver was loaded."
    )
    pcie_receive_bytes_per_second: float | None = _metric(
        "gauge", "PCIe traffic to the GPU, mean between two readings."
    )
    pcie_transmit_bytes_per_second: float | None = _metric(
        "gauge", "PCIe traffic from the GPU, mean between two readings."
    )

    # fabric: NVLink, xGMI
    fabric_receive_bytes_per_second: float | None = _metric(
        "gauge", "Fabric traffic to the GPU over all links, mean between two readings."
    )
    fabric_transmit_bytes_per_second: float | None = _metric(
        "gauge", "Fabric traffic from the GPU over all links, mean between two readings."
    )

    # families
    throttle_active_ratio: Labelled = _family("gauge", "reason", "1 while this reason lowers the clocks, else 0.")
    throttle_seconds_total: Labelled = _family(
        "counter",
        "reason",
        "Time for which this reason lowered the clocks, since the driver was loaded (AMD: power_cap is PPT residency).",
    )
    ecc_block_corrected_total: Labelled = _family(
        "counter", "block", "Corrected errors of one block since the driver was loaded."
    )
    ecc_block_uncorrected_total: Labelled = _family(
        "counter", "block", "Uncorrected errors of one block since the driver was loaded."
    )
    ecc_block_deferred_total: Labelled = _family(
        "counter", "block", "Deferred errors of one block (AMD) since the driver was loaded."
    )
    fabric_link_up_ratio: Labelled = _family(
        "gauge", "link", "1 when the link is up, else 0; a link that the board does not wire has no sample."
    )
    fabric_link_crc_errors_total: Labelled = _family(
        "counter", "link", "CRC errors of the link since the driver was loaded."
    )
    fabric_link_replay_errors_total: Labelled = _family(
        "counter", "link", "Replays of the link since the driver was loaded."
    )
    fabric_link_recovery_errors_total: Labelled = _family(
        "counter", "link", "Recoveries of the link since the driver was loaded."
    )
    fabric_link_receive_bytes_total: Labelled = _family(
        "counter", "link", "Data received over the link since the driver was loaded."
    )
    fabric_link_transmit_bytes_total: Labelled = _family(
        "counter", "link", "Data sent over the link since the driver was loaded."
    )
    implausible_readings_total: Labelled = _family(
        "counter", "metric", "Readings left out because they cannot be true, since the helper started."
    )


class Vitals(Protocol):
    """The few readings of a GPU that a controller looks at in every message; a `GpuSample` has them too."""

    @property
    def gpu(self) -> GpuId:
        """Whose."""

    @property
    def at_s(self) -> float:
        """As `GpuSample.at_s`; the others are the metrics of these names."""

    @property
    def power_watts(self) -> float | None: ...  # noqa: D102 - see `at_s`
    @property
    def temperature_celsius(self) -> float | None: ...  # noqa: D102
    @property
    def sm_clock_hertz(self) -> float | None: ...  # noqa: D102
    @property
    def utilization_ratio(self) -> float | None: ...  # noqa: D102


VITALS = ("power_watts", "temperature_celsius", "sm_clock_hertz", "utilization_ratio")
"""The metrics of `Vitals`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """One reading of all GPUs of a host. What nobody reads of it need not have been decoded."""

    vitals: Sequence[Vitals]
    whole: Callable[[], tuple[GpuSample, ...]]
    """Returns all of it, in the same order; empty when it turns out not to be readable. Never raises."""

    @classmethod
    def of(cls, samples: Iterable[GpuSample]) -> "Telemetry":
        """Telemetry that is there already."""
        kept = tuple(samples)
        return cls(vitals=kept, whole=lambda: kept)


def _entries(*, labelled: bool) -> tuple[Metric, ...]:
    found = (
        Metric(name=f.name, kind=f.metadata["kind"], help=f.metadata["help"], label=f.metadata["label"])
        for f in fields(GpuSample)
        if f.metadata
    )
    return tuple(metric for metric in found if (metric.label is not None) == labelled)


METRICS: tuple[Metric, ...] = _entries(labelled=False)
"""The single numbers, in declaration order."""
FAMILIES: tuple[Metric, ...] = _entries(labelled=True)
"""The families, in declaration order."""
THROTTLE_REASONS = (
    *("power_cap", "software_thermal", "hardware_thermal", "hardware_slowdown", "power_brake", "sync_boost"),
    *("board_limit", "low_utilization", "reliability", "prochot", "socket_thermal", "vr_thermal", "hbm_thermal"),
)
"""Values of the label `reason`. Both vendors share `power_cap` (NVIDIA SwPowerCap, AMD PPT)."""
