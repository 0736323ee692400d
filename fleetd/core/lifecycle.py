"""The moves a host can make, the numbering of its orders, and what is always true of a host.

A `Draft` is a step under construction. Everything that changes a host goes through it, so that each order id is
`HOST/N/kind` with a number never used before, each change has a reason, and the invariants are checked at the end.
"""

from dataclasses import replace
from typing import Any

from fleetd.core.budget import OUT_OF_SERVICE
from fleetd.core.policy import MANUAL, MAX_STRIKES_PER_GPU, Policy, covers, strongest
from fleetd.core.step import Step
from fleetd.model.finding import FaultClass
from fleetd.model.host import Hold, Host, Lifecycle, PendingBurnin, Strike
from fleetd.model.ids import FindingId, GpuId, HostName, OrderId
from fleetd.model.journal import WithheldOrder
from fleetd.model.order import Notify, Order, Quarantine, Release, RunBurnin

FLEETD = "fleetd"
"""Owner of the holds that a policy puts on."""

SERVING = frozenset({Lifecycle.HEALTHY, Lifecycle.PROBATION})
"""States in which a host counts as serving users."""

MAX_HOLDS = 64
MAX_EVIDENCE = 32
MAX_STRIKES = 256
"""Bounds of one host. Beyond them the oldest strikes and evidence go; the journal keeps all."""

_MAX_TEXT = 400
_MAX_WHY = 2000


