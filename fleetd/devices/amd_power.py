"""AMD: limits and draw of one GPU, as often as the governor looks. PPT0 and PPT1 are the two sensors of the cap."""

from collections.abc import Mapping
from typing import Any

from fleetd.devices.amd_readings import Calls, number


def _cap(smi: Any, handle: Any, sensor: int) -> tuple[float | None, ...] | None:
    """Set, lowest, highest and default cap of a sensor in watts; None: the part has no such sensor.

    By the binding's own declarations below its Python functions, which (until 7.0) ask for the first sensor only.
    """
    import ctypes  # noqa: PLC0415 - here with the binding, which is built on it

    wrapper = smi.amdsmi_interface.amdsmi_wrapper
    told = wrapper.amdsmi_power_cap_info_t()
    if wrapper.amdsmi_get_power_cap_info(handle, ctypes.c_uint32(sensor), ctypes.byref(told)) != 0:
        return None
    caps = (told.power_cap, told.min_power_cap, told.max_power_cap, told.default_power_cap)
    return tuple(number(value, 1e-6) for value in caps)


def power(calls: Calls, smi: Any, handle: Any, *, energy: bool) -> Mapping[str, Any]:
    """Fields of `fleetd.model.power.PowerReading` without `gpu` and `at_s`. Raises VendorError: the GPU is silent."""
    draw, metrics = calls.one("power_info") or {}, calls.one("gpu_metrics_info") or {}
    knobs = []
    for knob, sensor in (("ppt0", 0), ("ppt1", 1)):
        if (cap := _cap(smi, handle, sensor)) is not None:
            knobs.append([knob, *cap])
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
        # The draw is told in whole watts, which may stay the same; the firmware's time of its table may not.
        "mark": number(metrics.get("firmware_timestamp")) or None,
        "samples": [],
        "clock_hertz": None,  # no clock is locked here: the two limiters are the actuators
    }
