"""Schema 3: controllers that share a ledger know whose turn it is; orders of one entry keep their order anywhere."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the table of the term, and to each order its place."""
    op.create_table(
        "term",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", _COUNT, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
    )
    op.add_column("orders", sa.Column("nth", _COUNT, nullable=False, server_default="0"))
    if op.get_context().dialect.name == "sqlite":  # the only one that had ledgers before; it kept them by row number
        op.execute("UPDATE orders SET nth = rowid")


def downgrade() -> None:
    """Refused."""
    raise RuntimeError("before schema 3, two controllers on one ledger would both write")
