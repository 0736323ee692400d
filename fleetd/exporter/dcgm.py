"""The names of dcgm-exporter, for both vendors, so that dashboards and alerts go on working on a mixed fleet.

Names, types and labels as its default counters have them (and those of its commented ones that fleetd reads); units as
DCGM has them: MHz, W, mJ, °C, %, MiB, ns. What fleetd does not read (licences, lifetime ECC totals) is not there.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client.metrics_core import Metric

from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.job import GpuJob
from fleetd.model.status import AgentStatus, FaultCount
from fleetd.model.telemetry import GpuSample, Labelled

_XID = "nvidia.xid."
_MIB = 2.0**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One line of dcgm-exporter's counters file."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    read: Callable[[GpuSample], float | None]
    """None: absent."""


def _scaled(field: str, times: float, over: float) -> Callable[[GpuSample], float | None]:
    """Divides rather than multiplying by a fraction, so that whole megahertz stay whole."""

    def read(sample: GpuSample) -> float | None:
        value: float | None = getattr(sample, field)
        return None if value is None else value * times / over

    return read


def _summed(family: str) -> Callable[[GpuSample], float | None]:
    def read(sample: GpuSample) -> float | None:
        readings: Labelled = getattr(sample, family)
        return sum(number for _, number in readings) if readings else None

    return read


def _throttled(*reasons: str) -> Callable[[GpuSample], float | None]:
    """Nanoseconds for which any of these reasons was told; several at once count for each."""

    def read(sample: GpuSample) -> float | None:
        found = [seconds for reason, seconds in sample.throttle_seconds_total if reason in reasons]
        return 1e9 * sum(found) if found else None

    return read


def _power(sample: GpuSample) -> float | None:
    """Parts without an average tell the present power."""
    return sample.power_instant_watts if sample.power_watts is None else sample.power_watts


def _free(sample: GpuSample) -> float | None:
    if sample.memory_total_bytes is None or sample.memory_used_bytes is None:
        return None
    return (sample.memory_total_bytes - sample.memory_used_bytes - (sample.memory_reserved_bytes or 0.0)) / _MIB


def _gauge(name: str, help_text: str, field: str, *, times: float = 1.0, over: float = 1.0) -> Counter:
    return Counter(name=name, kind="gauge", help=help_text, read=_scaled(field, times, over))


def _counter(name: str, help_text: str, field: str, *, times: float = 1.0) -> Counter:
    return Counter(name=name, kind="counter", help=help_text, read=_scaled(field, times, 1.0))


def _derived(
    kind: Literal["gauge", "counter"], name: str, help_text: str, read: Callable[[GpuSample], float | None]
) -> Counter:
    return Counter(name=name, kind=kind, help=help_text, read=read)


COUNTERS: tuple[Counter, ...] = (
    _gauge("DCGM_FI_DEV_SM_CLOCK", "SM/CU clock in MHz.", "sm_clock_hertz", over=1e6),
    _gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock in MHz.", "memory_clock_hertz", over=1e6),
    _gauge("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature in °C.", "memory_temperature_celsius"),
    _gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature in °C.", "temperature_celsius"),
    _derived("gauge", "DCGM_FI_DEV_POWER_USAGE", "Power in W.", _power),
    _counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy in mJ.", "energy_joules_total", times=1e3),
    _gauge("DCGM_FI_PROF_PCIE_TX_BYTES", "PCIe data sent, bytes a second.", "pcie_transmit_bytes_per_second"),
    _gauge("DCGM_FI_PROF_PCIE_RX_BYTES", "PCIe data received, bytes a second.", "pcie_receive_bytes_per_second"),
    _counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe replays.", "pcie_replay_total"),
    _gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilisation in %.", "utilization_ratio", times=100.0),
    _gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilisation in %.", "memory_utilization_ratio", times=100.0),
    _gauge("DCGM_FI_DEV_ENC_UTIL", "Encoder utilisation in %.", "encoder_utilization_ratio", times=100.0),
    _gauge("DCGM_FI_DEV_DEC_UTIL", "Decoder utilisation in %.", "decoder_utilization_ratio", times=100.0),
    _derived(
        "counter", "DCGM_FI_DEV_POWER_VIOLATION", "Time throttled by the power limit, ns.", _throttled("power_cap")
    ),
    _derived(
        "counter",
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        "Time throttled by temperature, ns.",
        _throttled("software_thermal", "hardware_thermal", "socket_thermal", "vr_thermal", "hbm_thermal"),
    ),
    _derived(
        "counter", "DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "Time throttled by sync boost, ns.", _throttled("sync_boost")
    ),
    _derived(
        "counter",
        "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
        "Time throttled by the board's limit, ns.",
        _throttled("board_limit"),
    ),
    _derived(
        "counter",
        "DCGM_FI_DEV_LOW_UTIL_VIOLATION",
        "Time throttled for low utilisation, ns.",
        _throttled("low_utilization"),
    ),
    _derived(
        "counter", "DCGM_FI_DEV_RELIABILITY_VIOLATION", "Time throttled for reliability, ns.", _throttled("reliability")
    ),
    _derived("gauge", "DCGM_FI_DEV_FB_FREE", "Free device memory in MiB.", _free),
    _gauge("DCGM_FI_DEV_FB_USED", "Used device memory in MiB.", "memory_used_bytes", over=_MIB),
    _gauge("DCGM_FI_DEV_FB_RESERVED", "Reserved device memory in MiB.", "memory_reserved_bytes", over=_MIB),
    _counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Corrected errors since the driver was loaded.", "ecc_corrected_total"),
    _counter(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Uncorrected errors since the driver was loaded.", "ecc_uncorrected_total"
    ),
    _derived(
        "counter",
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "CRC errors of all links.",
        _summed("fabric_link_crc_errors_total"),
    ),
    _derived(
        "counter",
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        "Replays of all links.",
        _summed("fabric_link_replay_errors_total"),
    ),
    _derived(
        "counter",
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "Recoveries of all links.",
        _summed("fabric_link_recovery_errors_total"),
    ),
    _counter(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Rows remapped for uncorrected errors.",
        "row_remap_uncorrectable_total",
    ),
    _counter(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Rows remapped for corrected errors.", "row_remap_correctable_total"
    ),
    _gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "1 when a row remap has failed.", "row_remap_failed_ratio"),
    _gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Time with any kernel running.", "graphics_active_ratio"),
    _gauge("DCGM_FI_PROF_SM_ACTIVE", "SMs that had work.", "sm_active_ratio"),
    _gauge("DCGM_FI_PROF_SM_OCCUPANCY", "Resident warps by the most that fit.", "sm_occupancy_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Time with the tensor cores busy.", "tensor_active_ratio"),
    _gauge("DCGM_FI_PROF_DRAM_ACTIVE", "Memory bandwidth by the highest of the part.", "dram_active_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "Time with the FP64 pipes busy.", "fp64_active_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "Time with the FP32 pipes busy.", "fp32_active_ratio"),
    _gauge("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "Time with the FP16 pipes busy.", "fp16_active_ratio"),
)
"""In the order of dcgm-exporter's file; `DCGM_FI_DEV_XID_ERRORS`, which is no reading, is made of the findings."""


