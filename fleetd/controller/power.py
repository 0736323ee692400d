"""Power budgets: hosts ask for leases of a declared tree, and are granted what fits (`core.power.tree` decides).

Nothing runs by itself: leases lapse by the clock, and every question and every look counts what has lapsed before.
"""

import threading
from dataclasses import replace

import structlog

from fleetd.controller.power_config import GRACE_MAX_S, TTL_MAX_S, PowerTree
from fleetd.core.power.lease import LAST_BIT_WATTS
from fleetd.core.power.tree import BudgetTree
from fleetd.model.host import POWER_LEASES, Hello
from fleetd.model.ids import HostName
from fleetd.model.power_lease import Answer, Ask, NoGrant, PowerUse
from fleetd.ports import Clock

_log = structlog.get_logger(__name__)

TOLD_MAX = 100_000
"""Hosts of which it is remembered what was logged, as many as a tree may have; of others nothing is logged then."""


class PowerBudgets:
    """Answers the questions of hosts. Without a tree nobody gets a lease, and nobody needs one."""

    def __init__(self, declared: PowerTree | None, *, clock: Clock) -> None:
        """Begin with the leases of an earlier controller still out.

        Args:
            declared: None: no budgets are shared out.
            clock: monotonic; no host's clock is ever compared with it.

        Raises:
            TreeError: the tree cannot be kept.
        """
        self._clock = clock
        self._tree = None if declared is None else _tree(declared, clock.elapsed_s())
        self._declared = {} if self._tree is None else self._tree.hosts()
        self._lock = threading.Lock()  # the exporter looks from a thread of its own
        self._told: dict[HostName, str] = {}  # why a host gets nothing, as logged last; bounded by TOLD_MAX
        self.grants_total = 0
        """Questions that were answered by a lease."""
        self.short_total = 0
        """Of these, leases for less than was asked for."""
        self.refusals_total = 0
        """Questions that were answered by no lease."""

    def hello(self, hello: Hello) -> None:
        """A host has connected: one whose agent does not ask for leases holds no cap that is known of."""
        if self._tree is None or hello.host not in self._declared or POWER_LEASES in hello.capabilities:
            return
        why = "its agent asks for no power lease: set `power: host_base_watts` there, or `controlled: false` here"
        with self._lock:
            self._tree.uncap(self._clock.elapsed_s(), hello.host, why)
        self._say(hello.host, why)

    def ask(self, host: HostName, ask: Ask) -> Answer | None:
        """Answer a host's question; None: a newer one of it has been answered."""
        tree = self._tree
        if tree is None:
            return self._none(host, "this controller shares no power budget out (`power: tree`)", budgets=False)
        declared = self._declared.get(host)
        if declared is None:
            return self._none(host, f"{host} is not in the controller's power tree")
        objection = ""
        if ask.safe_watts > declared.safe_watts + LAST_BIT_WATTS:
            objection = (
                f"without a lease {host} draws up to {ask.safe_watts:g} W, more than its safe_watts of "
                f"{declared.safe_watts:g} W in the controller's power tree: correct the tree, or lower the safe cap"
            )
        with self._lock:
            epoch, _ = tree.heard(host)
            # Who it is was decided by the transport; what it calls itself does not count.
            asked = replace(ask, host=host, uncapped=ask.uncapped or objection)
            grant = tree.ask(self._clock.elapsed_s(), asked)
        if objection:
            return self._none(host, objection)
        if grant is None:
            why = f"a later start of {host}'s agent has asked: two agents run under one name, or its clock went back"
            return self._none(host, why) if ask.epoch < epoch else None
        self._say(host, ask.uncapped)
        self.grants_total += 1
        self.short_total += bool(grant.why)
        return grant

    def use(self) -> PowerUse | None:
        """How the budgets stand; None: there is no tree. May be called from another thread."""
        if self._tree is None:
            return None
        with self._lock:
            return self._tree.use(self._clock.elapsed_s())

    def _none(self, host: HostName, why: str, *, budgets: bool = True) -> NoGrant:
        self.refusals_total += 1
        self._say(host, why)
        return NoGrant(why=why, budgets=budgets)

    def _say(self, host: HostName, why: str) -> None:
        """Log what is wrong with a host once, and that it is over."""
        if host not in self._told and len(self._told) >= TOLD_MAX:
            return
        if self._told.get(host, "") != why:
            self._told[host] = why
            if why:
                _log.warning("power_lease_impossible", host=host, why=why)
            else:
                _log.info("power_lease_possible_again", host=host)


def _tree(declared: PowerTree, now_s: float) -> BudgetTree:
    return BudgetTree(
        declared.areas,
        declared.hosts,
        now_s=now_s,
        ttl_s=declared.ttl_s,
        grace_s=declared.grace_s,
        earlier_s=TTL_MAX_S + GRACE_MAX_S,
    )
