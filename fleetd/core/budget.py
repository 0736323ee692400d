"""The quarantine budget: how many hosts automation may take away from their users, and when it must stop and ask.

When the budget trips, every further automatic quarantine is withheld until a human re-arms it. Releases and operators'
own holds always pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleetd.core.policy import QuarantineBudget
from fleetd.core.step import Step
from fleetd.model.host import Host, Lifecycle
from fleetd.model.order import Quarantine

OUT_OF_SERVICE = frozenset({Lifecycle.QUARANTINED, Lifecycle.REPAIRING})
"""States in which a host is kept from its users by a hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """The counts that a budget needs, kept up to date by `after`, so that a decision costs the same in any fleet."""

    hosts_known: int = 0
    quarantined_now: int = 0
    quarantined_at_s: tuple[float, ...] = ()
    """Wall times of the newest quarantine orders, ascending; at most as many as the budget's window allows."""
    tripped: bool = False
    """Only a human takes this back (`dataclasses.replace(view, tripped=False)`)."""


def view_of(
    hosts: Iterable[Host], *, quarantined_at_s: Iterable[float], budget: QuarantineBudget, tripped: bool
) -> FleetView:
    """The view of a whole fleet, for a controller that starts from its ledger."""
    states = [host.state for host in hosts]
    return FleetView(
        hosts_known=len(states),
        quarantined_now=sum(state in OUT_OF_SERVICE for state in states),
        quarantined_at_s=_newest(quarantined_at_s, budget),
        tripped=tripped,
    )


def objection(view: FleetView, budget: QuarantineBudget, *, now_s: float) -> str | None:
    """Why one more automatic quarantine may not be ordered now; None when it may."""
    if view.tripped:
        return "the quarantine budget has tripped and waits for a human to re-arm it"
    allowed = max(budget.at_least, int(budget.max_ratio * view.hosts_known + 1e-9))
    if view.quarantined_now >= allowed:
        return (
            f"the quarantine budget is used up: {view.quarantined_now} of {view.hosts_known} hosts are out of service "
            f"and {allowed} may be"
        )
    # Times in the future (the wall clock was set back) count: caution is the right error here.
    recent = sum(at_s > now_s - budget.window_seconds for at_s in view.quarantined_at_s)
    if recent >= budget.max_in_window:
        return (
            f"the quarantine budget is used up: {recent} quarantines in the last {budget.window_seconds:g} seconds "
            f"and {budget.max_in_window} may be ordered"
        )
    return None


def after(
    view: FleetView, *, before: Host | None, step: Step[Host], now_s: float, budget: QuarantineBudget
) -> FleetView:
    """The view after a step of one host; `before` is that host before the step, None when it was unknown."""
    if step.refused:
        return view
    was_out = before is not None and before.state in OUT_OF_SERVICE
    issued = [now_s for order in step.orders if isinstance(order, Quarantine)]
    return replace(
        view,
        hosts_known=view.hosts_known + (before is None),
        quarantined_now=view.quarantined_now + (step.state.state in OUT_OF_SERVICE) - was_out,
        quarantined_at_s=_newest((*view.quarantined_at_s, *issued), budget) if issued else view.quarantined_at_s,
        tripped=view.tripped or step.trips_budget,
    )


def _newest(times_s: Iterable[float], budget: QuarantineBudget) -> tuple[float, ...]:
    # More than the window allows would not change any decision.
    return tuple(sorted(times_s)[-max(budget.max_in_window, 1) :])
