"""What is read of an NVIDIA GPU, in fleetd's units: cheap readings for each second, dear ones for every ten.

Cost of a call, measured on an H200: power, clocks and utilisation about 1 µs each, memory and field values 5 µs, the
replay counter 0.2 ms, the energy counter 4 ms of CPU. `nvmlDeviceGetPcieThroughput` blocks for 21 ms and is never
called: PCIe throughput comes from GPM.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fleetd.devices.nvidia_calls import Calls, Field, scaled
from fleetd.devices.reader import PROCESSES, Number

_KIB = 1024.0
_MIB = 2.0**20
LINKS_MAX = 36
"""NVML_NVLINK_MAX_LINKS."""
_REASONS = {
    "power_cap": 0x4,
    "hardware_slowdown": 0x8,
    "sync_boost": 0x10,
    "software_thermal": 0x20,
    "hardware_thermal": 0x40,
    "power_brake": 0x80,
}
"""Bits of the clocks' event reasons (nvml.h, nvmlClocksEventReason*)."""
_THROTTLE_TIMES = {
    "power_cap": "PERF_POLICY_POWER",
    "software_thermal": "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    "hardware_thermal": "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    "power_brake": "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
    "sync_boost": "PERF_POLICY_SYNC_BOOST",
    "board_limit": "PERF_POLICY_BOARD_LIMIT",
    "low_utilization": "PERF_POLICY_LOW_UTILIZATION",
    "reliability": "PERF_POLICY_RELIABILITY",
}
"""Accumulated nanoseconds by reason."""
_BLOCKS = {"l1_cache": 0, "l2_cache": 1, "dram": 2, "register_file": 3, "texture": 4, "cbu": 6, "sram": 7}
"""nvmlMemoryLocation_t."""
_LINK_FIELDS = {
    "fabric_link_up_ratio": ("NVLINK_GET_STATE", 1.0),
    "fabric_link_crc_errors_total": ("NVLINK_ERROR_DL_CRC", 1.0),
    "fabric_link_replay_errors_total": ("NVLINK_ERROR_DL_REPLAY", 1.0),
    "fabric_link_recovery_errors_total": ("NVLINK_ERROR_DL_RECOVERY", 1.0),
    "fabric_link_receive_bytes_total": ("NVLINK_THROUGHPUT_DATA_RX", _KIB),
    "fabric_link_transmit_bytes_total": ("NVLINK_THROUGHPUT_DATA_TX", _KIB),
}
"""Family → field by link, and its unit."""
_GPM = {
    "graphics_active_ratio": ("GRAPHICS_UTIL", 1e-2),
    "sm_active_ratio": ("SM_UTIL", 1e-2),
    "sm_occupancy_ratio": ("SM_OCCUPANCY", 1e-2),
    "tensor_active_ratio": ("ANY_TENSOR_UTIL", 1e-2),
    "dram_active_ratio": ("DRAM_BW_UTIL", 1e-2),
    "fp64_active_ratio": ("FP64_UTIL", 1e-2),
    "fp32_active_ratio": ("FP32_UTIL", 1e-2),
    "fp16_active_ratio": ("FP16_UTIL", 1e-2),
    "pcie_transmit_bytes_per_second": ("PCIE_TX_PER_SEC", _MIB),
    "pcie_receive_bytes_per_second": ("PCIE_RX_PER_SEC", _MIB),
    "fabric_receive_bytes_per_second": ("NVLINK_TOTAL_RX_PER_SEC", _MIB),
    "fabric_transmit_bytes_per_second": ("NVLINK_TOTAL_TX_PER_SEC", _MIB),
}
"""Metric → NVML_GPM_METRIC_*, and its unit."""


