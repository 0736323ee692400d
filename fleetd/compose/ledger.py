"""A ledger to read: for commands that look at a journal and change nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetd.model.journal import JournalEntry
from fleetd.ports import Store
from fleetd.stores.sql import SqlStore

PAGE = 1000
"""Entries read at a time."""


@contextmanager
def ledger(path: Path) -> Iterator[Store]:
    """Open a ledger for reading. Raises StoreError when there is none, or when another version wrote it."""
    store = SqlStore(path, read_only=True)
    try:
        yield store
    finally:
        store.close()


def journal(store: Store) -> Iterator[tuple[int, JournalEntry]]:
    """All entries from the first, each with its position. Raises StoreError."""
    after = 0
    while page := store.journal(after=after, limit=PAGE):
        yield from page
        after = page[-1][0]
