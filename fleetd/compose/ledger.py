"""A ledger to read: for commands that look at a journal and change nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetd.compose.shared import reader
from fleetd.model.journal import JournalEntry
from fleetd.ports import Store
from fleetd.stores.place import PgPlace
from fleetd.stores.sql import SqlStore

PAGE = 1000
"""Entries read at a time."""


@contextmanager
def ledger(at: Path | PgPlace, *, everything: bool = False) -> Iterator[Store]:
    """Open a ledger for reading; `everything`: read a file whole first, however large it is.

    Raises StoreError when there is none, when it is damaged, or when another version wrote it.
    """
    store: Store
    store = reader(at) if isinstance(at, PgPlace) else SqlStore(at, read_only=True, everything=everything)
    try:
        yield store
    finally:
        store.close()


def journal(store: Store) -> Iterator[tuple[int, JournalEntry]]:
    """All entries from the first that is there, each with its position. Raises StoreError."""
    after = 0
    while page := store.journal(after=after, limit=PAGE):
        yield from page
        after = page[-1][0]
