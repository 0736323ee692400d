"""Brings a ledger to the schema of this version, forward only, in one transaction; says what it did in the log."""

from pathlib import Path

import sqlalchemy as sa
import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError

from fleetd.ports import OtherSchema, StoreError

_log = structlog.get_logger(__name__)

_FIRST = "0001"
"""The schema of the files that say their number in the table `meta`."""


def head() -> str:
    """The schema that this version writes."""
    found = _scripts().get_current_head()
    assert found is not None  # noqa: S101 - migrations are part of the package
    return found


def schema_of(connection: sa.Connection) -> str | None:
    """The schema of a ledger; None for an empty one. Raises StoreError for one that is none of ours."""
    tables = set(sa.inspect(connection).get_table_names())
    if "meta" in tables and "alembic_version" not in tables:
        version = connection.execute(sa.text("SELECT schema_version FROM meta")).scalar()
        if version is None:
            return None  # a first start was cut off after the tables and before their number
        return f"{version:04d}"
    found = MigrationContext.configure(connection).get_current_revision()
    if found is None and tables:
        another = "file" if connection.dialect.name == "sqlite" else "database or schema"
        raise StoreError(f"a database of another program: name another {another}")
    return found


def check(connection: sa.Connection) -> None:
    """See that the ledger can be read as it is. Raises StoreError: what it is instead, and what to do.

    OtherSchema when another version wrote it.
    """
    found, ours = schema_of(connection), head()
    if found is None:
        raise StoreError("an empty ledger")
    if found != ours:
        raise OtherSchema(_mismatch(found))


def upgrade(connection: sa.Connection, where: str) -> None:
    """Make the tables of an empty ledger, or bring an older one forward. Raises StoreError when it is a newer one.

    The connection is in a transaction, which the caller commits.
    """
    found, ours = schema_of(connection), head()
    if found == ours:
        return
    if found is not None and found not in {script.revision for script in _scripts().walk_revisions()}:
        raise OtherSchema(_mismatch(found))
    config = _config()
    config.attributes["connection"] = connection
    meta = "meta" in sa.inspect(connection).get_table_names()
    try:
        if found is None and meta:
            for table in reversed(sa.inspect(connection).get_table_names()):
                connection.execute(sa.text(f"DROP TABLE {table}"))
        elif meta:
            command.stamp(config, _FIRST)
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(f"its schema {found} cannot be upgraded: {error}") from error
    if found is not None:
        _log.warning("ledger_upgraded", path=where, schema_was=found, schema=ours, back="only by a backup")


def _mismatch(found: str) -> str:
    ours = head()
    if found > ours:
        return (
            f"schema {found} was written by a newer fleetd, this one reads {ours}: run that version, or put back a "
            "backup from before the upgrade; a ledger is never downgraded, this version would lose what it cannot read"
        )
    return f"schema {found} is of an older fleetd, this one reads {ours}: `fleetd store upgrade` brings it forward"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
