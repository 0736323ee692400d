"""What the governor wants of one GPU: a mode, the limits that follow from it, and in which order they are written.

Always true: above the safe cap only in `boost`; nobody else's lower limit is raised again; limits that cannot be held
are not half written but left alone, with the reason, once what was raised before has been taken back. Of a GPU that
does not answer nothing is known but what was written last: it may be lowered, never raised.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fleetd.core.power.modes import Mode, ModeConfig, ModeState, Reading, next_mode, start
from fleetd.core.power.provenance import drift_of, same
from fleetd.core.power.tune import Candidate, Profile
from fleetd.model.envelope import Envelope
from fleetd.model.ids import GpuId
from fleetd.model.power import Drift, PowerReading, Writer

Limits = Mapping[str, float]
"""Knob → watts."""
CLOCK_STEP_HERTZ = 15e6
"""NVIDIA's clocks come in such steps (on an H200), so that a lock may be taken as the next one."""
_LOWEST = ("limit", "ppt0")
"""The knobs that the safe cap is written to; PPT1 acts on raw power and only has to stay above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernConfig:
    """What holds for all GPUs of a part."""

    modes: ModeConfig
    safe: Limits
    boost: Limits | None
    """Of the tuned set-point; None: there is none that holds, and the mode is never `boost`."""
    boost_why: str = ""
    """Why there is none."""
    boost_clock_hertz: float | None = None
    """Highest clock under the set-point; None: it caps none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """One GPU from turn to turn."""

    mode: ModeState
    targets: Limits = field(default_factory=dict)
    """In force as far as we know: written, or found when nothing has been written."""
    held: Limits = field(default_factory=dict)
    """Somebody else's lower limits; ours stay at or below."""
    energy_joules: float | None = None
    drift: Drift | None = None
    """What is not as it was written, now."""
    told: Drift | None = None
    """The newest drift that was reported."""
    locked: str = ""
    """Why nothing is written to this GPU; "": it is."""
    mark: float | None = None
    """The newest reading's mark."""
    renewed_s: float | None = None
    """Monotonic time at which the sensor was last seen to have renewed its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows for one GPU."""

    state: GpuState
    write: Limits
    """Knobs to write; empty: nothing."""
    news: Drift | None
    """A drift to report."""
    why: str
    clock: tuple[float | None] | tuple[()] = ()
    """A clock to lock, in hertz; (None,): to unlock it; empty: nothing."""


def safe_limits(envelope: Envelope) -> dict[str, float]:
    """The safe cap on the knobs of a part. Raises ValueError: it has no knob that holds it."""
    limits: dict[str, float] = {
        k.name: min(max(envelope.safe_cap_watts, k.low_watts), k.high_watts) for k in envelope.knobs
    }
    if not any(limits.get(name) == envelope.safe_cap_watts for name in _LOWEST):
        raise ValueError(f"envelope {envelope.name}: no actuator takes its safe cap of {envelope.safe_cap_watts:g} W")
    return limits


def boost_limits(envelope: Envelope, candidate: Candidate, sustained_watts: float) -> dict[str, float]:
    """The limits of a tuned set-point.

    Args:
        envelope: that it was tuned under.
        candidate: what was tuned.
        sustained_watts: of the compiled envelope: what may be drawn for ever, margin taken off.

    Raises:
        ValueError: it is none that two limits, written once, can hold.
    """
    knobs = {knob.name: knob for knob in envelope.knobs}
    if candidate.profile is not Profile.STATIC and "ppt1" in knobs:
        raise ValueError("it needs a fast loop inside the part; limits that are written once cannot hold it")
    if candidate.clock_cap_hertz is not None and envelope.vendor != "nvidia":
        raise ValueError("it needs a locked clock, which is no actuator of this part")
    limits: dict[str, float] = {}
    for name, knob in knobs.items():
        raw = knob.high_watts if candidate.raw_watts is None else candidate.raw_watts
        watts = min(raw, sustained_watts) if name in _LOWEST else raw
        limits[name] = min(max(watts, knob.low_watts), knob.high_watts)
    return limits


def begin(config: GovernConfig) -> GpuState:
    """A GPU that nothing is known of."""
    return GpuState(mode=start(config.modes))


def suspicious(config: GovernConfig, state: GpuState, reading: PowerReading) -> bool:
    """Whether the energy counter is worth its milliseconds: a limit moved since the last turn."""
    drift = drift_of(state.targets, falls(config, state), reading, energy_joules=None)
    return drift is not None and drift != state.told


def falls(config: GovernConfig, state: GpuState) -> dict[str, float]:
    """Where the guard goes from the targets."""
    return {knob: min(watts, config.safe.get(knob, watts)) for knob, watts in state.targets.items()}


