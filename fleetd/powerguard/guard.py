"""What the guard decides: who holds the lease, what is written, when everything falls. It waits for nothing itself.

Always true: `falls` follow from the plan on disk, so they need no other file, no agent and no answer of a GPU; while
there is no live lease, no limit above a safe cap is written.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetd.powerguard.hands import Done, Hands
from fleetd.powerguard.lease import Lease
from fleetd.powerguard.order import Answer, Order
from fleetd.powerguard.plan import BadPlan, Plan, declared, load, store
from fleetd.powerguard.wire import WHY_MAX, BadRequest, hertz_of, number, watts_of

STARVED_MAX_S = 2.0
"""A holder that is late because it waits for a processor on a busy host has so long; one that is stopped, sleeps or is
gone has its lease and no more. It cannot renew, but neither can it do harm: nothing of it runs, and only the guard
writes. A holder that spins without renewing is found out after this time."""
_LOOK_S = 0.01
AGAIN_FIRST_S, AGAIN_MAX_S = 1.0, 32.0
"""A fall that failed is tried again after the first wait, which doubles: nobody else is left to take the limit back."""
PATIENCE_S = 1.0
"""An order whose GPUs have not all answered by then is answered, and names those that have not."""


class Guard:
    """The guard without its sockets: every method takes the time and returns at once."""

    def __init__(
        self, *, state: Path, hands: Hands, boot: str, wall_s: Callable[[], float], hand_over_max_s: float
    ) -> None:
        """Take what is on disk. Raises OSError when it cannot be read.

        Args:
            state: the file of the plan.
            hands: write the limits.
            boot: the present boot id.
            wall_s: for records.
            hand_over_max_s: longest time without an agent that a hand-over may take.
        """
        self._state, self._hands, self._boot, self._wall_s = state, hands, boot, wall_s
        self._hand_over_max_s = hand_over_max_s
        self._orders: dict[int, Order] = {}
        self._jobs = 0
        self.lease: Lease | None = None
        self.fallen = "nobody has armed the guard yet"
        """Why there is no lease; "" while there is one."""
        self.errors: dict[str, str] = {}
        """GPU → why its last write failed."""
        self.starved: Callable[[], bool] = lambda: False
        """Whether the holder waits for a processor; the service says so of its process."""
        self._look_s = float("-inf")
        self._again_s, self._again_wait_s = float("inf"), AGAIN_FIRST_S
        self.starved_total = 0
        """Leases that lived on because their holder was starved."""
        self.renewed_total = 0
        self.falls_total: dict[str, int] = {}
        self.refusals_total = 0
        self.plan: Plan | None = None
        self.damaged = ""
        """Why the state file told nothing; "": it did, or there was none."""
        try:
            self.plan = load(state)
        except BadPlan as error:
            # Kept for whoever looks into it. Nothing is known to fall to, and the next agent declares it anew.
            state.replace(state.with_suffix(".damaged"))
            self.damaged = self.fallen = f"the state file was damaged: {error}"

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_s(self) -> float | None:
        """When `tick` is due next; None: nothing is."""
        due = [order.until_s for order in self._orders.values()]
        if self.lease is not None:
            due.append(max(self.lease.until_s, self._look_s))
        return min(due, default=None)

    def tick(self, now_s: float) -> None:
        """See whether the lease has lapsed and who waits for too long. Read all renewals before."""
        if self.lease is not None and not self.lease.live(now_s) and not self._is_starved(now_s, self.lease):
            handed = self.lease.hand_over_until_s >= self.lease.sent_s + self.lease.ttl_s
            late = now_s - self.lease.sent_s
            why = "nobody came after the hand-over" if handed else f"the lease lapsed: last renewed {late:.3f} s ago"
            self.fall(now_s, "lapse", why)
        for job, order in list(self._orders.items()):
            if order.until_s <= now_s:
                order.errors |= dict.fromkeys(order.waits, f"no answer of the driver within {PATIENCE_S:g} s")
                self.errors |= dict.fromkeys(order.waits, "the driver hangs in a write")
                self._close(job)
        if self.lease is None and self._again_s <= now_s and not self._orders and self.plan is not None:
            self._fall_again(now_s, self.plan)

    def _fall_again(self, now_s: float, plan: Plan) -> None:
        """Write once more what a fall could not; a GPU whose driver hangs has its order still."""
        self._again_wait_s = min(2.0 * self._again_wait_s, AGAIN_MAX_S)
        self._again_s = now_s + self._again_wait_s if self.errors else float("inf")
        left = self.errors.keys() - set(self._hands.busy)
        if falls := {gpu: limits for gpu, limits in plan.falls().items() if gpu in left}:
            self._write(now_s, falls, None, {}, clocks=dict.fromkeys(plan.locked().keys() & left))

    def _is_starved(self, now_s: float, lease: Lease) -> bool:
        handed = lease.hand_over_until_s >= lease.sent_s + lease.ttl_s
        if handed or now_s > lease.sent_s + STARVED_MAX_S or not self.starved():
            return False
        if self._look_s < lease.until_s:  # the first look at this lateness
            self.starved_total += 1
        self._look_s = now_s + _LOOK_S
        return True

    def finished(self, ended: list[Done]) -> None:
        """Take the ends of writes."""
        for one in ended:
            if one.error:
                self.errors[one.gpu] = one.error
            else:
                self.errors.pop(one.gpu, None)
            order = self._orders.get(one.job)
            if order is None:
                continue
            order.waits.discard(one.gpu)
            if one.error:
                order.errors[one.gpu] = one.error
            if not order.waits:
                self._close(one.job)

    def _close(self, job: int) -> None:
        order = self._orders.pop(job)
        if order.unlocks and self.plan is not None:
            self.plan = self.plan.with_clocks(dict.fromkeys(order.unlocks - order.errors.keys()))
            with suppress(OSError):  # then a clock is unlocked once more, which changes nothing
                store(self._state, self.plan)
        if order.forget:
            self._forget(order.forget - order.errors.keys())
        if order.answer is not None:
            why = "; ".join(f"{gpu}: {error}" for gpu, error in order.errors.items())[:WHY_MAX]
            order.answer({**order.body, "ok": not order.errors, "why": why, "errors": order.errors})
        if self.lease is None and not self._orders and not self._hands.busy:
            self._hands.let_go()

    def _forget(self, gpus: frozenset[str]) -> None:
        if self.plan is not None and self.lease is None:
            self.plan = replace(self.plan, gpus={n: gpu for n, gpu in self.plan.gpus.items() if n not in gpus})
            with suppress(OSError):  # then the next start lowers them to their safe caps, which is the safe mistake
                store(self._state, self.plan)

    # ── falling ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def reconcile(self, now_s: float) -> None:
        """The guard has started without a lease: what it finds on disk may be above the safe caps."""
        if self.plan is not None:
            self.fall(now_s, "start", "the guard started without a lease")

    def fall(self, now_s: float, kind: str, why: str, *, answer: Answer | None = None) -> None:
        """Write every GPU's safe cap, or less where less is in force; then record it. `answer` gets how that went."""
        self.lease, self.fallen = None, why
        self.falls_total[kind] = self.falls_total.get(kind, 0) + 1
        # An agent that gives the lease back may do so for somebody to reload the driver: that must find it let go.
        self._again_s, self._again_wait_s = float("inf") if kind == "disarm" else now_s + AGAIN_FIRST_S, AGAIN_FIRST_S
        if self.plan is None:
            if answer is not None:
                answer({"ok": True, "why": "no GPU was ever declared", "errors": {}})
            return
        falls = self.plan.falls()
        # First: that this may happen is on disk since the guard was armed. A clock that we locked is free afterwards:
        # the safe cap needs no other help, and nobody would be left to free it.
        self._write(now_s, falls, answer, {}, clocks=dict.fromkeys(self.plan.locked()))
        self._keep(falls, why, lower=True)

    def _write(
        self,
        now_s: float,
        limits: Mapping[str, Mapping[str, float]],
        answer: Answer | None,
        body: dict[str, Any],
        *,
        clocks: Mapping[str, float | None],
        forget: bool = False,
    ) -> None:
        assert self.plan is not None  # noqa: S101 - limits are those of its GPUs
        self._jobs += 1
        self._orders[self._jobs] = Order(
            until_s=now_s + PATIENCE_S,
            waits={*limits, *clocks},
            errors={},
            answer=answer,
            body=body,
            forget=frozenset(limits) if forget else frozenset(),
            unlocks=frozenset(gpu for gpu, hertz in clocks.items() if hertz is None),
        )
        if not limits and not clocks:
            self._close(self._jobs)
        for gpu in dict.fromkeys([*limits, *clocks]):
            clock = (clocks[gpu],) if gpu in clocks else ()
            self._hands.write(self._jobs, self.plan.gpus[gpu], limits.get(gpu, {}), clock)

    def _keep(
        self,
        targets: Mapping[str, Mapping[str, float]],
        why: str,
        locks: Mapping[str, float] | None = None,
        *,
        lower: bool = False,
    ) -> str:
        """Put the targets, and clocks that are to be locked, on disk; "" or why that did not work.

        What only got lower is known here also if the disk does not take it: this guard's falls must not raise it.
        """
        assert self.plan is not None  # noqa: S101 - only called with one
        plan = self.plan.with_targets({gpu: dict(knobs) for gpu, knobs in targets.items()})
        plan = replace(plan.with_clocks(locks or {}), reason=why, written_at_s=self._wall_s())
        try:
            store(self._state, plan)
        except OSError as error:
            self.plan = plan if lower else self.plan
            return f"{self._state}: {error.strerror}"
        self.plan = plan
        return ""

    def save(self) -> str:
        """Put the plan on disk once more, for the next program; "" or why that did not work."""
        return "" if self.plan is None else self._keep({}, self.plan.reason)

    # ── requests of the holder ──────────────────────────────────────────────────────────────────────────────────────

    def arm(self, now_s: float, body: dict[str, Any]) -> str:
        """Begin a lease; "" or why not. Raises BadRequest."""
        try:
            lease = Lease(ttl_s=number(body, "ttl_s"), grace_s=number(body, "grace_s"), sent_s=now_s)
            sent_s = number(body, "sent_s")
            lease.renewed(now_s, sent_s)
            fresh = replace(lease, sent_s=min(now_s, sent_s))
            plan = declared(body.get("gpus"), boot=self._boot, at_s=self._wall_s(), before=self.plan)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        try:
            store(self._state, plan)  # before the first write
        except OSError as error:
            return f"{self._state}: {error.strerror}; nothing is written without it"
        # The disk may have taken longer than the lease: it begins when the answer goes out.
        self.plan, self.fallen = plan, ""
        self.errors = {gpu: why for gpu, why in self.errors.items() if gpu in plan.gpus}  # others went before the boot
        self.lease = replace(fresh, sent_s=now_s)
        return ""

    def renew(self, now_s: float, body: dict[str, Any]) -> str:
        """Go on; "" or why there is nothing to renew. Raises BadRequest."""
        if self.lease is None or self.plan is None:
            return self.fallen
        if "seen" in body:
            seen = watts_of(body["seen"], self._knobs(), "seen")
            known = {gpu: self.plan.gpus[gpu].limits for gpu in seen}
            lower = {
                gpu: {k: min(w, known[gpu][k].target_watts) for k, w in knobs.items()} for gpu, knobs in seen.items()
            }
            if any(w < known[gpu][knob].target_watts for gpu, knobs in lower.items() for knob, w in knobs.items()):
                self._keep(lower, "less is in force than was written", lower=True)
        try:
            self.lease = self.lease.renewed(now_s, number(body, "sent_s"))
        except ValueError as error:
            raise BadRequest(str(error)) from error
        self.renewed_total += 1
        return ""

    def put(self, now_s: float, body: dict[str, Any], answer: Answer) -> str:
        """Write limits under the lease; "" (the end is answered later) or why not. Raises BadRequest."""
        if refused := self.renew(now_s, {key: body[key] for key in ("sent_s",) if key in body}):
            return refused
        assert self.lease is not None  # noqa: S101 - renewed above
        assert self.plan is not None  # noqa: S101 - as above
        if not self.lease.live(now_s):
            return "the lease has lapsed"
        limits = watts_of(body.get("limits"), self._knobs(), "limits")
        lockable = {name for name, gpu in self.plan.gpus.items() if gpu.vendor == "nvidia"}
        clocks = hertz_of(body.get("clocks", {}), lockable, "clocks")
        if not limits and not clocks:
            raise BadRequest("limits: none is named")
        for gpu, knobs in limits.items():
            for knob, watts in knobs.items():
                if watts > self.plan.gpus[gpu].limits[knob].ceiling_watts:
                    self.refusals_total += 1
                    ceiling = self.plan.gpus[gpu].limits[knob].ceiling_watts
                    return f"{gpu}: {knob} {watts:g} W is above the ceiling of {ceiling:g} W"
        locks = {gpu: hertz for gpu, hertz in clocks.items() if hertz is not None}
        if failed := self._keep(limits, str(body.get("reason", ""))[:WHY_MAX], locks):
            return f"{failed}; nothing is written without it"
        self._write(now_s, limits, answer, {"seq": body.get("seq")}, clocks=clocks)
        return ""

    def hand_over(self, now_s: float, body: dict[str, Any]) -> str:
        """The holder is being replaced; "" or why that cannot be. Raises BadRequest."""
        if self.lease is None:
            return self.fallen
        try:
            self.lease = self.lease.handed_over(now_s, number(body, "seconds"), at_most_s=self._hand_over_max_s)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        return ""

    def restore(self, now_s: float, to: str, answer: Answer) -> None:
        """An operator's order: everything to its safe cap, or back to what was in force before fleetd."""
        if to == "safe" or self.plan is None:
            self.fall(now_s, "operator", "an operator restored the safe caps", answer=answer)
            return
        self._again_s = float("inf")
        self.lease, self.fallen = None, "an operator gave back the limits that were in force before"
        priors = self.plan.priors()
        if failed := self._keep(priors, self.fallen):
            answer({"ok": False, "why": failed, "errors": {}})
            return
        self._write(now_s, priors, answer, {}, forget=True, clocks=dict.fromkeys(self.plan.locked()))

    @property
    def idle(self) -> bool:
        """No write is under way: the process may be replaced."""
        return not self._orders and not self._hands.busy

    def _knobs(self) -> dict[str, set[str]]:
        return {} if self.plan is None else {name: set(gpu.limits) for name, gpu in self.plan.gpus.items()}
