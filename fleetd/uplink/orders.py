"""The `Orders` port on SQLite: the orders that the agent accepted, so that a restart forgets none and repeats none."""

from pathlib import Path

import msgspec
import structlog

from fleetd.model.ids import OrderId
from fleetd.model.order import RunBurnin
from fleetd.ports import StoreError
from fleetd.uplink.database import Database

_log = structlog.get_logger(__name__)

_VERSION = 1
_SCHEMA = (
    """CREATE TABLE accepted (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, closed INTEGER NOT NULL, body BLOB NOT NULL
    )""",
)


class SqliteOrders:
    """Accepted orders in one file. Closed ones are remembered for a while, to recognise an order that comes again."""

    def __init__(self, path: Path, *, max_open: int = 100, max_closed: int = 10_000) -> None:
        """Open the file or make it. Raises StoreError.

        Args:
            path: the database file; another one than the spool's.
            max_open: most orders that wait; more are refused, the controller keeps them.
            max_closed: how many closed orders are remembered, the oldest are forgotten.
        """
        self._database = Database(path, schema=_SCHEMA, version=_VERSION)
        self._max_open = max_open
        self._max_closed = max_closed

    def accept(self, order: RunBurnin) -> bool:
        """Write durably; False when this order id was accepted before. Raises StoreError, also when too many wait."""
        if self._database.read("SELECT 1 FROM accepted WHERE id = ?", (order.id,)):
            return False
        ((waiting,),) = self._database.read("SELECT count(*) FROM accepted WHERE closed = 0")
        if waiting >= self._max_open:
            raise StoreError(f"{self._database.path}: {waiting} orders wait already, order {order.id} is not accepted")
        with self._database.write() as cursor:
            cursor.execute(
                "INSERT INTO accepted (id, closed, body) VALUES (?, 0, ?)", (order.id, msgspec.json.encode(order))
            )
        return True

    def open(self) -> tuple[RunBurnin, ...]:
        """Accepted orders that have not been closed, oldest first. Raises StoreError.

        An entry that this version cannot read is logged and left out: the controller sees that its result is missing.
        """
        found = []
        for order_id, body in self._database.read("SELECT id, body FROM accepted WHERE closed = 0 ORDER BY number"):
            try:
                found.append(msgspec.json.decode(body, type=RunBurnin))
            except msgspec.MsgspecError as error:
                _log.error("order_unreadable", order=order_id, why=str(error))
        return tuple(found)

    def close_order(self, order_id: OrderId) -> None:
        """Mark as done; idempotent. Raises StoreError."""
        if not self._database.read("SELECT 1 FROM accepted WHERE id = ? AND closed = 0", (order_id,)):
            return
        with self._database.write() as cursor:
            cursor.execute("UPDATE accepted SET closed = 1 WHERE id = ?", (order_id,))
            cursor.execute(
                "DELETE FROM accepted WHERE closed = 1 AND number <="
                " (SELECT number FROM accepted WHERE closed = 1 ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (self._max_closed,),
            )

    def close(self) -> None:
        """Release the file; idempotent."""
        self._database.close()
