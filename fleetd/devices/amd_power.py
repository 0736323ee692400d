"""AMD: limits and draw of one GPU, as often as the governor looks. PPT0 and PPT1 are the two sensors of the cap."""

from collections.abc import Mapping
from typing import Any, Protocol

from fleetd.devices.amd_readings import number


class Calls(Protocol):
    """Calls of AMD SMI for one GPU."""

    def one(self, name: str, *arguments: Any) -> Any:
        """A call for one reading; None when it cannot be had."""


def power(calls: Calls, *, energy: bool) -> Mapping[str, Any]:
    """Fields of `fleetd.model.power.PowerReading` without `gpu` and `at_s`. Raises VendorError: the GPU is silent."""
    draw, metrics = calls.one("power_info") or {}, calls.one("gpu_metrics_info") or {}
    knobs = []
    for knob, sensor in (("ppt0", 0), ("ppt1", 1)):
        cap = calls.one("power_cap_info", sensor)
        if cap is not None:
            told = (number(cap.get(name), 1e-6) for name in ("power_cap", "min_power_cap", "max_power_cap"))
            knobs.append([knob, *told])
    counted = (calls.one("energy_count") or {}) if energy else {}
    used, resolution = number(counted.get("energy_accumulator")), number(counted.get("counter_resolution"))
    return {
        "knobs": knobs,
        "enforced_watts": number(draw.get("power_limit"), 1e-6) or None,
        "power_watts": number(draw.get("current_socket_power")) or number(draw.get("average_socket_power")) or None,
        "temperature_celsius": number(metrics.get("temperature_hotspot")),
        "brake": False,  # told by no call of this library; PROCHOT residency is in the metrics of the sampler
        "locked": "" if knobs else "the driver offers no power cap here (a virtual function, or no permission)",
        "energy_joules": None if used is None or not resolution else used * resolution * 1e-6,
    }
