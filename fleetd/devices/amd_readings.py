"""From the answers of AMD SMI to fields of the catalogue: units, "no value", and what lies between two readings.

Units of the library: power in W (caps in µW), temperatures in °C, clocks in MHz, memory in MiB, fabric data in KiB,
PCIe speed in MT/s, the firmware's time stamp in 10 ns. "No value" is `N/A` or the largest unsigned integer of a width.

Not read, since nothing true can be said: PCIe traffic (`pcie_bandwidth`, one number for both directions, which the
library's own sources call GB/s, MB/s and Mb/s without converting between them; `amdsmi_get_gpu_pci_throughput` sleeps
for a second), and errors by xGMI link (there is no such counter: the block `xgmi_wafl` counts those of all links).
"""

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleetd.devices.reader import PROCESSES

_ABSENT = frozenset(2**bits - 1 for bits in (16, 32, 64))
_RESIDENCY = {
    "power_cap": "ppt_residency_acc",
    "prochot": "prochot_residency_acc",
    "socket_thermal": "socket_thm_residency_acc",
    "vr_thermal": "vr_thm_residency_acc",
    "hbm_thermal": "hbm_thm_residency_acc",
}
"""Throttle reason → the firmware's accumulator; each counts the cycles of `accumulation_counter` it was on in."""
_BUSY = {"graphics_active_ratio": "gfx_activity_acc", "dram_active_ratio": "mem_activity_acc"}
"""Metric → accumulator of percent, a summand each cycle. The library's structure has 32 bits for these, 64 for all
others that are read here: at a cycle a millisecond and full load they begin anew every 12 hours."""
_BUSY_WRAP = 2.0**32
_STAMP_S = 1e-8
_GENERATION = {2500: 1.0, 5000: 2.0, 8000: 3.0, 16000: 4.0, 32000: 5.0, 64000: 6.0}
"""PCIe speed in MT/s → generation."""
_PENDING = 1
"""`AMDSMI_MEM_PAGE_STATUS_PENDING`."""
_FIRMWARE = ("AMDSMI_FW_ID_PM", "AMDSMI_FW_ID_SMU", "AMDSMI_FW_ID_SMC")
"""Names of the power management firmware, the one that decides about clocks and limits."""
_NOT_BLOCKS = ("INVALID", "RESERVED")


class Calls(Protocol):
    """Calls for one GPU; see `amd._Calls`."""

    def one(self, name: str, *arguments: Any) -> Any:
        """What `amdsmi_get_NAME` answers; None when the reading cannot be had."""


