"""How a GPU is set, and what is in use of it, before and after a run, which sets nothing and says so. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

LEFT_BYTES = 64 << 20
"""A driver's own use of a GPU's memory moves by less than this; a context that was not given back is larger."""
WORDS = {
    "power_limit_watts": "power limit",
    "application_sm_clock_hertz": "application clock",
    "application_memory_clock_hertz": "application memory clock",
    "persistence": "persistence mode",
    "compute_mode": "compute mode",
    "performance_level": "performance level",
}
"""What nobody but an operator, or another tool, changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is read of one GPU; None: it has no such thing, or it cannot be read."""

    power_limit_watts: float | None = None
    application_sm_clock_hertz: float | None = None
    application_memory_clock_hertz: float | None = None
    persistence: bool | None = None
    compute_mode: int | None = None
    performance_level: str | None = None
    """AMD's."""
    memory_used_bytes: int | None = None


def changes(before: Settings, after: Settings) -> list[str]:
    """What is not as it was found, in words."""
    told = []
    for name, word in WORDS.items():
        was, now = getattr(before, name), getattr(after, name)
        if was != now and was is not None and now is not None:
            told.append(f"{word} was {was:g} and is {now:g}" if isinstance(was, float) else f"{word}: {was} → {now}")
    if before.memory_used_bytes is not None and after.memory_used_bytes is not None:
        more = after.memory_used_bytes - before.memory_used_bytes
        if more > LEFT_BYTES:
            told.append(f"{more >> 20} MiB of its memory are in use that were free before")
    return told


def compared(before: Mapping[str, Settings], after: Mapping[str, Settings]) -> list[dict[str, Any]]:
    """One entry for each GPU that was read both before and after: both readings, and what differs."""
    return [
        {
            "gpu": gpu,
            "before": asdict(settings),
            "after": asdict(after[gpu]),
            "changes": changes(settings, after[gpu]),
        }
        for gpu, settings in before.items()
        if gpu in after
    ]
