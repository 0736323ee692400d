"""Pruning, backup and restore: what may go goes, what is open stays, and what is left can still be checked."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fleetd.cli import main
from fleetd.compose import keeping
from fleetd.core.chain import BrokenJournal, unbroken
from fleetd.core.rehearse import rehearse
from fleetd.model.event import AutomationStopped, JobEnded, OperatorBurnin, OperatorReleased
from fleetd.model.fact import BEGINNING, FactQuery
from fleetd.model.host import Host, Lifecycle
from fleetd.model.ids import HostName
from fleetd.ports import StoreError
from fleetd.stores import keep
from fleetd.stores.file import in_use
from fleetd.stores.keep import Pruned, copy, prune
from fleetd.stores.sql import SqlStore
from fleetd.system import RealClock
from tests.stores.ledgers import DAY, Ledgerer, burnin, hello

NOW = 1000 * DAY


def a_year() -> Ledgerer:
    """h1 is bad since day 10 and still held; h2 was bad and was released; h3 never was; everybody runs jobs."""
    made = Ledgerer()
    made.join(NOW - 365 * DAY, ["h1", "h2", "h3"])
    made.at(NOW - 355 * DAY, burnin("h1", "h1/bad", NOW - 355 * DAY))
    for day in range(354, 0, -1):
        made.at(NOW - day * DAY, JobEnded(host=HostName("h3"), job=f"j{day}", ok=day % 7 != 0, ran_seconds=3600.0))
    made.at(NOW - 0.5 * DAY, hello("h3"))
    return made


def ledger_of(made: Ledgerer, tmp_path: Path, *, finish: bool = True) -> Path:
    path = tmp_path / "fleet.db"
    store = SqlStore(path)
    store.commit(made.entries)
    for order in (order for entry in made.entries for order in entry.orders if finish):
        store.finish_order(order.id, "done")
    store.close()
    return path


def whole(path: Path) -> keeping.Checked:
    return keeping.check(path)


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["store", *map(str, words)])


def hosts_of(path: Path) -> tuple[Host, ...]:
    with closing(SqlStore(path, read_only=True)) as store:
        return store.load().hosts


# ── pruning ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_old_goes_and_what_is_open_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep, "PAGE", 50)  # several transactions
    path = ledger_of(a_year(), tmp_path)
    before, total = hosts_of(path), whole(path).entries
    found = prune(path, before_s=NOW - 90 * DAY)
    assert found.entries + found.kept > 250
    left = whole(path)
    assert (left.entries, left.begins_at) == (total - found.entries - found.kept, found.entries + found.kept)
    assert hosts_of(path) == before
    with closing(SqlStore(path)) as store:
        assert [f.id for f in store.findings(HostName("h1"), limit=9)] == ["h1/bad"]  # the pass is no evidence
        assert any("h1" in entry.why or "condemn" in entry.why for entry in store.history(HostName("h1"), limit=9))
        assert any(entry.host and entry.host.held for entry in store.history(HostName("h1"), limit=9))
        beginning = store.beginning()
        assert {h.name: h.state for h in beginning.hosts} == {
            "h1": Lifecycle.QUARANTINED,
            "h2": Lifecycle.HEALTHY,
            "h3": Lifecycle.HEALTHY,
        }
        facts = store.facts(FactQuery(limit=999, notable=True))
        assert [(f.host, f.event) for f in facts[:3]] == [(h, BEGINNING) for h in ("h1", "h2", "h3")]
        assert facts[3].position > beginning.position
    assert prune(path, before_s=NOW - 90 * DAY) == Pruned(entries=0, findings=0, orders=0, kept=found.kept)


def test_a_pruned_ledger_goes_on_and_is_pruned_again(tmp_path: Path) -> None:
    made = a_year()
    path = ledger_of(made, tmp_path)
    prune(path, before_s=NOW - 90 * DAY)
    done = len(made.entries)
    made.at(NOW - 1, OperatorReleased(host=HostName("h1"), who="ann", reason="new GPU", override=True))
    made.at(NOW, AutomationStopped(who="operator:ann", reason="r"))
    with closing(SqlStore(path)) as store:
        store.commit(made.entries[done:])
        for order in (order for entry in made.entries[done:] for order in entry.orders):
            store.finish_order(order.id, "done")
    assert whole(path).entries > 0
    again = prune(path, before_s=NOW + DAY)
    assert whole(path).entries == 1  # the newest stays
    with closing(sqlite3.connect(path)) as database:
        old = database.execute("SELECT f.id FROM journal LEFT JOIN findings f ON position = journal.id ORDER BY 1")
        # The hold is gone; what stays is the proof of each healthy host, and the evidence of h1's condemnation.
        assert [row[0] for row in old] == [None, "h1/bad", "h2/pass", "h3/pass"]
    assert again.kept == 3
    with closing(SqlStore(path)) as store:
        assert store.load().fleet.stopped is not None
        # The condemnation stays in the history of the serial, and its evidence with it.
        assert [f.id for f in store.findings(HostName("h1"), limit=9)] == ["h1/bad"]


def test_evidence_goes_when_nothing_rests_on_it_any_more(tmp_path: Path) -> None:
    """h2's proof was kept for its sake; a newer one took its place."""
    made = a_year()
    path = ledger_of(made, tmp_path)
    prune(path, before_s=NOW - 90 * DAY)
    with closing(SqlStore(path)) as store:
        assert [f.id for f in store.findings(HostName("h2"), limit=9)] == ["h2/pass"]
        ordered = made.at(NOW, OperatorBurnin(host=HostName("h2"), who="ann", reason="r", level="smoke"))
        order = ordered[0].orders[0].id
        newer = made.at(NOW + 60, burnin("h2", "h2/again", NOW + 60, order=order, bad=False))
        store.commit([*ordered, *newer])
    prune(path, before_s=NOW - 90 * DAY)
    with closing(SqlStore(path)) as store:
        assert [f.id for f in store.findings(HostName("h2"), limit=9)] == ["h2/again"]
    assert whole(path).entries > 90


