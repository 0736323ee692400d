"""What keeps the controller's ledger, and whose turn it is to write it."""

from collections.abc import Collection, Sequence
from typing import Protocol

from fleetd.model.fact import Beginning, Fact, FactQuery
from fleetd.model.finding import Finding
from fleetd.model.ids import FindingId, HostName, OrderId
from fleetd.model.journal import JournalEntry, OrderRecord, StoreImage


class Claim(Protocol):
    """An order that no other controller works on. Both methods block."""

    def finish(self, result: str) -> None:
        """Mark the order as carried out and let it go. Raises StoreError: it is let go, and still open."""

    def let_go(self) -> None:
        """Let the order go, whatever became of it; idempotent, and also after `finish`."""


class Seat(Protocol):
    """The place of the judge on a ledger that several controllers share. All methods block."""

    @property
    def rival(self) -> str:
        """Who has it, as far as is known, in the words of whoever has it; empty when nobody is known to."""

    def take(self) -> "Store | None":
        """Try to take it, once: the ledger, for a term that begins now; None: another controller has it.

        Whoever had it before can write nothing from now on. Raises StoreError; OtherSchema as `Store` does.
        """

    def held(self) -> None:
        """See that it is still ours. Raises NotJudge when it is not, StoreError when that cannot be known."""

    def leave(self) -> None:
        """Give it up, so that another one may take it at once; idempotent."""


class Store(Protocol):
    """The controller's ledger. All methods block; the controller calls them off the event loop.

    Everything that writes raises NotJudge when another controller has taken the ledger over, and then wrote nothing.
    """

    def load(self) -> StoreImage:
        """Read the image that a controller starts from. Raises StoreError."""

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        """Write the entries durably in one transaction: journal, hosts, findings, spool progress, open orders.

        All or nothing. Raises StoreError.
        """

    def findings_known(self, ids: Collection[FindingId]) -> frozenset[FindingId]:
        """Those of the findings that were ever committed and are not pruned yet. Raises StoreError."""

    def finish_order(self, order: OrderId, result: str) -> None:
        """Mark an order as carried out; idempotent. Raises StoreError."""

    def claim(self, order: OrderId) -> Claim | None:
        """Have an order to oneself while it is carried out; None: another controller has it at this moment.

        Raises NotJudge when another one judges by now, else StoreError.
        """

    def journal(self, *, after: int, limit: int) -> tuple[tuple[int, JournalEntry], ...]:
        """The entries of the whole fleet after a position (0: from the first), in order. Raises StoreError."""

    def beginning(self) -> Beginning:
        """Where the journal begins: at nothing, or where older entries were pruned. Raises StoreError."""

    def facts(self, query: FactQuery) -> tuple[Fact, ...]:
        """What entries say in short, in their order or the newest first. Raises StoreError.

        Notable ones after position 0 begin with how the hosts stood where the journal begins, beyond the limit.
        """

    def history(self, host: HostName, *, limit: int) -> tuple[JournalEntry, ...]:
        """The newest entries of one host, oldest first. Raises StoreError."""

    def reasons(self, host: HostName, *, limit: int) -> tuple[tuple[float, str], ...]:
        """When and why the newest entries of one host were decided, oldest first. Raises StoreError."""

    def findings(self, host: HostName, *, limit: int) -> tuple[Finding, ...]:
        """The newest findings of one host, newest first. Raises StoreError."""

    def orders(self, host: HostName, *, limit: int) -> tuple[OrderRecord, ...]:
        """The newest orders of one host, oldest first. Raises StoreError."""

    def close(self) -> None:
        """Close the ledger; idempotent."""