@dataclass(slots=True)
class Between:
    """What the firmware's accumulators said at the reading before, and the throttled seconds since the helper began."""

    stamp_s: float | None = None
    cycles: float | None = None
    values: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def read(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Means since the reading before; nothing at the first, or when the firmware began anew or stood still."""
        stamp_s = number(metrics.get("firmware_timestamp"), _STAMP_S)
        cycles = number(metrics.get("accumulation_counter"))
        names = (*_RESIDENCY.values(), *_BUSY.values())
        values = {name: value for name in names if (value := number(metrics.get(name))) is not None}
        links = {way: _links(metrics.get(f"xgmi_{way}_data_acc")) for way in ("read", "write")}
        values |= {f"xgmi_{way}": sum(found.values()) for way, found in links.items() if found}
        before = (self.stamp_s, self.cycles, self.values)
        self.stamp_s, self.cycles, self.values = stamp_s, cycles, values
        passed_s, passed = _grown(before[0], stamp_s), _grown(before[1], cycles)
        grown = {name: value - before[2][name] for name, value in values.items() if name in before[2]}
        reading: dict[str, Any] = {}
        if passed:
            for name, source in _BUSY.items():
                # Of the firmware's clocks both went on, so a smaller sum has wrapped; what cannot be is left out below.
                ratio = grown[source] % _BUSY_WRAP / passed / 100.0 if source in grown else -1.0
                reading[name] = ratio if 0.0 <= ratio <= 1.0 else None
        if passed and passed_s:
            for reason, source in _RESIDENCY.items():
                if 0.0 <= grown.get(source, -1.0) <= passed:
                    self.seconds[reason] = self.seconds.get(reason, 0.0) + grown[source] / passed * passed_s
        if passed_s:
            for name, source in (("receive", "xgmi_read"), ("transmit", "xgmi_write")):
                if grown.get(source, -1.0) >= 0.0:
                    reading[f"fabric_{name}_bytes_per_second"] = grown[source] / passed_s
        reading["throttle_seconds_total"] = family(self.seconds)
        reading["fabric_link_receive_bytes_total"] = family(links["read"])
        reading["fabric_link_transmit_bytes_total"] = family(links["write"])
        return reading


def quick(calls: Calls, between: Between) -> dict[str, Any]:
    """Readings of every second: one table of the firmware's, power, memory in use."""
    metrics = calls.one("gpu_metrics_info") or {}
    power = calls.one("power_info") or {}
    memory = calls.one("gpu_vram_usage") or {}
    clocks = [clock for one in metrics.get("current_gfxclks", ()) if (clock := number(one, 1e6))]
    return {
        # MI300 and newer tell the present power, MI200 an average; none tells both.
        "power_instant_watts": number(power.get("current_socket_power")) or None,
        "power_watts": number(power.get("average_socket_power")) or None,
        "temperature_celsius": number(metrics.get("temperature_hotspot")),
        "memory_temperature_celsius": number(metrics.get("temperature_mem")),
        # Of the chiplets the fastest: the others may be asleep.
        "sm_clock_hertz": max(clocks) if clocks else number(metrics.get("current_gfxclk"), 1e6),
        "memory_clock_hertz": number(metrics.get("current_uclk"), 1e6),
        "utilization_ratio": number(metrics.get("average_gfx_activity"), 1e-2),
        "memory_utilization_ratio": number(metrics.get("average_umc_activity"), 1e-2),
        "memory_used_bytes": number(memory.get("vram_used"), 2**20),
        "memory_total_bytes": number(memory.get("vram_total"), 2**20),
        **between.read(metrics),
    }


def slow(calls: Calls, smi: Any) -> dict[str, Any]:
    """Readings that are expensive or change rarely: limits, errors, links, energy, processes."""
    cap = calls.one("power_cap_info") or {}
    energy = calls.one("energy_count") or {}
    used, resolution = number(energy.get("energy_accumulator")), number(energy.get("counter_resolution"))
    limit = number(cap.get("power_cap"), 1e-6) or None
    core, memory = (calls.one("clock_info", kind) or {} for kind in (smi.AmdSmiClkType.GFX, smi.AmdSmiClkType.MEM))
    pages = calls.one("gpu_bad_page_info")
    running = calls.one("gpu_process_list")
    return {
        "power_limit_watts": limit,
        "power_limit_requested_watts": limit,
        "power_limit_default_watts": number(cap.get("default_power_cap"), 1e-6) or None,
        "power_limit_min_watts": number(cap.get("min_power_cap"), 1e-6),
        "power_limit_max_watts": number(cap.get("max_power_cap"), 1e-6) or None,
        "energy_joules_total": None if used is None or not resolution else used * resolution * 1e-6,
        "sm_clock_max_hertz": number(core.get("max_clk"), 1e6) or None,
        "memory_clock_max_hertz": number(memory.get("max_clk"), 1e6) or None,
        "bad_pages_total": None if pages is None else float(len(pages)),
        "bad_pages_pending": None if pages is None else float(sum(page["status"] == _PENDING for page in pages)),
        "processes": None if running is None else float(len(running)),
        "process_memory_bytes": None if running is None else float(sum(one["mem"] for one in running)),
        PROCESSES: [(str(one["pid"]), float(one["mem"])) for one in running or ()],
        **_pcie(calls.one("pcie_info") or {}),
        **_ecc(calls, smi),
        "fabric_link_up_ratio": family(_links_up(calls.one("gpu_xgmi_link_status") or {})),
    }


def versions(calls: Calls) -> dict[str, str | None]:
    """Versions of what runs on the GPU and drives it; None: not told."""
    listed = (calls.one("fw_info") or {}).get("fw_list", ())
    found: dict[str, str] = {getattr(one["fw_name"], "name", ""): one["fw_version"] for one in listed}
    vbios, driver = calls.one("gpu_vbios_info") or {}, calls.one("gpu_driver_info") or {}
    return {
        "vbios": _text(vbios.get("version")),
        "firmware": next((found[name] for name in _FIRMWARE if name in found), None),
        "driver_version": _text(driver.get("driver_version")),
    }


def family(values: dict[str, float]) -> list[tuple[str, float]]:
    """A family as it is sent: in the order of the links, blocks or reasons."""
    return list(values.items())


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value not in {"", "N/A"} else None


def number(value: Any, scale: float = 1.0) -> float | None:
    """A number in fleetd's unit; None for what the library gives instead of one (`N/A`, maxima, negative, NaN)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if value < 0 or value in _ABSENT or not math.isfinite(value):
        return None
    return value * scale


def _pcie(info: dict[str, Any]) -> dict[str, float | None]:
    now, best = info.get("pcie_metric", {}), info.get("pcie_static", {})
    return {
        "pcie_link_width": number(now.get("pcie_width")) or None,
        "pcie_link_width_max": number(best.get("max_pcie_width")) or None,
        "pcie_link_generation": _GENERATION.get(now.get("pcie_speed")),
        "pcie_link_generation_max": _GENERATION.get(best.get("max_pcie_speed")),
        "pcie_replay_total": number(now.get("pcie_replay_count")),
        "pcie_nak_sent_total": number(now.get("pcie_nak_sent_count")),
        "pcie_nak_received_total": number(now.get("pcie_nak_received_count")),
        "pcie_recovery_total": number(now.get("pcie_l0_to_recovery_count")),
    }


def _ecc(calls: Calls, smi: Any) -> dict[str, Any]:
    kinds = {"corrected": "correctable_count", "uncorrected": "uncorrectable_count", "deferred": "deferred_count"}
    total = calls.one("gpu_total_ecc_count") or {}
    reading: dict[str, Any] = {f"ecc_{kind}_total": number(total.get(name)) for kind, name in kinds.items()}
    blocks: dict[str, dict[str, float]] = {kind: {} for kind in kinds}
    for block in smi.AmdSmiGpuBlock:
        counts = {} if block.name in _NOT_BLOCKS else calls.one("gpu_ecc_count", block) or {}
        for kind, name in kinds.items():
            if (value := number(counts.get(name))) is not None:
                blocks[kind][block.name.lower()] = value
    return reading | {f"ecc_block_{kind}_total": family(found) for kind, found in blocks.items()}


def _links_up(answer: dict[str, Any]) -> dict[str, float]:
    """Links by number: up or down. `X` is a link that the board does not wire (on each GPU the one to itself)."""
    return {str(link): float(state == "U") for link, state in enumerate(answer.get("status", ())) if state in "UD"}


def _links(values: Any) -> dict[str, float]:
    """Bytes by link that has counted anything; a link that is not wired counts nothing."""
    found = {str(link): number(value, 2**10) for link, value in enumerate(values if isinstance(values, list) else ())}
    return {link: value for link, value in found.items() if value}


def _grown(before: float | None, now: float | None) -> float | None:
    """By how much a clock went on; None when it did not, or not forwards."""
    return now - before if before is not None and now is not None and now > before else None
