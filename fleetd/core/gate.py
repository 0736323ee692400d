"""The gate of one host: which faults stand, and whether new work may start. Pure.

A fault stands until its entry's clear rule is met: `after(T)` by quiet time, `on_reset` by the same source saying that
it is over or by a burn-in that passes, `on_test` by a burn-in only, `on_reboot` and `manual` not in this boot. The
worst source wins; a source that says nothing clears nothing. What cannot be told is not ready.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fleetd.core.policy import Action
from fleetd.model.finding import DRIVER_UNRESPONSIVE, Severity
from fleetd.model.ids import GpuId

STANDING_MAX = 256
"""The mildest and oldest makes room: a flood of warnings does not hide an error."""
_BLOCKING = frozenset({Action.RESET_GPU, Action.REBOOT, Action.DRAIN, Action.QUARANTINE, Action.REPLACE})
_AFTER = re.compile(r"after\((\d+)([smhd])\)")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A fault that was told and has not been cleared."""

    code: str
    gpu: GpuId | None
    severity: Severity
    action: Action
    clear: str
    why: str
    at_s: float
    """Wall time at which it was told last."""
    last_s: float
    """Monotonic time of the same, and of the last sign of it."""
    lasts: bool = False
    """An open episode of the detection: it does not expire."""

    @property
    def blocks(self) -> bool:
        """Whether no new work may start while it stands."""
        return self.action in _BLOCKING


Faults = Mapping[tuple[str, GpuId | None], Standing]


def put(faults: Faults, fault: Standing) -> Faults:
    """A fault was told."""
    after = {**faults, (fault.code, fault.gpu): fault}
    if len(after) > STANDING_MAX:
        mildest = min(after, key=lambda key: (after[key].blocks, after[key].severity, after[key].last_s))
        del after[mildest]
    return after


def ended(faults: Faults, code: str, gpu: GpuId | None, *, now_s: float) -> Faults:
    """The source that told it has proof that it is over."""
    kept = faults.get((code, gpu))
    if kept is None:
        return faults
    if kept.clear == "on_reset":
        return {key: one for key, one in faults.items() if key != (code, gpu)}
    return {**faults, (code, gpu): replace(kept, lasts=False, last_s=now_s)}


def proven(faults: Faults) -> Faults:
    """A burn-in of the host passed."""
    return {key: one for key, one in faults.items() if one.clear in {"manual", "on_reboot"} or one.lasts}


def expire(faults: Faults, *, now_s: float) -> Faults:
    """Time has passed."""
    return {key: one for key, one in faults.items() if not _expired(one, now_s)}


class Readiness(StrEnum):
    """Whether new work may start."""

    READY = "ready"
    BAD = "bad"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The answer, and its reason for whoever is turned away."""

    readiness: Readiness
    why: str


def gate(
    faults: Faults,
    *,
    gpus: int,
    missing: int,
    unheard: Sequence[GpuId],
    silent_gpus: Sequence[GpuId],
    driver_silent: str,
    age_s: float | None,
    stale_s: float,
) -> Gate:
    """Judge whether new work may start on this host.

    Args:
        faults: What stands.
        gpus: How many GPUs the driver names.
        missing: How many of them did not answer in the last round.
        unheard: Those of them that have not answered at all, since the agent was started or holds the GPUs again.
        silent_gpus: Those of them that have been silent for too long.
        driver_silent: Code and reason when nobody answers, and that has been told; else "".
        age_s: Seconds since the last reading; None: there has been none.
        stale_s: From which age on a reading says nothing about the present.
    """
    blocking = sorted((one for one in faults.values() if one.blocks), key=lambda one: (-one.severity, one.code))
    if blocking:
        worst = blocking[0]
        more = f" (and {len(blocking) - 1} more)" if len(blocking) > 1 else ""
        where = f" on {worst.gpu}" if worst.gpu else ""
        return Gate(readiness=Readiness.BAD, why=f"{worst.code}{where}: {worst.why}{more}")
    if driver_silent:
        return Gate(readiness=Readiness.BAD, why=driver_silent)
    if silent_gpus:
        why = f"{DRIVER_UNRESPONSIVE}: {len(silent_gpus)} of {gpus} GPUs do not answer: {_some(silent_gpus)}"
        return Gate(readiness=Readiness.BAD, why=why)
    if why := _unknown(gpus, unheard, age_s, stale_s):
        return Gate(readiness=Readiness.CANNOT_TELL, why=why)
    who = f"{gpus - missing} of {gpus} GPUs answered in the last round" if missing else f"{gpus} GPUs answer"
    return Gate(readiness=Readiness.READY, why=f"{who}, and no fault stands that forbids new work")


def _unknown(gpus: int, unheard: Sequence[GpuId], age_s: float | None, stale_s: float) -> str:
    """Why the readings do not tell; "" when they do."""
    if age_s is None:
        return "no GPU has been read yet; wait for the agent's discovery"
    if age_s > stale_s:
        return f"the last reading is {age_s:.0f} s old; look at the agent's log"
    if unheard:  # an agent that has just been started cannot know that this one was silent before
        return f"{len(unheard)} of {gpus} GPUs have not answered yet: {_some(unheard)}; wait for their first reading"
    return ""


def _some(gpus: Sequence[GpuId]) -> str:
    return gpus[0] + (f" and {len(gpus) - 1} more" if len(gpus) > 1 else "")


def _expired(one: Standing, now_s: float) -> bool:
    found = _AFTER.fullmatch(one.clear)
    return found is not None and not one.lasts and now_s - one.last_s >= int(found[1]) * _UNIT_S[found[2]]
