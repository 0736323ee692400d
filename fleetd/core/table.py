"""Tables that can take back what was changed since the last commit: a fleet's counts change before the disk agrees."""

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Tables:
    """What several tables changed since the last commit, in order."""

    def __init__(self) -> None:
        self._undo: list[tuple[dict[object, object], object, object]] = []

    def table(self) -> "Table[K, V]":
        """A new, empty table whose changes are noted here."""
        return Table(self._undo)

    def commit(self) -> None:
        """Keep all changes."""
        self._undo.clear()

    def roll_back(self) -> None:
        """Take all changes since the last commit back."""
        while self._undo:
            rows, key, old = self._undo.pop()
            if old is None:
                rows.pop(key, None)
            else:
                rows[key] = old


class Table(Generic[K, V]):
    """Key → value; values are immutable and never None."""

    def __init__(self, undo: list[tuple[dict[object, object], object, object]]) -> None:
        self._rows: dict[object, object] = {}
        self._undo = undo

    def get(self, key: K) -> V | None:
        """The value of a key; None when it has none."""
        value: V | None = self._rows.get(key)  # type: ignore[assignment]  # put() keeps the types apart
        return value

    def put(self, key: K, value: V | None) -> None:
        """Set or, with None, remove a value."""
        self._undo.append((self._rows, key, self._rows.get(key)))
        if value is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = value

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return iter(self._rows.items())  # type: ignore[arg-type]  # put() keeps the types apart

    def __len__(self) -> int:
        return len(self._rows)