def decide(
    now_s: float,
    config: GovernConfig,
    state: GpuState,
    reading: PowerReading | None,
    *,
    lease_live: bool,
    lease_why: str,
    against: str = "",
    cap_watts: float | None = None,
    clock_hertz: float | None = None,
) -> Decision:
    """One turn for one GPU.

    Args:
        now_s: monotonic.
        config: of its part.
        state: after the last turn.
        reading: None: the driver did not answer.
        lease_live: the guard lets limits be raised.
        lease_why: why not.
        against: what else speaks against boost; "": nothing.
        cap_watts: this GPU's part of a power budget; None: none, or only the safe cap (`against` says which).
        clock_hertz: highest clock that the guard has locked; None: none.
    """
    if reading is None:
        mode = next_mode(now_s, config.modes, state.mode, _none(state, lease_live=lease_live, against=against))
        found = _decision(config, replace(state, mode=mode), state.targets, None, cap_watts, clock_hertz=clock_hertz)
        return replace(found, write={k: w for k, w in found.write.items() if w < state.targets.get(k, 0.0)})
    governed = bool(state.targets) and state.mode.mode is not Mode.OBSERVE
    seen = {knob.knob: knob.set_watts for knob in reading.knobs if knob.set_watts is not None}
    renewed = reading.mark is None or reading.mark != state.mark
    renewed_s = reading.at_s if renewed else state.renewed_s
    if not state.targets:
        state = replace(state, targets={k: w for k, w in seen.items() if k in config.safe})
    drift = drift_of(state.targets, falls(config, state), reading, energy_joules=state.energy_joules)
    state = _after(state, drift, seen, reading)
    ok = (drift is None or drift.writer is Writer.GUARD) and not state.held
    against = "; ".join(filter(None, (against, _clock_above(reading, clock_hertz))))
    seen_by_mode = _reading(renewed_s, reading, lease_live=lease_live, enforced_ok=ok, against=against)
    mode = next_mode(now_s, config.modes, state.mode, seen_by_mode)
    if drift is not None and drift.writer is not Writer.GUARD:
        mode = replace(mode, why=f"{drift}; {mode.why}")
    elif state.held:
        mode = replace(mode, why=f"another program lowered {_words(state.held)}, which is kept; {mode.why}")
    elif not lease_live and config.modes.allowed is not Mode.OBSERVE:
        mode = replace(mode, why=f"{mode.why}; {lease_why}")
    news = drift if drift is not None and drift != state.told else None
    locked = _locked(config, reading)
    state = replace(state, locked=locked, mark=reading.mark, renewed_s=renewed_s, mode=mode, drift=drift, told=drift)
    if governed and state.locked and (back := _taken_back(config, state, seen, news, clock_hertz)) is not None:
        return back
    return _decision(config, state, seen, news, cap_watts, clock_hertz=clock_hertz)


def _clock_above(reading: PowerReading, locked_hertz: float | None) -> str:
    """A driver does not tell a lock; that no clock runs above it is all that can be read back."""
    now = reading.clock_hertz
    if locked_hertz is None or now is None or now <= locked_hertz + CLOCK_STEP_HERTZ:
        return ""
    at = f"the clock is {now / 1e6:.0f} MHz where {locked_hertz / 1e6:.0f} was locked"
    return f"{at}: another program freed it, or the write was not taken"


def _words(limits: Limits) -> str:
    return ", ".join(f"{knob} to {watts:g} W" for knob, watts in limits.items())


def wish_watts(config: GovernConfig) -> float:
    """The sustained limit that a GPU would be given if no budget bound it, in watts."""
    boost = config.boost if config.modes.allowed is Mode.BOOST else None
    return max(watts for knob, watts in (boost or config.safe).items() if knob in _LOWEST)


def _capped(limits: Limits, safe: Limits, cap_watts: float | None) -> Limits:
    """A budget bounds what lasts longer than milliseconds, and never below the safe cap, which is reserved anyway."""
    if cap_watts is None:
        return limits
    return {k: min(w, max(cap_watts, safe.get(k, 0.0))) if k in _LOWEST else w for k, w in limits.items()}


def _decision(
    config: GovernConfig,
    state: GpuState,
    seen: Limits,
    news: Drift | None,
    cap_watts: float | None,
    *,
    clock_hertz: float | None,
) -> Decision:
    """The limits that the mode asks for, as far as they are not in force."""
    mode = state.mode
    if state.locked or mode.mode is Mode.OBSERVE:
        why = state.locked or mode.why
        observed = replace(state, mode=replace(mode, mode=Mode.OBSERVE, why=why))
        return Decision(state=observed, write={}, news=news, why=why)
    if mode.mode is Mode.BOOST and config.boost is None:
        mode = replace(mode, mode=Mode.SAFE, why=f"no set-point: {config.boost_why}")
    limits = config.boost if mode.mode is Mode.BOOST and config.boost is not None else config.safe
    limits = _capped(limits, config.safe, cap_watts)
    want = {knob: min(watts, state.held.get(knob, math.inf)) for knob, watts in limits.items()}
    write = {knob: watts for knob, watts in want.items() if knob not in seen or not same(seen[knob], watts)}
    fresh = state if mode is state.mode else replace(state, mode=mode)
    wanted = config.boost_clock_hertz if mode.mode is Mode.BOOST else None
    clock = () if wanted == clock_hertz else (wanted,)
    return Decision(state=fresh, write=write, news=news, why=mode.why, clock=clock)


