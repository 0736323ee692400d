"""How much one peer may ask for, and how long it may take: token buckets in bounded memory, and patience."""

from collections import OrderedDict
from dataclasses import dataclass

from fleetd.ports import Clock

PEERS_MAX = 1024
"""Peers remembered, those that asked last; one that is forgotten begins with a full bucket again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client may take, in seconds. A connection is cheap, but only so many are served."""

    head_s: float = 10.0
    """For the whole head of a request; also how long a connection may rest between two."""
    body_s: float = 20.0
    """For the whole body, which has at most a megabyte."""
    send_s: float = 30.0
    """For taking any of what is sent; until then a buffer and what is to be sent next wait in memory."""


class Buckets:
    """A bucket a peer: it fills at a rate, an asking takes one out."""

    def __init__(self, *, per_minute: float, at_once: float, clock: Clock) -> None:
        self._rate_hz = per_minute / 60
        self._at_once = max(1.0, at_once)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, peer: str) -> float:
        """Take one; returns 0, or after how many seconds the peer may ask again (then nothing is taken)."""
        now_s = self._clock.elapsed_s()
        left, at_s = self._left.pop(peer, (self._at_once, now_s))
        left = min(self._at_once, left + (now_s - at_s) * self._rate_hz)
        wait_s = 0.0 if left >= 1 else (1 - left) / self._rate_hz
        self._left[peer] = (left if wait_s else left - 1, now_s)
        if len(self._left) > PEERS_MAX:
            self._left.popitem(last=False)
        return wait_s
