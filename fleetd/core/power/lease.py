"""The host's end of a power lease: what it may draw, until when, and which answers it must not believe.

A lease counts from the moment at which the host *asked*, on the host's own clock; the controller counts from when the
question reached it, which is later. So the controller never takes back what a host still uses, however long an answer
was under way, and no clocks are compared.
"""

import math
from collections import deque

from fleetd.model.power_lease import Ask, Grant

ASKED_KEPT = 64
"""Questions whose answers are still believed; older answers are ignored, which is always safe."""

LEASE_MAX_S = 120.0
"""No controller gives a longer one; a host that took it would be deaf to all that comes later."""
LAST_BIT_WATTS = 1e-6
"""So far apart may one sum of watts be when one end works it out and the other one reads it as a decimal."""


class Lease:
    """What one host holds. Begins lapsed, at the safe cap."""

    def __init__(self, *, host: str, epoch: int, safe_watts: float) -> None:
        """Hold nothing.

        Args:
            host: Its name.
            epoch: Higher than that of any start before.
            safe_watts: The cap without a lease; certified with no software running.

        Raises:
            ValueError: The safe cap is no positive number.
        """
        if not (math.isfinite(safe_watts) and safe_watts > 0):
            raise ValueError(f"the safe cap of {host} must be a positive number of watts, not {safe_watts}")
        self._host, self._epoch, self._safe_watts = host, epoch, safe_watts
        self._asked: deque[tuple[int, float]] = deque(maxlen=ASKED_KEPT)
        self._seq = self._received_seq = self._applied_seq = 0
        self._watts, self._until_s = safe_watts, -math.inf

    def ask(self, now_s: float, demand_watts: float, *, uncapped: str = "") -> Ask:
        """The next question; its answer is worth something for the lease's time from `now_s` (monotonic) on.

        `uncapped`: why the host holds no cap now.
        """
        self._seq += 1
        self._asked.append((self._seq, now_s))
        return Ask(
            host=self._host,
            epoch=self._epoch,
            seq=self._seq,
            demand_watts=demand_watts,
            applied_seq=self._applied_seq,
            holds_watts=self.cap_watts(now_s),
            safe_watts=self._safe_watts,
            uncapped=uncapped,
        )

    def receive(self, now_s: float, grant: Grant) -> bool:
        """Take an answer, unless it is for somebody else, older than the one taken, spent, no number, or for too long.

        The cap to write is then `cap_watts`; when it has been read back, say so with `applied`.
        """
        asked = dict(self._asked)
        if (grant.host, grant.epoch) != (self._host, self._epoch) or grant.seq not in asked:
            return False
        until_s = asked[grant.seq] + grant.ttl_s
        if not (now_s < until_s and grant.ttl_s <= LEASE_MAX_S and grant.watts >= self._safe_watts - LAST_BIT_WATTS):
            return False
        self._received_seq, self._watts, self._until_s = grant.seq, grant.watts, until_s
        while self._asked and self._asked[0][0] <= grant.seq:  # an answer to these would be older than this one
            self._asked.popleft()
        return True

    def applied(self, seq: int) -> None:
        """Answer `seq` is in force, read back from the device: the controller will hear of it with the next question.

        A decrease must not be told before: what it frees is given to others.
        """
        if seq == self._received_seq:
            self._applied_seq = seq

    def cap_watts(self, now_s: float) -> float:
        """The cap that must be in force at a monotonic time: that of the lease, or the safe one when it has lapsed."""
        return self._watts if now_s < self._until_s else self._safe_watts

    @property
    def safe_watts(self) -> float:
        """The cap without a lease."""
        return self._safe_watts

    @property
    def received_seq(self) -> int:
        """The newest answer taken; 0: none."""
        return self._received_seq

    @property
    def applied_seq(self) -> int:
        """The newest answer that is known to be in force; 0: none."""
        return self._applied_seq

    @property
    def until_s(self) -> float:
        """Monotonic time at which the lease lapses; in the past when it has."""
        return self._until_s