def test_open_orders_stay_with_their_entries(tmp_path: Path) -> None:
    path = ledger_of(a_year(), tmp_path, finish=False)
    with closing(SqlStore(path)) as store:
        before = store.load().open_orders
    found = prune(path, before_s=NOW + DAY)
    with closing(SqlStore(path)) as store:
        assert store.load().open_orders == before != ()
    assert found.orders == 0


def test_a_pruned_journal_can_be_rehearsed_from_where_it_begins(tmp_path: Path) -> None:
    made = a_year()
    path = ledger_of(made, tmp_path)
    prune(path, before_s=NOW - 90 * DAY)
    with closing(SqlStore(path, read_only=True)) as store:
        image, beginning = store.load(), store.beginning()
        entries = unbroken(store.journal(after=0, limit=999), image.hosts, image.fleet, beginning)
        found = rehearse(entries, made.replay.policy, limit=9, beginning=beginning)
    assert (found.entries, found.differences, found.hosts) == (91, (), ())


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM journal WHERE id = (SELECT position + 1 FROM anchor)",
        "UPDATE anchor SET digest = 'ffffffffffffffffffffffffffffffff'",
        "UPDATE anchor SET position = position + 1",
        "UPDATE journal SET body = replace(body, 'j50', 'j51') WHERE body LIKE '%j50%'",
        "DELETE FROM journal WHERE id = (SELECT max(id) - 3 FROM journal)",
    ],
)
def test_damage_to_a_pruned_journal_is_seen_and_never_pruned_away(tmp_path: Path, change: str) -> None:
    path = ledger_of(a_year(), tmp_path)
    prune(path, before_s=NOW - 90 * DAY)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(change)
    with pytest.raises((StoreError, BrokenJournal), match=r"does not follow|gap"):
        whole(path)
    with pytest.raises(StoreError, match="does not follow"):
        prune(path, before_s=NOW + DAY)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM journal").fetchone()[0] > 80


