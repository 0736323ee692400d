"""NVIDIA: limits and draw of one GPU, as often as the governor looks. Cheap calls only, unless the energy is wanted."""

from collections.abc import Mapping
from typing import Any

from fleetd.devices.nvidia_calls import Calls, scaled

_BRAKE = 0x80
"""nvmlClocksEventReasonHwPowerBrakeSlowdown."""
_SM_CLOCK = 1
"""NVML_CLOCK_SM."""
_POWER_SAMPLES = 0
"""NVML_TOTAL_POWER_SAMPLES: on an H200 a ring of 119, 20 ms apart. The power reading itself is a 1 s average there."""


def power(calls: Calls, *, energy: bool, samples: bool) -> Mapping[str, Any]:
    """Fields of `fleetd.model.power.PowerReading` without `gpu` and `at_s`. Raises VendorError: the GPU is silent."""
    get = calls.get
    low, high = calls.seldom("nvmlDeviceGetPowerManagementLimitConstraints") or (None, None)
    limit, default = get("nvmlDeviceGetPowerManagementLimit"), calls.seldom("nvmlDeviceGetPowerManagementDefaultLimit")
    limit, default = scaled(limit, 1e-3), scaled(default, 1e-3)
    watts = scaled(get("nvmlDeviceGetPowerUsage"), 1e-3)
    mig, reasons = get("nvmlDeviceGetMigMode"), get("nvmlDeviceGetCurrentClocksEventReasons")
    locked = "MIG is on: one limit holds for tenants who do not know of each other" if mig and mig[0] else ""
    if limit is None:
        locked = "the driver offers no power limit here (a virtual function, or no permission)"
    return {
        "knobs": [["limit", limit, scaled(low, 1e-3), scaled(high, 1e-3), default]],
        "enforced_watts": scaled(get("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
        "power_watts": watts,
        "temperature_celsius": scaled(get("nvmlDeviceGetTemperature", 0)),
        "brake": bool(reasons and reasons & _BRAKE),
        "locked": locked,
        "energy_joules": scaled(get("nvmlDeviceGetTotalEnergyConsumption"), 1e-3, bits=64) if energy else None,
        "clock_hertz": scaled(get("nvmlDeviceGetClockInfo", _SM_CLOCK), 1e6),
        # In mW, and noisy: a part that is powered never tells the same number for three turns of the governor.
        "mark": watts,
        "samples": calls.ring(_POWER_SAMPLES, 1e-3) if samples else [],
    }
