"""The controller's ledger on a simulated disk: the reference store, of which only what was synced survives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleetd.model.ids import OrderId
from fleetd.model.journal import JournalEntry
from fleetd.sim.disk import File, Written
from fleetd.sim.life import Life
from fleetd.stores.memory import MemoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An order was carried out."""

    order: OrderId
    result: str


Record = tuple[JournalEntry, ...] | Finished
"""One transaction."""


class Ledger(MemoryStore):
    """A `Store` that begins with what the last controller left on the disk."""

    def __init__(
        self, file: File[Record], life: Life, on_entries: Callable[[Sequence[JournalEntry]], None] = lambda _: None
    ) -> None:
        """Open the ledger; `on_entries` hears of entries as soon as they are safe on the disk."""
        super().__init__()
        self._on_entries = on_entries
        self._file = file
        self._life = life
        for written in file.records:
            self._apply(written.record)

    def commit(self, entries: Sequence[JournalEntry]) -> None:
        """Write the entries in one transaction. Raises StoreError."""
        self._write("commit", tuple(entries))
        self._on_entries(entries)

    def finish_order(self, order: OrderId, result: str) -> None:
        """Mark an order as carried out. Raises StoreError."""
        self._write(f"finish {order}", Finished(order=order, result=result))

    def _write(self, what: str, record: Record) -> None:
        self._file.write(self._life, what, record)
        self._apply(record)

    def _apply(self, record: Record) -> None:
        match record:
            case tuple():
                super().commit(record)
            case Finished():
                super().finish_order(record.order, record.result)


def journal_of(records: Sequence[Written[Record]]) -> tuple[tuple[float, JournalEntry], ...]:
    """The journal on a disk: (virtual time, entry), in order."""
    return tuple((w.at_s, entry) for w in records if isinstance(w.record, tuple) for entry in w.record)
