"""Times as commands show them: in UTC, and saying so."""

from datetime import UTC, datetime


def utc(at_s: float) -> str:
    """A wall time (seconds since the epoch) as text: `2026-11-30 14:00:00Z`.

    Other machines' clocks, and whoever speaks for them, may say times that no calendar has: those are told in seconds.
    """
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{at_s:.6g} s from 1970"
