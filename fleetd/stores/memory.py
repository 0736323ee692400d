"""The ledger in memory: the reference that the contract tests hold the databases against."""

from collections.abc import Sequence

from fleetd.model.event import FindingReceived
from fleetd.model.finding import Finding
from fleetd.model.host import Host
from fleetd.model.ids import FindingId, HostName, OrderId, SpoolId
from fleetd.model.journal import JournalEntry, OrderRecord, SpoolProgress, StoreImage
from fleetd.model.order import Quarantine


class MemoryStore:
    """A `Store` that forgets everything with the process."""

    def __init__(self) -> None:
        self._journal: list[JournalEntry] = []
        self._hosts: dict[HostName, Host] = {}
        self._findings: dict[FindingId, Finding] = {}
        self._spools: dict[tuple[HostName, SpoolId], int] = {}
        self._orders: dict[OrderId, OrderRecord] = {}
        self._budget_tripped = False

    def load(self) -> StoreImage:
        """Return what a controller starts from."""
        orders = [record.order for record in self._orders.values()]
        return StoreImage(
            hosts=tuple(self._hosts[name] for name in sorted(self._hosts)),
            spools=tuple((h, SpoolProgress(spool=s, seq=seq)) for (h, s), seq in sorted(self._spools.items())),
            open_orders=tuple(record.order for record in self._orders.values() if not record.done),
            budget_tripped=self._budget_tripped,
            quarantined_at_s=tuple(sorted(o.issued_at_s for o in orders if isinstance(o, Quarantine))),
        )

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        """Append the entries and everything they change."""
        for entry in entries:
            self._journal.append(entry)
            self._hosts[entry.host.name] = entry.host
            if isinstance(entry.event, FindingReceived):
                self._findings.setdefault(entry.event.finding.id, entry.event.finding)
                if entry.progress is not None:
                    key = (entry.host.name, entry.progress.spool)
                    self._spools[key] = max(entry.progress.seq, self._spools.get(key, 0))
            self._budget_tripped = self._budget_tripped or entry.trips_budget
            for order in entry.orders:
                self._orders.setdefault(order.id, OrderRecord(order=order, done=False, result=""))

    def finding_known(self, finding: FindingId) -> bool:
        """Whether the finding was ever committed."""
        return finding in self._findings

    def finish_order(self, order: OrderId, result: str) -> None:
        """Mark an order as carried out; the first result stays."""
        record = self._orders.get(order)
        if record is not None and not record.done:
            self._orders[order] = OrderRecord(order=record.order, done=True, result=result)

    def rearm_budget(self, *, at_s: float, who: str, reason: str) -> None:
        """Forget that the budget tripped."""
        del at_s, who, reason
        self._budget_tripped = False

    def history(self, host: HostName, *, limit: int) -> tuple[JournalEntry, ...]:
        """Return the newest entries of one host, oldest first."""
        return tuple(entry for entry in self._journal if entry.host.name == host)[-limit:]

    def findings(self, host: HostName, *, limit: int) -> tuple[Finding, ...]:
        """Return the newest findings of one host, newest first."""
        return tuple(reversed([f for f in self._findings.values() if f.host == host]))[:limit]

    def orders(self, host: HostName, *, limit: int) -> tuple[OrderRecord, ...]:
        """Return the newest orders of one host, oldest first."""
        return tuple(record for record in self._orders.values() if record.order.host == host)[-limit:]

    def close(self) -> None:
        """Nothing to close."""