def test_a_journal_of_the_first_versions_is_pruned_too(tmp_path: Path) -> None:
    made = a_year()
    path = ledger_of(made, tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE journal SET body = '{' || substr(body, 45)")
    with closing(SqlStore(path)) as store:
        store.commit(made.at(NOW, hello("h2")))
    assert prune(path, before_s=NOW - 90 * DAY).entries > 0
    assert whole(path).entries == 92
    assert prune(path, before_s=NOW + DAY).entries > 0
    assert whole(path).entries == 1


def test_the_command_prunes_beside_a_controller_and_keeps_a_day_at_least(tmp_path: Path) -> None:
    path = ledger_of(a_year(), tmp_path)
    with in_use(path):  # by a controller
        found = run("prune", "--ledger", path, "--keep", "90d", "--json", "-")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["entries"] > 250  # the test's year is long ago
    for words, said in (("2h", "less than a day"), ("ninety", "is no duration"), ("-1d", "is no duration")):
        refused = run("prune", "--ledger", path, "--keep", words)
        assert (refused.exit_code, said in refused.stderr) == (2, True)
    missing = run("prune", "--ledger", tmp_path / "none.db", "--keep", "9d")
    assert (missing.exit_code, len(missing.stderr.splitlines())) == (2, 1)
    assert not (tmp_path / "none.db").exists()


# ── backup and restore ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_backup_is_of_one_moment_while_a_controller_writes(tmp_path: Path) -> None:
    made = a_year()
    path = ledger_of(made, tmp_path)
    with closing(SqlStore(path)) as store, in_use(path):
        assert run("backup", tmp_path / "copy.db", "--ledger", path).exit_code == 0
        store.commit(made.at(NOW, hello("h2")))
    assert whole(tmp_path / "copy.db").entries == whole(path).entries - 1
    assert sorted(p.name for p in tmp_path.iterdir() if "copy" in p.name) == ["copy.db"]  # one file, whole by itself
    again = run("backup", tmp_path / "copy.db", "--ledger", path)
    assert (again.exit_code, "already" in again.stderr) == (1, True)


def test_a_restore_keeps_what_was_there_and_gives_no_order_number_twice(tmp_path: Path) -> None:
    made = a_year()
    path = ledger_of(made, tmp_path)
    assert run("backup", tmp_path / "copy.db", "--ledger", path).exit_code == 0
    with closing(SqlStore(path)) as store:
        store.commit(made.at(NOW, burnin("h2", "h2/bad", NOW)))
    later = {h.name: h for h in hosts_of(path)}
    found = run("restore", tmp_path / "copy.db", "--ledger", path, "--reason", "disk died", "--json", "-")
    assert found.exit_code == 0, found.output
    restored = {h.name: h for h in hosts_of(path)}
    assert restored["h2"].state is Lifecycle.HEALTHY
    assert all(restored[name].orders_issued > later[name].orders_issued + 1000 for name in restored)
    with closing(SqlStore(path)) as store:
        told = store.history(HostName("h2"), limit=1)[0]
        assert re.search(r"put the ledger back from a backup: disk died", told.why)
    assert whole(path).entries == whole(tmp_path / "copy.db").entries + 3
    kept = Path(json.loads(found.stdout)["kept"])
    assert {h.name: h for h in hosts_of(kept)} == later
    left = {p.name for p in tmp_path.iterdir()} - {kept.name, f"{kept.name}-wal", f"{kept.name}-shm"}
    assert left <= {
        "copy.db",
        "fleet.db",
        "fleet.db-wal",
        "fleet.db-shm",
        "fleet.db.lock",
        "copy.db-shm",
        "copy.db-wal",
    }


def test_a_restore_of_a_damaged_backup_changes_nothing(tmp_path: Path) -> None:
    path = ledger_of(a_year(), tmp_path)
    copy(path, tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as database, database:
        database.execute("DELETE FROM journal WHERE id = 7")
    before = path.read_bytes()
    found = run("restore", tmp_path / "copy.db", "--ledger", path, "--reason", "r")
    assert (found.exit_code, len(found.stderr.splitlines())) == (1, 1)
    assert "does not follow" in found.stderr
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_a_restore_refuses_a_ledger_that_a_controller_has(tmp_path: Path) -> None:
    path = ledger_of(a_year(), tmp_path)
    copy(path, tmp_path / "copy.db")
    code = (
        "import sys; from pathlib import Path; from fleetd.stores.file import in_use\n"
        "with in_use(Path(sys.argv[1])): print('mine', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        refused = run("restore", tmp_path / "copy.db", "--ledger", path, "--reason", "r")
        assert (refused.exit_code, "a controller has this ledger: stop it first" in refused.stderr) == (1, True)
        other.communicate()
    assert run("restore", tmp_path / "copy.db", "--ledger", path, "--reason", "r").exit_code == 0


def test_an_older_backup_is_brought_forward_by_its_restore(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as database:
        database.executescript((Path(__file__).parent / "ledger-0001.sql").read_text())
    path = tmp_path / "fleet.db"  # the machine is new: there is none
    found = keeping.restore(old, path, who="ann", reason="r", clock=RealClock())
    assert found.kept is None
    assert whole(path).hosts == found.checked.hosts > 0


def test_check_says_what_is_wrong_and_upgrade_what_is_old(tmp_path: Path) -> None:
    path = ledger_of(a_year(), tmp_path)
    good = run("check", "--ledger", path, "--json", "-")
    assert (good.exit_code, json.loads(good.stdout)["hosts"]) == (0, 3)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM journal WHERE id = 9")
    bad = run("check", "--ledger", path)
    assert (bad.exit_code, "entry 10 of the journal does not follow" in bad.stderr) == (1, True)
    assert run("check", "--ledger", tmp_path / "none.db").exit_code == 2
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as database:
        database.executescript((Path(__file__).parent / "ledger-0001.sql").read_text())
    unread = run("check", "--ledger", old)
    assert (unread.exit_code, "fleetd store upgrade" in unread.stderr) == (3, True), "old is not damaged"
    assert run("upgrade", "--ledger", old).exit_code == 0
    assert run("check", "--ledger", old).exit_code == 0


def test_a_second_controller_on_one_ledger_is_refused_at_its_start(tmp_path: Path) -> None:
    config = tmp_path / "controller.yaml"
    config.write_text(
        f"apiVersion: fleetd/v1\nkind: Controller\nstate_dir: {tmp_path}\n"
        "server: {listen: '127.0.0.1:0', insecure: true}\nexporter: {listen: '127.0.0.1:0'}\n"
    )
    root = Path(__file__).parents[2]
    with in_use(tmp_path / "fleet.db"):  # by the first
        second = subprocess.run(
            [sys.executable, "-m", "fleetd", "controller", "--config", config],
            capture_output=True,
            text=True,
            check=False,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
    assert (second.returncode, second.stderr.splitlines()) == (
        1,
        [f"fleetd: {tmp_path / 'fleet.db'}: a controller has this ledger: stop it first"],
    )
    assert not (tmp_path / "fleet.db").exists()
