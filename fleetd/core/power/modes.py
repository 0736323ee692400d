"""Modes: `observe` (touch nothing) → `safe` (the declared cap) → `boost` (the guard grants what the envelope allows).

Boost needs everything to be known good: fresh and plausible sensors, no hardware brake lately, a cool part, a live
lease, limits that read back as written. Whatever is missing falls to `safe` at once; the way up takes a quiet time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

BRAKE_QUIET_S = 600.0
"""Without a hardware brake before boost; power.md §3: ten minutes."""
UINT_MAX_WATTS = ((1 << 32) - 1) / 1e3
"""UINT32_MAX milliwatts, which some firmware sends for "missing"; nothing from here on is a reading."""


class Mode(StrEnum):
    """What the governor may do."""

    OBSERVE = "observe"
    SAFE = "safe"
    BOOST = "boost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one loop knows of a part. None: the sensor gave nothing."""

    power_watts: float | None
    sampled_s: float | None
    """Monotonic time at which the sensor last renewed the value."""
    energy_joules: float | None = None
    temperature_celsius: float | None = None
    brake: bool = False
    """The hardware power brake is on."""
    lease_live: bool = True
    enforced_ok: bool = True
    """The limits in force are those that were written."""
    against: str = ""
    """What else speaks against boost: what the kernel log or a counter told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeConfig:
    """One part's conditions. Seconds, watts, celsius."""

    allowed: Mode
    """The highest mode that the operator wants."""
    stale_s: float
    """Older readings are none. A stale sensor is safe within two loops if this is below two loop periods."""
    power_max_watts: float
    """No plausible reading is above it."""
    power_min_watts: float = 1.0
    """Nor below it: a powered part leaks."""
    temperature_max_celsius: float = 90.0
    settle_s: float = 10.0
    """All conditions good for so long before the way up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeState:
    """The mode in force, and what the way up still waits for."""

    mode: Mode
    why: str
    good_since_s: float | None = None
    brake_s: float = -math.inf
    energy_joules: float | None = None


def start(config: ModeConfig) -> ModeState:
    """The mode to begin with."""
    mode = Mode.OBSERVE if config.allowed is Mode.OBSERVE else Mode.SAFE
    return ModeState(mode=mode, why="start")


def complaints(now_s: float, config: ModeConfig, state: ModeState, reading: Reading) -> Sequence[str]:
    """Why this loop must not boost, one phrase each; empty when everything is good."""
    found = [*_power(now_s, config, reading), *_counter(state, reading)]
    celsius = reading.temperature_celsius
    if reading.brake or now_s - state.brake_s < BRAKE_QUIET_S:
        found.append("the hardware power brake was on in the last 10 min")
    if celsius is not None and not celsius <= config.temperature_max_celsius:
        found.append(f"{celsius:.0f} °C is above {config.temperature_max_celsius:.0f} °C")
    if not reading.lease_live:
        found.append("the lease is not live")
    if not reading.enforced_ok:
        found.append("the limits in force are not those that were written")
    if reading.against:
        found.append(reading.against)
    return found


def _power(now_s: float, config: ModeConfig, reading: Reading) -> list[str]:
    found, watts = [], reading.power_watts
    if watts is None or not math.isfinite(watts):
        found.append("the power sensor gives no number")
    elif watts >= UINT_MAX_WATTS or watts > config.power_max_watts:
        found.append(f"the power sensor says {watts:.0f} W, above the {config.power_max_watts:.0f} W that are possible")
    elif watts < config.power_min_watts:
        found.append(f"the power sensor says {watts:g} W, a powered part draws more")
    # Said as what must hold: a NaN fulfils nothing, and a reading from the future is no reading.
    if reading.sampled_s is None or not 0.0 <= now_s - reading.sampled_s <= config.stale_s:
        found.append(f"the power reading is not from the last {config.stale_s:g} s")
    return found


def _counter(state: ModeState, reading: Reading) -> list[str]:
    energy = reading.energy_joules
    if energy is None:
        return []
    if not math.isfinite(energy):
        return ["the energy counter gives no number"]
    if state.energy_joules is not None and energy < state.energy_joules:
        return ["the energy counter went backward"]
    return []


def next_mode(now_s: float, config: ModeConfig, state: ModeState, reading: Reading) -> ModeState:
    """One loop. Falls to `safe` in the loop that sees the trouble; rises after `settle_s` without any."""
    found, energy = complaints(now_s, config, state, reading), reading.energy_joules
    if reading.brake:
        state = replace(state, brake_s=now_s)
    if energy is not None and math.isfinite(energy):
        state = replace(state, energy_joules=energy)
    if config.allowed is Mode.OBSERVE:
        return _in(state, Mode.OBSERVE, "; ".join(found) or "observing only", None)
    if found:
        return _in(state, Mode.SAFE, "; ".join(found), None)
    if config.allowed is Mode.SAFE:
        return _in(state, Mode.SAFE, "safe is the highest mode that is allowed", None)
    since = now_s if state.good_since_s is None else state.good_since_s
    if now_s - since < config.settle_s and state.mode is not Mode.BOOST:
        why = f"everything is good for {now_s - since:.0f} of {config.settle_s:.0f} s"
        return _in(state, Mode.SAFE, why, since)
    return _in(state, Mode.BOOST, "everything is good", since)


def _in(state: ModeState, mode: Mode, why: str, good_since_s: float | None) -> ModeState:
    """The state in a mode: mostly the very same, which need not be made anew for each GPU and turn."""
    if state.mode is mode and state.why == why and state.good_since_s == good_since_s:
        return state
    return replace(state, mode=mode, why=why, good_since_s=good_since_s)
