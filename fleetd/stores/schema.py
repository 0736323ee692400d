"""The tables of the ledger as this version reads and writes them. Only migrations make or change them in a file.

journal                every event with its decision, chained; never changed, only its oldest part is ever pruned
hosts fleet spools     projections: what the journal adds up to, written in the transaction of the entry itself
findings               evidence by host
orders                 the outbox, and what became of each order
anchor baseline        where a pruned journal begins: the digest that its first entry follows, and how things stood
term                   one row: who may write. Of use in PostgreSQL, where several controllers share a ledger
"""

import sqlalchemy as sa

metadata = sa.MetaData()

_Count = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""A number that only grows. SQLite's INTEGER has 64 bits, and must be called so to be a table's own row number."""

hosts = sa.Table(
    "hosts", metadata, sa.Column("name", sa.Text, primary_key=True), sa.Column("body", sa.Text, nullable=True)
)
journal = sa.Table(
    "journal",
    metadata,
    # Given by whoever writes, behind the newest: a sequence would leave a gap where a transaction is taken back.
    sa.Column("id", _Count, primary_key=True, autoincrement=False),
    sa.Column("host", sa.Text),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    # Since schema 2; all of them repeat what the body says, so that it need not be read to be found.
    sa.Column("at_s", sa.Float),
    sa.Column("who", sa.Text),
    sa.Column("was", sa.Text),
    sa.Column("notable", sa.Boolean),
    sa.Column("why", sa.Text),
    # With what a host's page shows: its entries lie all over a large file, and reading 200 of them would take seconds
    # on a slow disk; in the index they lie side by side. PostgreSQL has only the first two of them in it: it takes no
    # entry of an index above 2.7 kB, and a sentence may be longer.
    sa.Index("journal_by_host", "host", "id", "at_s", "why"),
    sa.Index("journal_by_kind", "kind", "id"),
    sa.Index("journal_by_time", "at_s"),
    sa.Index(
        "journal_by_person", "id", sqlite_where=sa.text("who IS NOT NULL"), postgresql_where=sa.text("who IS NOT NULL")
    ),
    sa.Index("journal_notable", "id", sqlite_where=sa.text("notable"), postgresql_where=sa.text("notable")),
)
findings = sa.Table(
    "findings",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("position", _Count, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("findings_by_host", "host", "position"),
    sa.Index("findings_by_position", "position"),
)
spools = sa.Table(
    "spools",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("spool", sa.Text, primary_key=True),
    sa.Column("seq", _Count, nullable=False),
)
fleet = sa.Table(
    "fleet", metadata, sa.Column("id", sa.Integer, primary_key=True, autoincrement=False), sa.Column("body", sa.Text)
)
orders = sa.Table(
    "orders",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("position", _Count, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("issued_at_s", sa.Float, nullable=False),
    sa.Column("done", sa.Boolean, nullable=False),
    sa.Column("result", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    # Since schema 3: its place among the orders of its entry.
    sa.Column("nth", _Count, nullable=False, server_default="0"),
    sa.Index("orders_open", "done", "position"),
    sa.Index("orders_by_kind", "kind", "position"),
    sa.Index("orders_by_host", "host", "position"),
)
anchor = sa.Table(
    "anchor",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("position", _Count, nullable=False),
    sa.Column("at_s", sa.Float, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("fleet", sa.Text, nullable=False),
)
term = sa.Table(
    "term",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", _Count, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
)
baseline = sa.Table(
    "baseline", metadata, sa.Column("host", sa.Text, primary_key=True), sa.Column("body", sa.Text, nullable=False)
)
