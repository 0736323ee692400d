"""The moves a host can make and the numbering of its orders.

A `Draft` is a step under construction. Everything that changes a host goes through it, so that each order id is
`HOST/N/kind` with a number never used before, each change has a reason, and the invariants are checked at the end.
"""

from dataclasses import replace
from typing import Any

from fleetd.core import budget, gone
from fleetd.core.fleet import Fleet
from fleetd.core.invariants import (
    AUTOMATIC,
    FLEETD,
    MAX_CHARGES,
    MAX_CLOSINGS,
    MAX_EVIDENCE,
    MAX_HOLDS,
    MAX_MARKS,
    MAX_STRIKES,
    MAX_TOLD,
    SERVING,
    check,
)
from fleetd.core.policy import MAX_STRIKES_PER_GPU, Policy, covers, strongest
from fleetd.core.step import Step
from fleetd.model.event import Event
from fleetd.model.finding import FaultClass
from fleetd.model.host import Charge, DueBurnin, Hold, Host, Lifecycle, Mark, PendingBurnin, Strike, Told
from fleetd.model.ids import FindingId, GpuId, OrderId
from fleetd.model.journal import WithheldOrder
from fleetd.model.order import Drain, Notify, Order, Quarantine, Release, RunBurnin

DUE_RETRY_FIRST_S = 60.0
DUE_RETRY_MAX_S = 3600.0
"""When a burn-in that had to wait is tried again: the wait doubles from the first to the maximum."""

_MAX_TEXT = 400
_MAX_WHY = 2000


