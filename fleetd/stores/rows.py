"""The rows that journal entries become: gathered for a whole transaction, and written table by table."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from fleetd.model.event import FindingReceived
from fleetd.model.fact import fleet_summary, is_notable, person_of, summary
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.ids import HostName
from fleetd.model.journal import JournalEntry
from fleetd.stores import codec
from fleetd.stores.schema import findings, fleet, hosts, journal, orders, spools

Row = dict[str, Any]


class Rows:
    """What a transaction writes. One statement a table, however many entries: a tenth of the time of one a row."""

    def __init__(self, *, position: int, last: str | None, record: FleetRecord, stood: Mapping[HostName, Host]) -> None:
        """Begin behind a journal.

        Args:
            position: of its newest entry; 0 without one.
            last: the text of that.
            record: of the fleet, before.
            stood: the hosts of the entries to come that are known, before.
        """
        self._position = position
        self._last = last
        self._record = record
        self._record_changed = False
        self._stood = dict(stood)
        self._changed: dict[HostName, Host] = {}
        self._journal: list[Row] = []
        self._findings: list[Row] = []
        self._spools: dict[tuple[str, str], int] = {}
        self._orders: list[Row] = []

    def add(self, entry: JournalEntry) -> None:
        """Take one entry in."""
        self._position += 1
        self._last = codec.chained(codec.dump_entry(entry), self._last)
        host = None if entry.host is None else entry.host.name
        old = None if entry.host is None else self._stood.get(entry.host.name)
        self._journal.append(
            {
                "id": self._position,
                "host": host,
                "kind": type(entry.event).__name__,
                "body": self._last,
                "at_s": entry.at_s,
                "who": person_of(entry.event),
                "was": fleet_summary(self._record) if entry.host is None else summary(old),
                "notable": is_notable(entry.event, old, entry.host),
                "why": plain(entry.why),
            }
        )
        if entry.host is not None:
            self._stood[entry.host.name] = self._changed[entry.host.name] = entry.host
        if isinstance(entry.event, FindingReceived):
            self._add_finding(entry, entry.event)
        if entry.fleet is not None:
            self._record, self._record_changed = entry.fleet, True
        self._orders.extend(
            {
                "id": order.id,
                "position": self._position,
                "host": host,
                "kind": type(order).__name__,
                "issued_at_s": order.issued_at_s,
                "done": False,
                "result": "",
                "body": codec.dump_order(order),
                "nth": nth,
            }
            for nth, order in enumerate(entry.orders)
        )

    def _add_finding(self, entry: JournalEntry, event: FindingReceived) -> None:
        found = event.finding
        body = codec.dump_finding(found)
        self._findings.append({"id": found.id, "position": self._position, "host": event.host, "body": body})
        if entry.progress is not None:
            self._spools[event.host, entry.progress.spool] = entry.progress.seq

    def write(self, connection: sa.Connection) -> None:
        """Write everything."""
        stood = [{"name": name, "body": codec.dump_host(host)} for name, host in self._changed.items()]
        heard = [{"host": host, "spool": spool, "seq": seq} for (host, spool), seq in self._spools.items()]
        record = [{"id": 1, "body": codec.dump_fleet(self._record)}] if self._record_changed else []
        on = connection.dialect
        _execute(connection, sa.insert(journal), self._journal)
        _execute(connection, upsert(on, hosts, "body"), stood)
        _execute(connection, upsert(on, findings), self._findings)
        _execute(connection, upsert(on, spools, "seq"), heard)
        _execute(connection, upsert(on, fleet, "body"), record)
        _execute(connection, upsert(on, orders), self._orders)


def upsert(on: sa.Dialect, table: sa.Table, *columns: str) -> sa.Executable:
    """Insert a row, or set these columns of the one with its key; without any it stays as it is."""
    statement = postgresql.insert(table) if on.name == "postgresql" else sqlite.insert(table)
    if not columns:
        return statement.on_conflict_do_nothing()
    key = [column.name for column in table.primary_key]
    return statement.on_conflict_do_update(index_elements=key, set_={c: statement.excluded[c] for c in columns})


def plain(text: str) -> str:
    """A sentence as a column takes it: PostgreSQL refuses the zero character, which JSON writes otherwise."""
    return text.replace("\0", "\ufffd")


def _execute(connection: sa.Connection, statement: sa.Executable, rows: Sequence[Row]) -> None:
    if rows:
        connection.execute(statement, list(rows))
