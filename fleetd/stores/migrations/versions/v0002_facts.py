"""Schema 2: journal entries can be found by time, person, weight, and why; a journal may begin in the middle."""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_PAGE = 2000
_ALWAYS = frozenset({"JobEnded"})
"""Kinds that a report counts although no host changes by them, as far as schema 1 had them; overrides are, too."""


def upgrade() -> None:
    """Add the columns and fill them from the bodies; make room for where a journal begins."""
    for column in (
        sa.Column("at_s", sa.Float),
        sa.Column("who", sa.Text),
        sa.Column("was", sa.Text),
        sa.Column("notable", sa.Boolean),
        sa.Column("why", sa.Text),
    ):
        op.add_column("journal", column)
    _fill(op.get_bind())
    op.drop_index("journal_by_host", "journal")
    beside = ["at_s", "why"] if op.get_context().dialect.name == "sqlite" else []  # PostgreSQL's entries are short
    op.create_index("journal_by_host", "journal", ["host", "id", *beside])
    op.create_index("findings_by_position", "findings", ["position"])
    op.create_index("journal_by_time", "journal", ["at_s"])
    for name, where in (("journal_by_person", sa.text("who IS NOT NULL")), ("journal_notable", sa.text("notable"))):
        op.create_index(name, "journal", ["id"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "anchor",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", _COUNT, nullable=False),
        sa.Column("at_s", sa.Float, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("fleet", sa.Text, nullable=False),
    )
    op.create_table(
        "baseline", sa.Column("host", sa.Text, primary_key=True), sa.Column("body", sa.Text, nullable=False)
    )
    op.drop_table("meta", if_exists=True)  # Alembic's own table holds the number from here on


def downgrade() -> None:
    """Refused."""
    raise RuntimeError("a ledger of schema 2 may have a pruned journal, which schema 1 takes for a damaged one")


def _fill(connection: sa.Connection) -> None:
    """One pass over the journal in its order: what a host was before an entry is what it was after its last one."""
    was: dict[str, str] = {}
    weighs: dict[str, tuple[object, ...]] = {}
    fleet: dict[str, Any] = {}
    after = 0
    update = sa.text(
        "UPDATE journal SET at_s = :at_s, who = :who, was = :was, notable = :notable, why = :why WHERE id = :id"
    )
    while rows := _page(connection, after):
        filled = []
        for position, kind, text in rows:
            after = position
            body = _read(text)
            if body is None:
                continue  # damaged: whoever reads the journal is told
            host, name = body.get("host"), (body.get("host") or {}).get("name", "")
            before = was.get(name, "unknown") if host else _fleet(fleet)
            weight = _weight(host) if host else ()
            counted = kind in _ALWAYS or bool(body.get("event", {}).get("override"))
            notable = counted or (host is not None and weighs.get(name) != weight)
            if host:
                was[name], weighs[name] = _summary(host), weight
            fleet = body.get("fleet") or fleet
            who = (body.get("event", {}).get("who") or "").removeprefix("operator:")
            row = {
                "id": position,
                "at_s": body.get("at_s"),
                "who": None if who in {"", "fleetd"} else who,
                "was": before,
                "notable": notable,
                "why": body.get("why"),
            }
            filled.append(row)
        if filled:
            connection.execute(update, filled)


def _page(connection: sa.Connection, after: int) -> list[tuple[int, str, str]]:
    query = sa.text("SELECT id, kind, body FROM journal WHERE id > :after ORDER BY id LIMIT :page")
    return [tuple(row) for row in connection.execute(query, {"after": after, "page": _PAGE})]


def _read(text: str) -> dict[str, Any] | None:
    try:
        body = json.loads(text)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _owners(host: dict[str, Any]) -> Iterator[str]:
    yield from dict.fromkeys(hold["owner"] for hold in host.get("holds", ()))


def _summary(host: dict[str, Any]) -> str:
    parts = [host["state"]]
    parts += [f"held by {', '.join(_owners(host))}"] if host.get("holds") else []
    parts += [f"{len(host['charges'])} charged"] if host.get("charges") else []
    return "; ".join(parts)


def _fleet(record: dict[str, Any]) -> str:
    parts = ["automation stopped" if record.get("stopped") else "automation running"]
    parts += [f"{len(record['tripped'])} budgets tripped"] if record.get("tripped") else []
    parts += [f"{len(record['incidents'])} incidents open"] if record.get("incidents") else []
    return "; ".join(parts)


def _weight(host: dict[str, Any]) -> tuple[object, ...]:
    gpus = tuple((g["vendor"], g["sku"]) for g in host.get("inventory", ()))
    return host["state"], "fleetd" in _owners(host), gpus, (host.get("place") or {}).get("pool")