def line(text: str, limit: int = _MAX_TEXT) -> str:
    """Text from outside as one bounded line: it goes into logs and into the scheduler's reason."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


class Draft:
    """A step of one host under construction."""

    def __init__(self, host: Host, *, now_s: float, fleet: Fleet, policy: Policy) -> None:
        self.host = host
        self.now_s = now_s
        self.fleet = fleet
        self.policy = policy
        self.record = fleet.record
        self.before = host
        self._orders: list[Order] = []
        self._withheld: list[WithheldOrder] = []
        self._followups: list[Event] = []
        self._why: list[str] = []

    # ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def set(self, **changes: Any) -> None:
        """Change fields of the host."""
        self.host = replace(self.host, **changes)

    def say(self, why: str) -> None:
        """Add to the reason of the step."""
        self._why.append(line(why))

    def move(self, state: Lifecycle, why: str) -> None:
        """Enter a state, or stay in it for a new reason."""
        since_s = self.host.since_s if self.host.state is state else self.now_s
        self.set(state=state, why=line(why), since_s=since_s)
        if self.host.silent is not None:  # what is decided while its agent is away stands when it is back
            self.set(silent=replace(self.host.silent, before=state))
        if state is Lifecycle.HEALTHY and self.before.state is not Lifecycle.HEALTHY:
            self.set(told=(), charges=(), probation_until_s=None)  # what comes now is news again
        self.say(why)

    def follow_up(self, event: Event) -> None:
        """Have this judged next: what the step means for another host."""
        self._followups.append(event)

    def strike(self, gpu: GpuId, finding: FindingId, at_s: float) -> None:
        """Count a transient fault against a GPU, once however often it is told."""
        if any(s.gpu == gpu and s.finding == finding for s in self.host.strikes):
            return
        own = [s for s in self.host.strikes if s.gpu == gpu]
        kept = [s for s in self.host.strikes if len(own) < MAX_STRIKES_PER_GPU or s is not own[0]]
        self.set(strikes=(*kept, Strike(gpu=gpu, finding=finding, at_s=at_s))[-MAX_STRIKES:])

    def condemn(self, finding: FindingId, gpu: GpuId | None, fault_class: FaultClass) -> None:
        """Write a line into the history of the serial, the slot and the host, once for a finding."""
        if any(m.finding == finding and m.gpu == gpu for m in self.host.marks):
            return
        mark = Mark(gpu=gpu, slot=slot_of(self.host, gpu), finding=finding, fault_class=fault_class, at_s=self.now_s)
        self.set(marks=(*self.host.marks, mark)[-MAX_MARKS:])

    # ── holds and charges ───────────────────────────────────────────────────────────────────────────────────────────

    def new_hold(self, *, finding: FindingId, reason: str, gpu: GpuId | None, fault_class: FaultClass) -> Hold:
        """A hold of fleetd, with the proof that the policy asks for."""
        proof = self.policy.proof_of(fault_class)
        return Hold(
            owner=FLEETD,
            reason=line(reason),
            evidence=(finding,),
            gpu=gpu,
            fault_class=fault_class,
            boot_id=self.host.boot_id,
            at_s=self.now_s,
            proof_level=None if proof is None else proof.level,
            after_reboot=proof is not None and proof.after_reboot,
        )

    def hold(self, new: Hold) -> None:
        """Put fleetd's hold on the host, or add its evidence to the one that is there."""
        for position, old in enumerate(self.host.holds):
            if (old.owner, old.gpu, old.fault_class) == (new.owner, new.gpu, new.fault_class):
                more = tuple(f for f in new.evidence if f not in old.evidence)
                if not more:
                    self.say(f"{', '.join(new.evidence)} is known evidence")
                    return
                merged = replace(old, evidence=(*old.evidence, *more)[-MAX_EVIDENCE:])
                self.set(holds=(*self.host.holds[:position], merged, *self.host.holds[position + 1 :]))
                self.say(f"more evidence for the hold that is there: {new.reason}")
                return
        if len(self.host.holds) >= MAX_HOLDS:
            self.say(f"{MAX_HOLDS} holds are on the host already: {new.reason}")
            return
        self.set(holds=(*self.host.holds, new))
        self._unproven()

    def charge(self, new: Hold, withheld: str, key: str | None) -> None:
        """Keep a hold that is withheld, or add its evidence to the charge that is there."""
        for position, old in enumerate(self.host.charges):
            if (old.hold.gpu, old.hold.fault_class, old.key) == (new.gpu, new.fault_class, key):
                evidence = (*old.hold.evidence, *(f for f in new.evidence if f not in old.hold.evidence))
                merged = Charge(
                    hold=replace(old.hold, evidence=evidence[-MAX_EVIDENCE:]), withheld=line(withheld), key=key
                )
                self.set(charges=(*self.host.charges[:position], merged, *self.host.charges[position + 1 :]))
                return
        self.set(charges=(*self.host.charges, Charge(hold=new, withheld=line(withheld), key=key))[-MAX_CHARGES:])
        self._unproven()

    def _unproven(self) -> None:
        """A host that was in no question may have been proven without a GPU; one that is in question may not."""
        if self.host.gone:
            self.set(proof=None)

    def asked(self) -> tuple[Hold, ...]:
        """All that must be proven wrong before this host is healthy."""
        return (*(h for h in self.host.holds if h.owner in AUTOMATIC), *(charge.hold for charge in self.host.charges))

    def asked_levels(self) -> tuple[str, ...]:
        """The levels that must pass before this host is healthy: the policy's, and those its holds ask for."""
        return (self.policy.qualify.level, *(h.proof_level for h in self.asked() if h.proof_level is not None))

    def objection_to_proof(self, level: str) -> str | None:
        """Why a pass at this level does not make this host healthy, or its release possible; None when it does."""
        lacks = gone.objection(self.host)
        if lacks is not None:
            return lacks
        missing = [asked for asked in dict.fromkeys(self.asked_levels()) if not covers(level, asked)]
        if missing:
            return f"{', '.join(f'`{asked}`' for asked in missing)} must pass"
        if any(hold.after_reboot and hold.boot_id == self.host.boot_id for hold in self.asked()):
            return "the proof must come after a reboot"
        return None

    # ── orders ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _number(self, kind: str) -> OrderId:
        self.set(orders_issued=self.host.orders_issued + 1)
        return OrderId(f"{self.host.name}/{self.host.orders_issued}/{kind}")

    def quarantine_order(self, why: str, drain: Drain | None = None) -> Quarantine:
        """Number a quarantine, to be issued or withheld; work leaves the host as the policy has it unless told."""
        return Quarantine(
            id=self._number("quarantine"),
            host=self.host.name,
            issued_at_s=self.now_s,
            why=line(why),
            drain=drain or self.policy.drain_of(h.fault_class for h in self.host.holds if h.owner == FLEETD),
        )

    def burnin_order(self, level: str, why: str) -> RunBurnin | None:
        """Number a burn-in, to be issued or withheld; None while no boot of the host is known."""
        if self.host.boot_id is None:
            return None
        return RunBurnin(
            id=self._number("burnin"),
            host=self.host.name,
            issued_at_s=self.now_s,
            why=line(why),
            level=level,
            boot_id=self.host.boot_id,
            not_after_s=self.now_s + self.policy.qualify.timeout_seconds,
        )

    def issue(self, order: Order) -> None:
        """Have the order carried out."""
        self._orders.append(order)
        if isinstance(order, Quarantine):
            first = self.host.closings_from or self.host.orders_issued
            self.set(closings=(*self.host.closings, order.id)[-MAX_CLOSINGS:], closings_from=first)

    def withhold(self, order: Order, why: str) -> None:
        """Record the order without having it carried out."""
        self._withheld.append(WithheldOrder(order=order, why=line(why)))

    def release(self, why: str) -> None:
        """Give the host back to its users."""
        self.issue(Release(id=self._number("release"), host=self.host.name, issued_at_s=self.now_s, why=line(why)))

    def notify(self, why: str, *, about: str) -> None:
        """Tell a human, unless he was told about the same a short while ago."""
        about = line(about, 120)
        before = next((t for t in self.host.told if t.about == about), None)
        # A time in the future (the wall clock was set back) is no reason to be silent.
        if before is not None and 0 <= self.now_s - before.at_s < self.policy.tell_again_seconds:
            self.say(f"a human was told {self.now_s - before.at_s:.0f} seconds ago")
            return
        others = [t for t in self.host.told if t.about != about]
        self.set(told=(*others, Told(about=about, at_s=self.now_s))[-MAX_TOLD:])
        self.page(why)

    def page(self, why: str) -> None:
        """Tell a human, whatever he was told before."""
        self.issue(Notify(id=self._number("notify"), host=self.host.name, issued_at_s=self.now_s, why=line(why)))

    # ── burn-ins ────────────────────────────────────────────────────────────────────────────────────────────────────

    def burnin(self, level: str, why: str, *, by_operator: bool = False, looks_again: bool = False) -> None:
        """Order a burn-in and wait for it; the one that was pending, if any, is not waited for any more.

        It waits itself while automation is stopped, or, when it looks again at a host that serves users, while the
        budget for that is used up.
        """
        counts = self.before.pending is not None and self.before.pending.disruptive
        disruptive = counts or (self.host.due is not None and self.host.due.disruptive)
        disruptive = disruptive or (looks_again and self.before.state in SERVING)
        objection = None
        if self.record.stopped is not None and not by_operator:
            objection = f"automation is stopped by {self.record.stopped.who}"
        elif disruptive and not counts and not by_operator:
            objection = budget.burnin_objection(self.fleet, policy=self.policy)
        if objection is not None:
            tries = self.host.due.tries + 1 if self.host.due is not None else 1
            wait_s = min(DUE_RETRY_FIRST_S * 2.0 ** min(tries - 1, 30), DUE_RETRY_MAX_S)
            waiting = DueBurnin(
                level=level, why=line(why), not_before_s=self.now_s + wait_s, tries=tries, disruptive=disruptive
            )
            self.set(due=waiting, pending=None)
            self.say(f"burn-in `{level}` must wait: {objection}")
            return
        order = self.burnin_order(level, why)
        if order is None:
            self.say(f"a `{level}` burn-in follows when the agent says hello")
            return
        self.issue(order)
        self.set(
            due=None,
            pending=PendingBurnin(
                order_id=order.id,
                level=level,
                issued_at_s=self.now_s,
                not_after_s=order.not_after_s,
                disruptive=disruptive,
                by_operator=by_operator,
            ),
        )
        self.say(f"burn-in `{level}` ordered ({order.id})")

    def burnin_again(self, level: str, why: str) -> None:
        """Order the next attempt of a burn-in that led to nothing, or ask a human when all attempts are used up.

        The caller has said why it led to nothing.
        """
        attempts = self.host.attempts + 1
        self.set(pending=None, attempts=attempts)
        if attempts < self.policy.qualify.attempts:
            self.burnin(level, f"attempt {attempts + 1} of {self.policy.qualify.attempts}: {why}")
            return
        text = (
            f"{attempts} burn-ins in a row without a conclusion; the host stays {self.host.state}, "
            "which is neither healthy nor bad: look at it, then order a burn-in or release it with an override"
        )
        self.page(f"{text}; the last: {why}")
        self.say(text)

    def burnin_for_proof(self, why: str, *, by_operator: bool = False) -> None:
        """Order the burn-in that makes this host healthy, or its release possible."""
        self.burnin(strongest(self.asked_levels()), why, by_operator=by_operator)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> Step[Host]:
        """The finished step."""
        check(self.host, before=self.before)
        return Step(
            state=self.host,
            orders=tuple(self._orders),
            withheld=tuple(self._withheld),
            why=line("; ".join(self._why), _MAX_WHY),
            fleet=self.record if self.record is not self.fleet.record else None,
            followups=tuple(self._followups),
        )

    def refusal(self, why: str) -> Step[Host]:
        """Answer that the request is not granted; nothing has changed."""
        return Step(state=self.before, why=line(why), refused=True)


def slot_of(host: Host, gpu: GpuId | None) -> str | None:
    """Where a GPU sits in its host: its PCI address, or its index; None when it is not there."""
    return next((g.pci_address or f"#{g.index}" for g in host.inventory if g.gpu == gpu), None)