class DcgmCollector:
    """Serves `COUNTERS`. The families stay the same objects until something of them changes."""

    def __init__(
        self,
        status: Callable[[], AgentStatus],
        *,
        host: str,
        faults: Callable[[], Sequence[FaultCount]] = tuple,
        jobs: Callable[[], Sequence[GpuJob]] = tuple,
    ) -> None:
        self._status = status
        self._host = host
        self._faults = faults
        self._jobs = jobs
        self._from: tuple[object, ...] = ()
        self._families: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        """Every counter that at least one GPU has."""
        status = self._status()
        made_from = (status.samples, status.inventory, tuple(self._jobs()), tuple(self._faults()))
        same = len(made_from) == len(self._from) and all(
            a is b or a == b for a, b in zip(made_from, self._from, strict=True)
        )
        if not same:
            self._from, self._families = made_from, self._made(status, made_from[2], made_from[3])
        return self._families

    def _made(self, status: AgentStatus, jobs: Sequence[GpuJob], faults: Sequence[FaultCount]) -> list[Metric]:
        labels = {gpu.gpu: self._labels(gpu, jobs) for gpu in status.inventory}
        known = [(sample, labels[sample.gpu]) for sample in status.samples if sample.gpu in labels]
        families: list[Metric] = []
        for counter in COUNTERS:
            family = Metric(counter.name, counter.help, counter.kind)
            for sample, labelled in known:
                value = counter.read(sample)
                if value is not None:
                    family.add_sample(counter.name, labelled, value)
            families.append(family)
        xids = Metric("DCGM_FI_DEV_XID_ERRORS", "The last XID, 0 if there was none since the agent started.", "gauge")
        for gpu in status.inventory:
            if gpu.vendor == "nvidia":
                xids.add_sample(xids.name, labels[gpu.gpu], _last_xid(faults, gpu.gpu))
        return [family for family in (*families, xids) if family.samples]

    def _labels(self, gpu: Gpu, jobs: Sequence[GpuJob]) -> dict[str, str]:
        labels = {
            "gpu": str(gpu.index),
            "UUID": gpu.gpu,
            "pci_bus_id": _bus_id(gpu.pci_address or ""),
            "device": f"{gpu.vendor}{gpu.index}",
            "modelName": gpu.sku,
            "Hostname": self._host,
            "DCGM_FI_DRIVER_VERSION": gpu.driver_version or "",
        }
        users = [job for job in jobs if job.gpu == gpu.gpu]
        # Of a shared GPU the readings belong to no one of them; who shares it stands in fleetd_gpu_job_info.
        if len(users) == 1 and users[0].scheduler == "kubernetes":
            user = users[0]
            labels |= {"namespace": user.namespace or "", "pod": user.pod or "", "container": user.container or ""}
        return labels


def _last_xid(faults: Sequence[FaultCount], gpu: GpuId) -> float:
    xids = [
        (fault.last_at_s, float(fault.code.removeprefix(_XID)))
        for fault in faults
        if fault.gpu == gpu and fault.code.startswith(_XID) and fault.code.removeprefix(_XID).isdecimal()
    ]
    return max(xids)[1] if xids else 0.0


def _bus_id(address: str) -> str:
    """As NVML writes it: eight digits of domain, capitals."""
    domain, colon, rest = address.partition(":")
    return f"{domain:0>8}:{rest}".upper() if colon else address