def quick(nvml: Any, calls: Calls) -> dict[str, Number]:
    """What is worth a look each second, at about 50 µs. Raises VendorError when the GPU is silent."""
    get = calls.get
    fields = calls.fields((("POWER_INSTANT", 0), ("MEMORY_TEMP", 0)))
    utilization = get("nvmlDeviceGetUtilizationRates")
    memory = get("nvmlDeviceGetMemoryInfo", nvml.nvmlMemory_v2)
    reasons = get("nvmlDeviceGetCurrentClocksEventReasons")
    usage = scaled(get("nvmlDeviceGetPowerUsage"), 1e-3)
    averaged = calls.part is None or calls.part.power_average is not None
    instant = fields.get(("POWER_INSTANT", 0))
    return {
        "power_watts": usage if averaged else None,
        "power_instant_watts": usage if instant is None and not averaged else scaled(instant, 1e-3),
        "power_limit_watts": scaled(get("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
        "temperature_celsius": scaled(get("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)),
        "memory_temperature_celsius": scaled(fields.get(("MEMORY_TEMP", 0))),
        "temperature_margin_celsius": scaled(get("nvmlDeviceGetMarginTemperature")),
        "sm_clock_hertz": scaled(get("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM), 1e6),
        "memory_clock_hertz": scaled(get("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
        "utilization_ratio": scaled(utilization and utilization.gpu, 1e-2),
        "memory_utilization_ratio": scaled(utilization and utilization.memory, 1e-2),
        "memory_used_bytes": scaled(memory and memory.used, bits=64),
        "memory_reserved_bytes": scaled(memory and memory.reserved, bits=64),
        "memory_total_bytes": scaled(memory and memory.total, bits=64),
        "throttle_active_ratio": [(name, float(bool(reasons & bit))) for name, bit in _REASONS.items()]
        if reasons is not None
        else [],
    }


def slow(nvml: Any, calls: Calls) -> dict[str, Number]:
    """Counters that are expensive (energy) or change once in days (the rest). Raises VendorError."""
    get = calls.get
    rows = get("nvmlDeviceGetRemappedRows") or (None, None, None, None)
    limits = get("nvmlDeviceGetPowerManagementLimitConstraints") or (None, None)
    processes = get("nvmlDeviceGetComputeRunningProcesses")
    ecc = get("nvmlDeviceGetEccMode")
    named = (("GET_GPU_RECOVERY_ACTION", 0), ("PCIE_COUNT_NAKS_SENT", 0), ("PCIE_COUNT_NAKS_RECEIVED", 0))
    fields = calls.fields((*named, ("PCIE_L0_TO_RECOVERY_COUNTER", 0)))
    coders = [get(f"nvmlDeviceGet{coder}Utilization") for coder in ("Encoder", "Decoder")]
    return {
        "power_limit_requested_watts": scaled(get("nvmlDeviceGetPowerManagementLimit"), 1e-3),
        "power_limit_default_watts": scaled(get("nvmlDeviceGetPowerManagementDefaultLimit"), 1e-3),
        "power_limit_min_watts": scaled(limits[0], 1e-3),
        "power_limit_max_watts": scaled(limits[1], 1e-3),
        "energy_joules_total": scaled(get("nvmlDeviceGetTotalEnergyConsumption"), 1e-3, bits=64),
        "sm_clock_max_hertz": scaled(get("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM), 1e6),
        "memory_clock_max_hertz": scaled(get("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
        "encoder_utilization_ratio": scaled(coders[0] and coders[0][0], 1e-2),
        "decoder_utilization_ratio": scaled(coders[1] and coders[1][0], 1e-2),
        "processes": None if processes is None else float(len(processes)),
        "process_memory_bytes": None if processes is None else _memory_of(processes),
        PROCESSES: [(str(process.pid), float(process.usedGpuMemory or 0)) for process in processes or ()],
        "ecc_enabled_ratio": scaled(ecc and ecc[0]),
        "row_remap_correctable_total": scaled(rows[0]),
        "row_remap_uncorrectable_total": scaled(rows[1]),
        "row_remap_pending_ratio": scaled(rows[2]),
        "row_remap_failed_ratio": scaled(rows[3]),
        "recovery_action": fields.get(("GET_GPU_RECOVERY_ACTION", 0)),
        "pcie_link_generation": scaled(get("nvmlDeviceGetCurrPcieLinkGeneration")),
        "pcie_link_generation_max": scaled(get("nvmlDeviceGetMaxPcieLinkGeneration")),
        "pcie_link_width": scaled(get("nvmlDeviceGetCurrPcieLinkWidth")),
        "pcie_link_width_max": scaled(get("nvmlDeviceGetMaxPcieLinkWidth")),
        "pcie_replay_total": scaled(get("nvmlDeviceGetPcieReplayCounter")),
        "pcie_nak_sent_total": fields.get(("PCIE_COUNT_NAKS_SENT", 0)),
        "pcie_nak_received_total": fields.get(("PCIE_COUNT_NAKS_RECEIVED", 0)),
        "pcie_recovery_total": fields.get(("PCIE_L0_TO_RECOVERY_COUNTER", 0)),
        "throttle_seconds_total": _throttle_times(calls),
        **_ecc(nvml, calls),
        **_links(calls),
    }


def _ecc(nvml: Any, calls: Calls) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for word, kind in (("corrected", 0), ("uncorrected", 1)):  # nvmlMemoryErrorType_t
        total = calls.get("nvmlDeviceGetTotalEccErrors", kind, nvml.NVML_VOLATILE_ECC)
        found[f"ecc_{word}_total"] = scaled(total, bits=64)
        counts = (
            (block, calls.get("nvmlDeviceGetMemoryErrorCounter", kind, nvml.NVML_VOLATILE_ECC, location))
            for block, location in _BLOCKS.items()
        )
        found[f"ecc_block_{word}_total"] = [(block, scaled(n, bits=64) or 0.0) for block, n in counts if n is not None]
    return found


def _links(calls: Calls) -> dict[str, Number]:
    """State, errors and data by link. A link that the board does not wire has no value."""
    count = calls.fields((("NVLINK_LINK_COUNT", 0),)).get(("NVLINK_LINK_COUNT", 0), 0.0)
    links = range(int(count) if 0 < count <= LINKS_MAX else 0)
    values = calls.fields([(field, link) for field, _ in _LINK_FIELDS.values() for link in links])
    return {
        family: [(str(link), values[field, link] * unit) for link in links if (field, link) in values]
        for family, (field, unit) in _LINK_FIELDS.items()
    }


def _throttle_times(calls: Calls) -> list[tuple[str, float]]:
    wanted: dict[str, Field] = {reason: (field, 0) for reason, field in _THROTTLE_TIMES.items()}
    values = calls.fields(list(wanted.values()))
    return [(reason, values[field] * 1e-9) for reason, field in wanted.items() if field in values]


def _memory_of(processes: Any) -> float | None:
    """Memory of all processes; None while the driver does not say it of one (MIG, or no permission)."""
    sizes = [process.usedGpuMemory for process in processes]
    return None if None in sizes else float(sum(sizes))


class Gpm:
    """Efficiency of one GPU between two readings: GPM counts on the GPU, and two samples of it give the mean."""

    def __init__(self, nvml: Any, calls: Calls) -> None:
        support = calls.get("nvmlGpmQueryDeviceSupport")
        self._nvml = nvml
        self._calls = calls
        self._samples: list[Any] = []
        if support is not None and support.isSupportedDevice:
            with suppress(nvml.NVMLError):  # without these readings, and with all others
                self._samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
        self._began = False

    def read(self) -> Mapping[str, Number]:
        """Means since the last call; nothing the first time, on a part without GPM, or when a sample failed."""
        if not self._samples:
            return {}
        self._samples.reverse()  # the newer one becomes the older one
        began, self._began = self._began, False
        try:
            self._nvml.nvmlGpmSampleGet(self._calls.handle, self._samples[1])
            self._began = True
            return self._means() if began else {}
        except self._nvml.NVMLError as error:
            self._calls.last_error = str(error)
            return {}

    def _means(self) -> Mapping[str, Number]:
        nvml = self._nvml
        wanted = {name: (getattr(nvml, f"NVML_GPM_METRIC_{metric}"), unit) for name, (metric, unit) in _GPM.items()}
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(wanted)
        request.sample1, request.sample2 = self._samples
        for place, (number, _) in enumerate(wanted.values()):
            request.metrics[place].metricId = number
        nvml.nvmlGpmMetricsGet(request)
        metrics = zip(wanted.items(), request.metrics, strict=False)
        return {name: metric.value * unit for (name, (_, unit)), metric in metrics if metric.nvmlReturn == 0}

    def close(self) -> None:
        """Give the samples back."""
        samples, self._samples = self._samples, []
        for sample in samples:
            self._nvml.nvmlGpmSampleFree(sample)
