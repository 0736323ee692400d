"""The host's lease of the fleet's power budgets: asks for it, hands it to the governor, says what is in force.

Not the power guard's lease: that one lasts 200 ms and guards this host against its own agent; this one lasts a minute
and guards the rack against all of its hosts. When it lapses the governor falls to the safe cap. Nothing is told to be
in force that a turn of the governor has not read back, in a turn that began under that cap. A GPU that is silent, or
has gone, is reckoned with at the limit that it told last: nobody knows that it took another one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from fleetd.core.power.lease import Lease
from fleetd.core.power.modes import Mode
from fleetd.core.power.provenance import TOLERANCE_WATTS
from fleetd.model.ids import GpuId, HostName
from fleetd.model.power import GpuPower
from fleetd.model.power_lease import Answer, Ask, Grant, LeaseStatus, NoGrant
from fleetd.ports import Clock

_log = structlog.get_logger(__name__)

ASKS_PER_TTL = 3
"""So that two questions or answers may be lost before the lease lapses."""
ASK_FIRST_S = 5.0
"""Between two questions while nothing has been granted."""
TICK_S = 0.5
"""What is new is told after this time."""
STALE_S = 5.0
"""A governor that has not turned for so long is not spoken for: the power guard has let its limits fall long before."""
OVER_S = 2.0
"""Limits may stay above a lower cap for so long, while it is written; the least grace of a lease is longer."""
ALL_WATTS = 1e6
"""The wish for everything; the controller cuts it at the host's maximum."""
_LOWEST = ("limit", "ppt0")
"""The knobs that bound what is drawn for longer than milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCap:
    """What holds for one turn of the governor."""

    seq: int
    """The answer that it comes from."""
    host_watts: float
    gpu_watts: float | None
    """Of each governed GPU; None: no lease, only the safe cap."""
    why: str
    """Why there is no lease; "": there is one."""


class PowerLease:
    """One host's end. `status` may be called from another thread."""

    def __init__(
        self, *, host: HostName, epoch: int, base_watts: float, safe_cap_watts: float, allowed: str, clock: Clock
    ) -> None:
        """Hold nothing, and ask for nothing before the governor's first turn.

        Args:
            host: its name in the power tree.
            epoch: higher than that of any start before.
            base_watts: the most that everything draws which is no governed GPU.
            safe_cap_watts: the envelope's, of one GPU.
            allowed: the highest mode of the governor.
            clock: monotonic.
        """
        self._host, self._epoch, self._clock = host, epoch, clock
        self._base_watts, self._safe_cap_watts, self._allowed = base_watts, safe_cap_watts, allowed
        self._lease: Lease | None = None
        self._gpus = 0
        self._wish_watts = 0.0
        self._grant: Grant | None = None
        self._none: NoGrant | None = None
        self._turned_s = -math.inf
        self._in_force_watts: float | None = None
        self._last_watts: dict[GpuId, float] = {}  # bounded by the parts that were ever in this host
        self._most_watts: float | None = None
        self._silent: tuple[GpuId, ...] = ()
        self._proven = False
        self._over_s: float | None = None
        self._unheld = ""
        self._live = False
        self._due_s = -math.inf
        self._asked: tuple[float, bool] | None = None
        self._freed, self._applied_watts = False, 0.0
        self._burnins = 0
        self.asked_total = self.answered_total = self.lapses_total = 0

    # ── the governor's side ─────────────────────────────────────────────────────────────────────────────────────────

    def cap(self, wishes: Sequence[float]) -> PowerCap:
        """The cap for the turn that begins.

        Args:
            wishes: watts, for each governed GPU what the governor would set it to if it were let.
        """
        now_s = self._clock.elapsed_s()
        if self._lease is None and wishes:
            self._gpus = len(wishes)
            safe_watts = self._base_watts + self._gpus * self._safe_cap_watts
            self._lease = Lease(host=self._host, epoch=self._epoch, safe_watts=safe_watts)
        self._wish_watts = self._base_watts + math.fsum(wishes)
        if self._lease is None:
            return PowerCap(seq=0, host_watts=self._base_watts, gpu_watts=None, why="no GPU is governed yet")
        live = now_s < self._lease.until_s
        if self._live and not live:
            self.lapses_total += 1
            _log.warning("power_lease_lapsed", cap_watts=self._lease.safe_watts, why=self._why(now_s, turning=True))
        self._live = live
        watts = self._lease.cap_watts(now_s)
        each = self._each(watts) if live else None
        why = "" if live else f"no lease of the power budget: {self._why(now_s, turning=True)}"
        return PowerCap(seq=self._lease.received_seq, host_watts=watts, gpu_watts=each, why=why)

    def turned(self, cap: PowerCap, gpus: Sequence[GpuPower]) -> None:
        """A turn under `cap` has ended; it began by reading the limits that `gpus` show."""
        now_s = self._turned_s = self._clock.elapsed_s()
        if self._lease is None:
            return
        limits = {gpu.gpu: _in_force(gpu) for gpu in gpus}
        known = {gpu: watts for gpu, watts in limits.items() if watts is not None}
        whole = len(known) == len(limits)
        self._in_force_watts = self._base_watts + math.fsum(known.values()) if whole else None
        self._reckon(gpus, known)
        self._unheld = next((f"{g.gpu} is not governed: {g.why}" for g in gpus if g.mode == Mode.OBSERVE.value), "")
        if self._allowed == Mode.OBSERVE.value:
            self._unheld = "its governor only observes (`power: mode`)"
        elif len(gpus) > self._gpus:
            self._unheld = f"{len(gpus)} GPUs, and the lease was begun for {self._gpus}: restart the agent"
        if self._most_watts is None:
            return
        # The safe cap is certified with a margin; firmware that takes whole watts only may stay that much above it.
        safe_watts = self._lease.safe_watts + self._gpus * TOLERANCE_WATTS
        if self._most_watts <= max(cap.host_watts, safe_watts) + 1e-6:
            self._over_s = None
            if not whole:
                return
            self._proven = True
            before_seq = self._lease.applied_seq
            self._lease.applied(cap.seq)
            if self._lease.applied_seq != before_seq:
                self._freed = self._freed or cap.host_watts < self._applied_watts
                self._applied_watts = cap.host_watts
        elif self._over_s is None:
            self._over_s = now_s

    def _reckon(self, gpus: Sequence[GpuPower], known: Mapping[GpuId, float]) -> None:
        """The most that this host may be held to, with GPUs that do not tell; None: one of them never told."""
        for gpu in gpus:
            if gpu.gpu in known:  # a raise that was written in this very turn has not been read yet
                wanted = [gpu.targets_watts[knob] for knob in _LOWEST if knob in gpu.targets_watts]
                self._last_watts[gpu.gpu] = max([known[gpu.gpu], *wanted])
        self._silent = tuple(name for name in self._last_watts if name not in known)
        if any(gpu.gpu not in self._last_watts for gpu in gpus):
            self._most_watts = None
        else:
            silent_watts = math.fsum(self._last_watts[name] for name in self._silent)
            self._most_watts = self._base_watts + math.fsum(known.values()) + silent_watts

    # ── the uplink's side ───────────────────────────────────────────────────────────────────────────────────────────

    async def next_ask(self) -> Ask:
        """See `PowerLine`."""
        while (ask := self._ask()) is None:
            await self._clock.sleep_s(TICK_S)
        return ask

    def _ask(self) -> Ask | None:
        """The question that is due: in time for the lease, or because something is new that changes the answer."""
        now_s, lease = self._clock.elapsed_s(), self._lease
        if lease is None or now_s - self._turned_s > STALE_S:
            return None
        uncapped, demand_watts = self._uncapped(now_s), self._demand_watts()
        news = (demand_watts, bool(uncapped))
        if now_s < self._due_s and news == self._asked and not self._freed:
            return None
        self._asked, self._freed = news, False
        ttl_s = ASKS_PER_TTL * ASK_FIRST_S if self._grant is None else self._grant.ttl_s
        self._due_s = now_s + ttl_s / ASKS_PER_TTL
        self.asked_total += 1
        return lease.ask(now_s, demand_watts, uncapped=uncapped)

    def answered(self, answer: Answer) -> None:
        """See `PowerLine`."""
        now_s, lease = self._clock.elapsed_s(), self._lease
        self.answered_total += 1
        if isinstance(answer, NoGrant):
            if self._none != answer:
                _log.warning("power_lease_refused", why=answer.why)
            self._none = answer
            return
        self._none = None
        before_watts = None if lease is None else lease.cap_watts(now_s)
        if lease is None or not lease.receive(now_s, answer):
            return
        self._grant = answer
        if answer.watts != before_watts:
            _log.info("power_lease", cap_watts=answer.watts, before_watts=before_watts, why=answer.why)

    def _uncapped(self, now_s: float) -> str:
        """Why this host must be reckoned with at its maximum; "": its cap holds."""
        if self._unheld:
            return self._unheld
        if self._most_watts is None or (self._in_force_watts is None and not self._proven):
            return "" if self._proven else "a GPU does not tell its limit"
        if not self._proven or (self._over_s is not None and now_s - self._over_s > OVER_S):
            cap_watts = 0.0 if self._lease is None else self._lease.cap_watts(now_s)
            last = ", ".join(f"{name} does not tell, last {self._last_watts[name]:g} W" for name in self._silent)
            allow = f"its limits allow {self._most_watts:g} W, its cap is {cap_watts:g} W"
            return f"{allow} ({last})" if last else allow
        return ""

    def _demand_watts(self) -> float:
        safe_watts = 0.0 if self._lease is None else self._lease.safe_watts
        return ALL_WATTS if self._burnins else max(self._wish_watts, safe_watts)

    def _why(self, now_s: float, *, turning: bool = False) -> str:
        if self._none is not None:
            return self._none.why
        if self._lease is not None and now_s < self._lease.until_s:
            return "" if self._grant is None else self._grant.why
        if not turning and now_s - self._turned_s > STALE_S:
            return "the governor does not turn"
        return "the controller has not answered" if self.asked_total else "it has not been asked for yet"

    def _each(self, watts: float) -> float:
        """A governed GPU's part of a cap of the whole host.

        GPUs that went away may still draw: their part is not given to the others. In whole watts, and so far below that
        a limit which reads back the same to a driver is not above.
        """
        return math.floor((watts - self._base_watts) / self._gpus - TOLERANCE_WATTS)

    # ── burn-ins ────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def all_wanted(self) -> Iterator[None]:
        """As long as this is open, everything is asked for that the host may have."""
        self._burnins += 1
        try:
            yield
        finally:
            self._burnins -= 1

    async def wait_for_all(self, wait_s: float) -> str:
        """Wait until the host is granted all that it can draw; "" or why it was not in time."""
        end_s = self._clock.elapsed_s() + wait_s
        while True:
            now_s = self._clock.elapsed_s()
            if self._none is not None and not self._none.budgets:
                return ""  # nobody shares a budget with this host
            live = self._lease is not None and now_s < self._lease.until_s
            if live and self._grant is not None and self._grant.whole:
                return ""
            if now_s >= end_s:
                why = self._why(now_s) or "the answer is under way"
                return f"no lease of all that the host can draw within {wait_s:g} s: {why}"
            await self._clock.sleep_s(TICK_S)

    # ── what is shown ───────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> LeaseStatus:
        """A snapshot."""
        now_s, lease = self._clock.elapsed_s(), self._lease
        left_s = 0.0 if lease is None else max(0.0, lease.until_s - now_s)
        watts = self._base_watts if lease is None else lease.cap_watts(now_s)
        return LeaseStatus(
            watts=watts,
            safe_watts=self._base_watts if lease is None else lease.safe_watts,
            gpu_watts=self._each(watts) if left_s > 0 else None,
            left_s=left_s,
            demand_watts=self._demand_watts(),
            in_force_watts=self._in_force_watts,
            why=self._uncapped(now_s) or self._why(now_s),
            asked_total=self.asked_total,
            answered_total=self.answered_total,
            lapses_total=self.lapses_total,
        )


def _in_force(gpu: GpuPower) -> float | None:
    """The limit that holds a GPU: what was set, also when something past the driver holds it lower for a while."""
    limits = [gpu.set_watts[knob] for knob in _LOWEST if knob in gpu.set_watts]
    if not limits:
        return None
    return max(min(limits), gpu.enforced_watts or 0.0)
