"""Writes that are under way, and who waits for their end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Answer = Callable[[dict[str, Any]], None]
"""Sends an answer; the other end may be gone."""


@dataclass(slots=True, kw_only=True)
class Order:
    """Writes under way, and who waits for their end."""

    until_s: float
    waits: set[str]
    errors: dict[str, str]
    answer: Answer | None
    body: dict[str, Any]
    forget: frozenset[str] = frozenset()
    """GPUs that the guard no longer answers for once their limits are written."""
    unlocks: frozenset[str] = frozenset()
    """GPUs whose clock is unlocked once this is done."""