def line(text: str, limit: int = _MAX_TEXT) -> str:
    """Text from outside as one bounded line: it goes into logs and into the scheduler's reason."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def unknown_host(name: HostName, now_s: float) -> Host:
    """A host of which nothing is known."""
    return Host(
        name=name,
        state=Lifecycle.NEW,
        why="never heard of before",
        since_s=now_s,
        boot_id=None,
        inventory=(),
        holds=(),
        strikes=(),
        pending=None,
        proof=None,
        orders_issued=0,
        attempts=0,
    )


class Draft:
    """A step of one host under construction."""

    def __init__(self, host: Host, *, now_s: float, policy: Policy) -> None:
        self.host = host
        self.now_s = now_s
        self.policy = policy
        self.trips_budget = False
        self._before = host
        self._orders: list[Order] = []
        self._withheld: list[WithheldOrder] = []
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
        self.say(why)

    def strike(self, gpu: GpuId, finding: FindingId, at_s: float) -> None:
        """Count a transient fault against a GPU, once however often it is told."""
        if any(s.gpu == gpu and s.finding == finding for s in self.host.strikes):
            return
        own = [s for s in self.host.strikes if s.gpu == gpu]
        kept = [s for s in self.host.strikes if len(own) < MAX_STRIKES_PER_GPU or s is not own[0]]
        self.set(strikes=(*kept, Strike(gpu=gpu, finding=finding, at_s=at_s))[-MAX_STRIKES:])

    def hold(self, *, finding: FindingId, reason: str, gpu: GpuId | None, fault_class: FaultClass) -> None:
        """Put fleetd's hold on the host, or add the finding to the evidence of the one that is there."""
        for position, old in enumerate(self.host.holds):
            if (old.owner, old.gpu, old.fault_class) == (FLEETD, gpu, fault_class):
                if finding in old.evidence:
                    self.say(f"{finding} is known evidence")
                    return
                more = replace(old, evidence=(*old.evidence, finding)[-MAX_EVIDENCE:])
                self.set(holds=(*self.host.holds[:position], more, *self.host.holds[position + 1 :]))
                self.say(f"more evidence for the hold that is there: {reason}")
                return
        if len(self.host.holds) >= MAX_HOLDS:
            self.say(f"{MAX_HOLDS} holds are on the host already: {reason}")
            return
        proof = self.policy.proofs.get(fault_class)
        hold = Hold(
            owner=FLEETD,
            reason=line(reason),
            evidence=(finding,),
            gpu=gpu,
            fault_class=fault_class,
            boot_id=self.host.boot_id,
            at_s=self.now_s,
            proof_level=None if proof == MANUAL else proof,
        )
        self.set(holds=(*self.host.holds, hold))

    def asked_levels(self) -> tuple[str, ...]:
        """The levels that must pass before this host is healthy: the policy's, and those its holds ask for."""
        return (self.policy.qualify.level, *(h.proof_level for h in self.host.holds if h.proof_level is not None))

    def proves(self, level: str) -> bool:
        """Whether a pass at this level makes this host healthy, or its release possible."""
        return all(covers(level, asked) for asked in self.asked_levels())

    # ── orders ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _number(self, kind: str) -> OrderId:
        self.set(orders_issued=self.host.orders_issued + 1)
        return OrderId(f"{self.host.name}/{self.host.orders_issued}/{kind}")

    def quarantine_order(self, why: str) -> Quarantine:
        """Number a quarantine, to be issued or withheld."""
        return Quarantine(id=self._number("quarantine"), host=self.host.name, issued_at_s=self.now_s, why=line(why))

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

    def withhold(self, order: Order, why: str) -> None:
        """Record the order without having it carried out."""
        self._withheld.append(WithheldOrder(order=order, why=line(why)))

    def release(self, why: str) -> None:
        """Give the host back to its users."""
        self.issue(Release(id=self._number("release"), host=self.host.name, issued_at_s=self.now_s, why=line(why)))

    def notify(self, why: str) -> None:
        """Tell a human."""
        self.issue(Notify(id=self._number("notify"), host=self.host.name, issued_at_s=self.now_s, why=line(why)))

    def burnin(self, level: str, why: str) -> None:
        """Order a burn-in and wait for it; the one that was pending, if any, is not waited for any more."""
        order = self.burnin_order(level, why)
        if order is None:
            self.say(f"a `{level}` burn-in follows when the agent says hello")
            return
        self.issue(order)
        self.set(
            pending=PendingBurnin(order_id=order.id, level=level, issued_at_s=self.now_s, not_after_s=order.not_after_s)
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
            "which is neither healthy nor bad: look at it, then reboot it or release it with an override"
        )
        self.notify(f"{text}; the last: {why}")
        self.say(text)

    def burnin_for_proof(self, why: str) -> None:
        """Order the burn-in that makes this host healthy, or its release possible."""
        self.burnin(strongest(self.asked_levels()), why)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> Step[Host]:
        """The finished step."""
        check(self.host, before=self._before)
        return Step(
            state=self.host,
            orders=tuple(self._orders),
            withheld=tuple(self._withheld),
            why=line("; ".join(self._why), _MAX_WHY),
            trips_budget=self.trips_budget,
        )

    def refusal(self, why: str) -> Step[Host]:
        """Answer that the request is not granted; nothing has changed."""
        return Step(state=self._before, why=line(why), refused=True)


def check(host: Host, *, before: Host) -> None:
    """Assert what is always true of a host. Raises AssertionError, also under `python -O`: no decision is better."""
    ours = [hold for hold in host.holds if hold.owner == FLEETD]
    for holds_true, what in (
        (host.name == before.name, "a step changes one host"),
        ((host.state in OUT_OF_SERVICE) == bool(host.holds), "out of service exactly while a hold is on the host"),
        (all(hold.evidence for hold in ours), "no quarantine of ours without evidence"),
        (all(hold.fault_class.is_hardware for hold in ours), "only hardware classes quarantine"),
        (host.pending is None or host.boot_id is not None, "a pending burn-in belongs to a boot"),
        (host.pending is None or host.state not in (Lifecycle.NEW, Lifecycle.RETIRED), "nothing is pending here"),
        (host.orders_issued >= before.orders_issued, "order numbers only grow"),
        (len(host.holds) <= MAX_HOLDS and len(host.strikes) <= MAX_STRIKES, "a host's memory is bounded"),
        (
            {h.owner for h in before.holds if h.owner != FLEETD} <= {h.owner for h in host.holds}
            or host.state not in OUT_OF_SERVICE,
            "a foreign hold goes with the release of the host and not otherwise",
        ),
    ):
        if not holds_true:
            raise AssertionError(f"{host.name}: broken invariant: {what}")
