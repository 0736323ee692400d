"""How often an order is tried, how long it waits in between, and when a human is told."""

from dataclasses import dataclass

_WORKERS_MAX = 64
RETRY_AFTER_MAX_S = 600.0
"""No server puts an order off for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig:
    """How hard to try."""

    workers: int = 4
    """Fleet orders carried out side by side; those of one host always one after the other."""
    retry_first_seconds: float = 1.0
    retry_max_seconds: float = 60.0
    """An order that fails is tried again: the wait doubles from the first to the maximum. One about a host never runs
    out of attempts, because a quarantine that is dropped is a bad host in service; it ends when it is not meant any
    more. How often it is tried is bounded by the maximum, and a human is told."""
    tell_after_attempts: int = 5
    """Failures in a row after which a human is told; at the first one where the scheduler says what stands in the way.
    """
    tell_again_seconds: float = 3600.0
    """After which a human is told again, as long as it lasts; at once when something else stands in the way."""
    page_attempts: int = 50
    """After so many failures a message to a human is given up: it would be old, and the log has it."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if not 1 <= self.workers <= _WORKERS_MAX:
            raise ValueError(f"workers: {self.workers} is not between 1 and {_WORKERS_MAX}")
        if not 0 < self.retry_first_seconds <= self.retry_max_seconds:
            raise ValueError("retry_first_seconds must be above 0 and at most retry_max_seconds")
        for name in ("tell_after_attempts", "page_attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, not {getattr(self, name)}")


@dataclass(slots=True, kw_only=True)
class Trouble:
    """An order that was tried and is not done."""

    failures: int = 0
    again_s: float = 0.0
    """Elapsed time before which it is not tried again."""
    told: str | None = None
    told_s: float = 0.0
