"""A helper's answer about several GPUs, taken apart: whatever is in it, what comes out is typed and bounded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetd.model.ids import GpuId
from fleetd.ports import DeviceError

_PROCESSES_MAX = 64
_TROUBLE_CHARS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """What a helper said of one GPU."""

    gpu: GpuId
    reading: Mapping[str, Any] | None
    """None: there is none, and `trouble` says why."""
    trouble: str
    took_ratio: float
    """Share of the request's time that it took to read this one."""
    ago_ratio: float
    """Share of the request's time that passed after it had been read."""


def read_replies(gpus: Sequence[GpuId], reply: Any) -> list[Replied]:
    """Take a helper's reply for these GPUs apart. Raises DeviceError when it is none."""
    try:
        first_s = min(float(reply[gpu]["began_s"]) for gpu in gpus)
        last_s = max(float(reply[gpu]["over_s"]) for gpu in gpus)
        return [_replied(gpu, reply[gpu], last_s, last_s - first_s) for gpu in gpus]
    except (KeyError, TypeError, ValueError) as error:
        raise DeviceError(f"the helper sent samples that are none: {error!r:.80}") from error


def _replied(gpu: GpuId, one: Any, last_s: float, whole_s: float) -> Replied:
    began_s, over_s = float(one["began_s"]), float(one["over_s"])
    if not 0 <= over_s - began_s <= whole_s < math.inf:
        raise ValueError("times that cannot be")
    reading = one.get("reading")
    return Replied(
        gpu=gpu,
        reading=reading if isinstance(reading, dict) else None,
        trouble=str(one.get("error", "it sent no reading"))[:_TROUBLE_CHARS_MAX],
        took_ratio=(over_s - began_s) / whole_s if whole_s else 0.0,
        ago_ratio=(last_s - over_s) / whole_s if whole_s else 0.0,
    )


def process_ids(entries: Any) -> tuple[int, ...]:
    """The ids in a reader's `PROCESSES`, at most 64; what is no entry is left out."""
    found = (entry[0] for entry in entries if isinstance(entry, list) and entry) if isinstance(entries, list) else ()
    return tuple(int(one) for one in found if isinstance(one, str) and one.isdecimal())[:_PROCESSES_MAX]
