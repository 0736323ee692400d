"""The controller's `FleetView`: what a page about the fleet is made of."""

from dataclasses import fields
from enum import Enum

from fleetd.controller.changes import ChangeLog
from fleetd.controller.dispatcher import Dispatcher
from fleetd.controller.judge import Judge
from fleetd.controller.window import Windows
from fleetd.core import budget
from fleetd.core.fleet import FLEET
from fleetd.core.policy import Burnin, Count, Rule, Strikes
from fleetd.model.host import Host
from fleetd.model.ids import HostName
from fleetd.model.journal import JournalEntry
from fleetd.ports import Clock, RunBlocking, Store, Unknown
from fleetd.ports.view import BudgetState, Changes, PolicyState, RuleState, Window

ENTRIES_SHOWN = 200
AREAS_SHOWN = 100


class View:
    """Reads what judge, intake and dispatcher have; changes nothing."""

    def __init__(
        self,
        *,
        judge: Judge,
        store: Store,
        dispatcher: Dispatcher,
        changes: ChangeLog,
        windows: Windows,
        clock: Clock,
        run_blocking: RunBlocking,
        policy_name: str,
    ) -> None:
        self._judge = judge
        self._store = store
        self._dispatcher = dispatcher
        self._changes = changes
        self._windows = windows
        self._clock = clock
        self._run_blocking = run_blocking
        self._policy_name = policy_name

    @property
    def position(self) -> str:
        """Changes whenever a host or the fleet's record does."""
        return self._changes.position

    def since(self, position: str) -> Changes:
        """What changed since a position."""
        return self._changes.since(position)

    async def changed(self, position: str) -> None:
        """Return as soon as the present position is another one."""
        await self._changes.changed(position)

    def hosts(self) -> tuple[Host, ...]:
        """All hosts, by name."""
        return tuple(self._judge.hosts[name] for name in sorted(self._judge.hosts))

    def host(self, name: HostName) -> Host:
        """One host. Raises Unknown."""
        host = self._judge.hosts.get(name)
        if host is None:
            raise Unknown(f"no host {name!r}: the list of hosts shows those that ever reported")
        return host

    def connected(self) -> frozenset[HostName]:
        """Hosts whose agent is connected."""
        return self._dispatcher.connected

    def window(self, name: HostName) -> Window:
        """The last readings of a host."""
        return self._windows.of(name)

    async def history(self, name: HostName) -> tuple[JournalEntry, ...]:
        """The newest entries about a host, newest first. Raises Unknown, StoreError."""
        self.host(name)
        found: list[JournalEntry] = []
        await self._run_blocking(lambda: found.extend(self._store.history(name, limit=ENTRIES_SHOWN)))
        return tuple(reversed(found))

    def policy(self) -> PolicyState:
        """The policy, and what is spent of its budgets."""
        policy, fleet = self._judge.policy, self._judge.fleet
        uses = budget.uses(fleet, policy=policy, now_s=self._clock.wall_s(), limit=AREAS_SHOWN)
        count = fleet.count(FLEET)
        return PolicyState(
            name=self._policy_name,
            rules=tuple(_rule(rule) for rule in policy.rules),
            budgets=tuple(_budget(use) for use in uses),
            burnins=count.tested,
            burnins_max=None if policy.budgets.burnins is None else policy.budgets.burnins.allowed(count.hosts),
        )

    def unready(self) -> str:
        """Why this controller cannot be relied on now."""
        trouble = self._judge.store_trouble
        return f"the ledger cannot be written: {trouble}" if trouble else ""


def _budget(use: budget.Use) -> BudgetState:
    return BudgetState(
        key=use.key,
        hosts=use.hosts,
        held=use.held,
        held_max=use.budget.allowed(use.hosts),
        recent=use.recent,
        recent_max=use.budget.max_in_window,
        window_seconds=use.budget.window_seconds,
        tripped=use.tripped,
    )


def _rule(rule: Rule) -> RuleState:
    matchers = ((f.name, getattr(rule.when, f.name)) for f in fields(rule.when))
    when = "; ".join(f"{name}: {_words(value)}" for name, value in matchers if value is not None)
    then = f"burnin: {rule.then.burnin}" if isinstance(rule.then, Burnin) else rule.then.value
    return RuleState(name=rule.name, stage=rule.stage.value, when=when, then=then)


def _words(value: object) -> str:
    """A matcher's value as a policy's file would have it."""
    if isinstance(value, tuple):
        return ", ".join(_words(one) for one in value)
    if isinstance(value, Strikes | Count):
        return f"{value.at_least} within {value.within_seconds:g} s"
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name.lower()
    return str(value)
