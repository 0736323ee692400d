"""Simulated clocks: all of them turn with the virtual loop; the wall clock of each host may be wrong."""

import asyncio

EPOCH_S = 1_750_000_000.0
"""Wall time at which every world begins: fixed, so that the same seed gives the same journal."""


class SimClock:
    """The `Clock` port on virtual time. One for each machine."""

    def __init__(self, *, skew_s: float = 0.0) -> None:
        """`skew_s`: how far the wall clock is ahead of the true time."""
        self._skew_s = skew_s
        self._drift_ratio = 0.0
        self._drifts_from_s = 0.0

    @property
    def skew_s(self) -> float:
        """How far the wall clock is ahead of the true time now."""
        return self.wall_s() - EPOCH_S - self.elapsed_s()

    def wall_s(self) -> float:
        """Seconds since the epoch, as far as this machine knows."""
        now_s = asyncio.get_running_loop().time()
        drifted_s = self._drift_ratio * (now_s - self._drifts_from_s) if self._drift_ratio else 0.0
        return EPOCH_S + now_s + self._skew_s + drifted_s

    def elapsed_s(self) -> float:
        """Virtual seconds since the world began; never wrong."""
        return asyncio.get_running_loop().time()

    async def sleep_s(self, seconds: float) -> None:
        """Wait in virtual time; cancellable."""
        await asyncio.sleep(seconds)  # noqa: TID251 - here is where virtual time comes in

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as somebody or something does on real hosts."""
        self._skew_s += seconds

    def drift(self, ratio: float) -> None:
        """From now on gain so many seconds each second (negative: lose them); the monotonic clock is not concerned."""
        if self._drift_ratio:
            self._skew_s += self._drift_ratio * (self.elapsed_s() - self._drifts_from_s)
        self._drift_ratio, self._drifts_from_s = ratio, self.elapsed_s()
