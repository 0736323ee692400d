"""Schema 1: the ledger as fleetd 0.1.0 first wrote it, with a number in a table of its own instead of Alembic's."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables of an empty file."""
    op.create_table("hosts", sa.Column("name", sa.Text, primary_key=True), sa.Column("body", sa.Text))
    op.create_table(
        "journal",
        sa.Column("id", _COUNT, primary_key=True, autoincrement=False),
        sa.Column("host", sa.Text),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("journal_by_host", "journal", ["host", "id"])
    op.create_index("journal_by_kind", "journal", ["kind", "id"])
    op.create_table(
        "findings",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("position", _COUNT, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("findings_by_host", "findings", ["host", "position"])
    op.create_table(
        "spools",
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("spool", sa.Text, primary_key=True),
        sa.Column("seq", _COUNT, nullable=False),
    )
    op.create_table(
        "fleet", sa.Column("id", sa.Integer, primary_key=True, autoincrement=False), sa.Column("body", sa.Text)
    )
    op.create_table(
        "orders",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("position", _COUNT, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("issued_at_s", sa.Float, nullable=False),
        sa.Column("done", sa.Boolean, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("orders_open", "orders", ["done", "position"])
    op.create_index("orders_by_kind", "orders", ["kind", "position"])
    op.create_index("orders_by_host", "orders", ["host", "position"])


def downgrade() -> None:
    """Refused: there is nothing before it."""
    raise RuntimeError("there is none before schema 1")
