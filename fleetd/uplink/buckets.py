"""Token buckets: how often each of many peers may do something."""

from collections import OrderedDict
from collections.abc import Callable

BURST_S = 5.0
"""A peer that was quiet may do at once what it may do in this many seconds."""
_BURST_MIN = 10.0
_ROUNDING = 1e-6


class Buckets:
    """A bucket a peer. Bounded: the peer that was seen longest ago is forgotten, which fills its bucket."""

    def __init__(
        self, per_second: float, *, elapsed_s: Callable[[], float], burst: float | None = None, peers_max: int = 20_000
    ) -> None:
        """Make no bucket yet.

        Args:
            per_second: what each peer may do for ever.
            elapsed_s: monotonic time, seconds.
            burst: what it may do at once; None: `BURST_S` seconds of it, at least 10.
            peers_max: peers that are remembered.
        """
        self._per_second = per_second
        self._burst = max(_BURST_MIN, per_second * BURST_S) if burst is None else burst
        self._elapsed_s = elapsed_s
        self._peers_max = peers_max
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when they were so many

    def take(self, peer: str) -> float:
        """Take a token; returns 0, or the seconds until there is one: then none was taken."""
        now_s = self._elapsed_s()
        tokens, at_s = self._levels.pop(peer, (self._burst, now_s))
        tokens = min(self._burst, tokens + (now_s - at_s) * self._per_second)
        # The tolerance is for rounding: who waits for as long as he was told finds a token.
        wait_s = 0.0 if tokens >= 1 - _ROUNDING else (1 - tokens) / self._per_second
        self._levels[peer] = (tokens if wait_s else tokens - 1, now_s)
        if len(self._levels) > self._peers_max:
            self._levels.popitem(last=False)
        return wait_s
