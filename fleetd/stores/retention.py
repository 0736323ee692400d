"""How long the ledger keeps what is over; a module of its own, so that reading a configuration loads no adapter."""

from dataclasses import dataclass

KEEP_MIN_S = 86400.0
"""Budgets, storms and probations look back hours: a ledger that keeps less than a day would forget what they count."""
_DAY_S, _HOUR_S = 86400.0, 3600.0
EVERY_HOURS_MIN = 0.1
"""More often it would do nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """When a controller takes old journal entries, findings and finished orders away; see `fleetd store prune`."""

    keep_days: float | None = None
    """What is younger stays; null: everything stays. A report can look no further back than this."""
    every_hours: float = 24.0
    """How often; the first time after so long, so that a controller that keeps starting does nothing else."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.keep_days is not None and not self.keep_days * _DAY_S >= KEEP_MIN_S:
            raise ValueError(f"keep_days: {self.keep_days:g} is less than a day, which decisions still look back to")
        if not self.every_hours >= EVERY_HOURS_MIN:
            raise ValueError(f"every_hours: {self.every_hours:g} is below {EVERY_HOURS_MIN:g}")

    @property
    def keep_s(self) -> float | None:
        """Seconds that are kept; None: all."""
        return None if self.keep_days is None else self.keep_days * _DAY_S

    @property
    def every_s(self) -> float:
        """Seconds between two times."""
        return self.every_hours * _HOUR_S
