"""Files that are no backup, or one with a part missing, never take a ledger's place; nothing passes for whole."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fleetd.cli.store import command
from fleetd.ports import StoreError
from fleetd.stores.keep import copy
from fleetd.stores.sql import SqlStore
from tests.stores.ledgers import Ledgerer, burnin

DAMAGE = {
    "a host is gone": ("DELETE FROM hosts WHERE name = 'h2'", "host h2 is in the journal"),
    "a host is as it was": ("UPDATE hosts SET body = (SELECT old FROM t) WHERE name = 'h1'", "host h1 is in the journ"),
    "a host cannot be read": (
        "UPDATE hosts SET body = '{}' WHERE name = 'h2'",
        "wrong.db: the store holds a host",
    ),
    "it is of the future": (
        "UPDATE alembic_version SET version_num = '0099'",
        "wrong.db: schema 0099 was written",
    ),
    "it has no journal": ("DELETE FROM journal", "the journal ends too early"),
}


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    made = Ledgerer()
    made.join(0.0, ["h1", "h2"])
    made.at(100.0, burnin("h1", "f1", 99.0))
    path = tmp_path / "fleet.db"
    with closing(SqlStore(path)) as store:
        store.commit(made.entries[:1])
        with closing(sqlite3.connect(path)) as database:
            (old,) = database.execute("SELECT body FROM hosts").fetchone()
        store.commit(made.entries[1:])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy(path, tmp_path / "wrong.db")
    with closing(sqlite3.connect(tmp_path / "wrong.db")) as database, database:
        database.execute("CREATE TABLE t (old TEXT)")
        database.execute("INSERT INTO t VALUES (?)", [old])
    return path


@pytest.mark.parametrize(("change", "said"), DAMAGE.values(), ids=DAMAGE)
def test_a_backup_with_something_missing_is_refused_by_its_own_name(path: Path, change: str, said: str) -> None:
    wrong, before = path.with_name("wrong.db"), path.read_bytes()
    with closing(sqlite3.connect(wrong)) as database, database:
        database.execute(change)
    found = run("restore", wrong, "--ledger", path, "--reason", "r")
    assert (found.exit_code, len(found.stderr.splitlines())) == (1, 1)
    assert said in found.stderr
    assert ".restored" not in found.stderr, "nobody knows the copy"
    assert path.read_bytes() == before
    assert not list(path.parent.glob(".*"))


def test_a_host_that_is_gone_is_found_by_the_check_of_a_living_ledger(path: Path) -> None:
    assert run("check", "--ledger", path).exit_code == 0
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM hosts WHERE name = 'h2'")
    found = run("check", "--ledger", path)
    assert (found.exit_code, "host h2 is in the journal" in found.stderr) == (1, True)


@pytest.mark.parametrize("kind", ["empty", "text", "folder", "other program"])
def test_what_is_no_ledger_takes_no_ledgers_place(path: Path, kind: str) -> None:
    """An empty file is what a backup leaves that found no room: it must not make a fleet forget its holds."""
    wrong, before = path.with_name("it"), path.read_bytes()
    if kind == "folder":
        wrong.mkdir()
    elif kind == "other program":
        with closing(sqlite3.connect(wrong)) as database, database:
            database.execute("CREATE TABLE theirs (x)")
    else:
        wrong.write_text("" if kind == "empty" else "shopping list\n" * 300)
    found = run("restore", wrong, "--ledger", path, "--reason", "r")
    assert (found.exit_code, len(found.stderr.splitlines())) == (2 if kind == "folder" else 1, 1)
    assert str(wrong) in found.stderr
    assert path.read_bytes() == before
    if kind == "empty":
        assert run("backup", path.with_name("copy"), "--ledger", wrong).exit_code == 1
        assert not path.with_name("copy").exists()


def test_an_empty_file_is_no_first_start(tmp_path: Path) -> None:
    (tmp_path / "fleet.db").touch()
    with pytest.raises(StoreError, match=r"fleet\.db: empty; restore a backup of it, or remove it"):
        SqlStore(tmp_path / "fleet.db")
    with closing(SqlStore(tmp_path / "other.db")) as store:
        assert store.load().hosts == ()


NO_ROOM = """
import resource, sys
from pathlib import Path
from fleetd.ports import StoreError
from fleetd.stores.sql import SqlStore

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    SqlStore(Path(sys.argv[1]))
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("room", [0, 100, 4096, 20000])
def test_a_first_start_that_finds_no_room_is_not_in_the_way_of_the_next(tmp_path: Path, room: int) -> None:
    path = tmp_path / "fleet.db"
    words = [sys.executable, "-c", NO_ROOM, str(path), str(room)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.startswith(f"{path}: "), "it failed, and says where"
    assert not path.exists() or path.stat().st_size > 0
    with closing(SqlStore(path)) as store:
        assert store.load().hosts == ()
    assert not list(tmp_path.glob(".*"))


def test_a_first_start_knows_nothing_of_a_ledger_that_was_taken_away(path: Path) -> None:
    """That of a controller that was killed leaves a log beside it, which belongs to no other file."""
    with closing(SqlStore(path)) as store:
        made = Ledgerer()
        made.join(1000.0, ["h9"])
        store.commit(made.entries)
        shutil.copy(f"{path}-wal", path.with_name("log"))
    path.unlink()
    log = path.with_name("log").read_bytes()
    path.with_name("log").rename(f"{path}-wal")
    with closing(SqlStore(path)) as store:
        assert store.load().hosts == ()
    assert Path(f"{path}-wal.left").read_bytes() == log, "it may hold what that ledger decided last"