def _taken_back(
    config: GovernConfig, state: GpuState, seen: Limits, news: Drift | None, clock_hertz: float | None
) -> Decision | None:
    """For a GPU that must be left alone from now on: down to the safe cap first; None: there is nothing to take back.

    Else what was raised for one tenant would stand for others as long as the rest of the host keeps the lease alive.
    """
    now = {**state.targets, **seen}  # a knob that is not told any more stands where it was put last
    above = {k: w for k, w in config.safe.items() if k in now and now[k] > w and not same(now[k], w)}
    if not above and clock_hertz is None:
        return None
    why = f"{state.locked}; what was raised before is taken back"
    mode = replace(state.mode, mode=Mode.SAFE, why=why, good_since_s=None)
    clock: tuple[float | None] | tuple[()] = () if clock_hertz is None else (None,)
    return Decision(state=replace(state, mode=mode), write=above, news=news, why=why, clock=clock)


def _locked(config: GovernConfig, reading: PowerReading) -> str:
    """Why this GPU's limits must be left alone. An operator decides what to do about it, so it is not tried."""
    if reading.locked or config.modes.allowed is Mode.OBSERVE:
        return reading.locked
    told = {knob.knob: knob for knob in reading.knobs}
    for name, watts in config.safe.items():
        knob = told.get(name)
        if knob is None or knob.set_watts is None:
            return f"the driver does not tell {name}, so that no write could be checked"
        if knob.low_watts is not None and watts < knob.low_watts - 1e-6:
            return f"the lowest {name} that the part takes, {knob.low_watts:g} W, is above the safe {watts:g} W"
        if knob.high_watts is not None and watts > knob.high_watts + 1e-6:
            return f"the highest {name} that the part takes, {knob.high_watts:g} W, is below the safe {watts:g} W"
    return ""


def _after(state: GpuState, drift: Drift | None, seen: Limits, reading: PowerReading) -> GpuState:
    """What is known to be in force after a reading, and whose lower limits are kept."""
    energy = state.energy_joules if reading.energy_joules is None else reading.energy_joules
    if drift is None or drift.writer is Writer.OUT_OF_BAND:
        return state if energy == state.energy_joules else replace(state, energy_joules=energy)
    held = dict(state.held)
    if drift.writer is Writer.FOREIGN:
        for knob, watts in seen.items():
            if knob in state.targets and watts < state.targets[knob] and not same(watts, state.targets[knob]):
                held[knob] = watts
            elif knob in held and watts > held[knob] and not same(watts, held[knob]):
                del held[knob]  # whoever had lowered it raised it again
    elif drift.writer is Writer.DRIVER_RELOAD:
        held.clear()
    known = {knob: seen.get(knob, watts) for knob, watts in state.targets.items()}
    return replace(state, held=held, energy_joules=energy, targets=known)


def _reading(
    renewed_s: float | None, reading: PowerReading, *, lease_live: bool, enforced_ok: bool, against: str
) -> Reading:
    return Reading(
        power_watts=reading.power_watts,
        sampled_s=renewed_s,
        temperature_celsius=reading.temperature_celsius,
        brake=reading.brake,
        lease_live=lease_live,
        enforced_ok=enforced_ok,
        against=against,
    )


def _none(state: GpuState, *, lease_live: bool, against: str) -> Reading:
    return Reading(
        power_watts=None, sampled_s=None, lease_live=lease_live, enforced_ok=state.drift is None, against=against
    )


def stages(
    writes: Mapping[GpuId, Limits], now: Mapping[GpuId, dict[str, float]]
) -> tuple[dict[str, dict[str, float]], ...]:
    """The order of a transaction: everything that goes down first, then what goes up; empty stages are left out.

    Within a GPU the lower limiter goes down first and the higher one goes up first, so that they never cross.
    """
    order = ("limit", "ppt0", "ppt1")
    down: dict[str, dict[str, float]] = {}
    up: dict[str, dict[str, float]] = {}
    for gpu, limits in writes.items():
        for knob in sorted(limits, key=order.index):
            if limits[knob] <= now.get(gpu, {}).get(knob, math.inf):
                down.setdefault(gpu, {})[knob] = limits[knob]
        for knob in sorted(limits, key=order.index, reverse=True):
            if limits[knob] > now.get(gpu, {}).get(knob, math.inf):
                up.setdefault(gpu, {})[knob] = limits[knob]
    return tuple(stage for stage in (down, up) if stage)
