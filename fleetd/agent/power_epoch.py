"""The number of this start of the agent, higher than that of any before: answers to an earlier start do not count."""

from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)

EPOCH_MAX = 1 << 60
"""In milliseconds of wall time, some million years from now."""


def next_epoch(path: Path, *, wall_s: float) -> int:
    """One more than the last on disk, and at least the wall time in milliseconds, for a disk that was lost.

    A disk that refuses costs nothing as long as the clock is not set back; it is logged.
    """
    try:
        last = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        last = 0
    if not 0 <= last < EPOCH_MAX:
        last = 0  # no number of ours: one that no message could carry would keep the host without a lease for good
    epoch = max(last + 1, int(wall_s * 1000))
    try:
        fresh = path.with_suffix(".new")
        fresh.write_text(f"{epoch}\n", encoding="ascii")
        fresh.replace(path)
    except OSError as error:
        _log.error("power_epoch_not_saved", path=str(path), why=error.strerror)
    return epoch
