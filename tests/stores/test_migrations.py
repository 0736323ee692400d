"""Ledgers of earlier versions open in this one, whole; none goes back."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
import structlog
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from fleetd.core.chain import unbroken
from fleetd.model.fact import FactQuery, fact_of, fleet_summary, is_notable, summary
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.ids import HostName
from fleetd.ports import StoreError
from fleetd.stores import upgrade
from fleetd.stores.schema import metadata
from fleetd.stores.sql import SqlStore

HERE = Path(__file__).parent
DUMPS = sorted(HERE.glob("ledger-*.sql"))
"""A ledger as each earlier schema's own code wrote it (`sqlite3 FILE .dump`), one file a schema."""


def ledger_of(dump: Path, tmp_path: Path) -> Path:
    path = tmp_path / "fleet.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(dump.read_text())
    return path


def journal_of(path: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT id, body FROM journal ORDER BY id").fetchall()


def test_there_is_a_ledger_of_every_earlier_schema() -> None:
    scripts = ScriptDirectory(str(Path(upgrade.__file__).parent / "migrations"))
    earlier = sorted(s.revision for s in scripts.walk_revisions() if s.revision != upgrade.head())
    assert [re.findall(r"\d+", dump.name) for dump in DUMPS] == [[revision] for revision in earlier]


@pytest.mark.parametrize("dump", DUMPS, ids=lambda p: p.stem)
def test_an_earlier_ledger_is_brought_forward_in_place_and_says_so(dump: Path, tmp_path: Path) -> None:
    path = ledger_of(dump, tmp_path)
    before = journal_of(path)
    with structlog.testing.capture_logs() as logs:
        store = SqlStore(path)
    assert [(log["event"], log["schema_was"], log["schema"]) for log in logs] == [
        ("ledger_upgraded", dump.stem.removeprefix("ledger-"), upgrade.head())
    ]
    assert journal_of(path) == before  # the chain is over the very bytes
    image, rows = store.load(), store.journal(after=0, limit=99)
    assert len(list(unbroken(rows, image.hosts, image.fleet))) == len(before) > 10
    assert image.hosts
    assert image.open_orders
    with structlog.testing.capture_logs() as logs:
        SqlStore(path).close()
    assert logs == []  # once
    store.close()


@pytest.mark.parametrize("dump", DUMPS, ids=lambda p: p.stem)
def test_a_migrated_entry_has_the_facts_that_a_new_one_would_have(dump: Path, tmp_path: Path) -> None:
    store = SqlStore(ledger_of(dump, tmp_path))
    rows = store.journal(after=0, limit=99)
    hosts: dict[str, Host] = {}
    record, facts, notable = FleetRecord(), [], []
    for position, entry in rows:
        old = None if entry.host is None else hosts.get(entry.host.name)
        facts.append(fact_of(position, entry, fleet_summary(record) if entry.host is None else summary(old)))
        if is_notable(entry.event, old, entry.host):
            notable.append(position)
        if entry.host is not None:
            hosts[entry.host.name] = entry.host
        record = entry.fleet if entry.fleet is not None else record
    assert list(store.facts(FactQuery(limit=99))) == facts
    assert [fact.position for fact in store.facts(FactQuery(limit=99, notable=True))] == notable
    people = [fact.position for fact in facts if fact.who is not None]
    assert [fact.position for fact in store.facts(FactQuery(limit=99, people=True))] == people != []
    assert [f.position for f in store.facts(FactQuery(limit=99, since_s=facts[5].at_s))] == [
        fact.position for fact in facts if fact.at_s >= facts[5].at_s
    ]
    store.close()


@pytest.mark.parametrize("dump", [*DUMPS, None], ids=lambda p: p.stem if p else "new")
def test_what_the_migrations_make_is_what_the_code_reads(dump: Path | None, tmp_path: Path) -> None:
    path = tmp_path / "fleet.db" if dump is None else ledger_of(dump, tmp_path)
    SqlStore(path).close()
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_a_reader_changes_nothing_and_says_what_to_do(tmp_path: Path) -> None:
    path = ledger_of(DUMPS[0], tmp_path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"schema 0001 is of an older fleetd.*`fleetd store upgrade` brings it"):
        SqlStore(path, read_only=True)
    assert path.read_bytes() == before


def test_an_upgrade_that_fails_leaves_the_ledger_as_it_was(tmp_path: Path) -> None:
    path = ledger_of(DUMPS[0], tmp_path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE INDEX journal_notable ON journal (id)")  # the last steps of the next schema fail
        database.commit()
    before = journal_of(path)
    with pytest.raises(StoreError, match="already exists"):
        SqlStore(path)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT schema_version FROM meta").fetchall() == [(1,)]
        assert len(database.execute("PRAGMA table_info(journal)").fetchall()) == 4
    assert journal_of(path) == before


def test_a_first_start_that_was_cut_off_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE meta (schema_version INTEGER NOT NULL)")
        database.execute("CREATE TABLE hosts (name TEXT NOT NULL, body TEXT, PRIMARY KEY (name))")
        database.commit()
    store = SqlStore(path)
    assert store.load().hosts == ()
    store.close()


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (x)")
        database.commit()
    with pytest.raises(StoreError, match="of another program"):
        SqlStore(path)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


@pytest.mark.parametrize("revision", ["v0001_ledger", "v0002_facts", "v0003_terms"])
def test_no_schema_goes_back(revision: str) -> None:
    scripts = ScriptDirectory(str(Path(upgrade.__file__).parent / "migrations"))
    module = next(s.module for s in scripts.walk_revisions() if Path(s.path).stem == revision)
    with pytest.raises(RuntimeError, match=r"schema [13]"):
        module.downgrade()


def test_the_fixture_has_what_an_upgrade_has_to_read(tmp_path: Path) -> None:
    bodies = [json.loads(body) for _, body in journal_of(ledger_of(DUMPS[0], tmp_path))]
    kinds = {body["event"]["type"] for body in bodies}
    assert {"AgentConnected", "FindingReceived", "OperatorReleased", "JobEnded", "AutomationStopped"} <= kinds


@pytest.mark.parametrize("dump", [*DUMPS, None], ids=lambda p: p.stem if p else "new")
def test_why_a_host_is_where_it_is_stands_in_an_index(dump: Path | None, tmp_path: Path) -> None:
    """Its entries lie all over a large file: reading each of them made its page too slow on a cold disk."""
    store = SqlStore(tmp_path / "fleet.db" if dump is None else ledger_of(dump, tmp_path))
    asked: list[str] = []
    sa.event.listen(store._engine, "before_cursor_execute", lambda _c, _k, statement, *_: asked.append(statement))
    for host in store.load().hosts:
        entries = store.history(host.name, limit=99)
        assert store.reasons(host.name, limit=99) == tuple((entry.at_s, entry.why) for entry in entries) != ()
    store.reasons(HostName("h"), limit=9)
    with store._engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked[-1]}", ("h", 9, 0)).fetchall()
    assert [row[-1] for row in plan] == ["SEARCH journal USING COVERING INDEX journal_by_host (host=?)"]
    store.close()
