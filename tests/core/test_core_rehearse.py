"""A journal under the policy it was written with differs in nothing; under another, in what that decides otherwise."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetd.cli.rehearse import command
from fleetd.core.chain import BrokenJournal, unbroken
from fleetd.core.newcomer import NUMBERS_BEGIN_S
from fleetd.core.policy import Policy, Stage
from fleetd.core.rehearse import rehearse
from fleetd.core.replay import Replay
from fleetd.model.event import (
    AnyEvent,
    AutomationStopped,
    BudgetRearmed,
    BurninAccepted,
    OperatorBurnin,
    OperatorQuarantined,
    OperatorReleased,
    SchedulerDiffers,
    TimePassed,
)
from fleetd.model.finding import FaultClass, Severity, Verdict
from fleetd.model.fleet import FleetRecord, Stopped
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName, OrderId
from fleetd.model.journal import JournalEntry
from fleetd.ports import StoreError
from fleetd.stores.sql import SqlStore
from tests.core.make_core import BAD, H1, POLICY, burnt, fault, hello, staged, with_rules

PERSISTENT = FaultClass.CHIP_PERSISTENT


class Scribe:
    """Plays events and keeps the journal, as a controller does."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.replay = Replay(policy)
        self.entries: list[JournalEntry] = []

    def send(self, at_s: float, event: AnyEvent) -> None:
        for taken in self.replay.play(at_s, event):
            step = taken.step
            self.entries.append(
                JournalEntry(
                    at_s=at_s,
                    event=taken.event,
                    host=step.state,
                    orders=step.orders,
                    withheld=step.withheld,
                    refused=step.refused,
                    fleet=step.fleet,
                    why=step.why,
                    progress=None,
                )
            )

    def qualify(self, name: str, at_s: float, first: int) -> None:
        host = HostName(name)
        self.send(at_s, hello(name, first=first))
        pending = self.replay.hosts[host].pending
        assert pending is not None
        self.send(at_s + 1, BurninAccepted(host=host, order_id=pending.order_id))
        self.send(at_s + 9, burnt(Verdict.PASS, order=pending.order_id, id=f"{name}/p", host=name))


def a_day() -> list[JournalEntry]:
    scribe = Scribe()
    for n in range(3):
        scribe.qualify(f"h{n + 1}", 100.0 * n, 10 * n)
    scribe.send(1000, burnt(Verdict.FAIL, ("G0", PERSISTENT), order=None, id="f1"))
    scribe.send(1100, fault(FaultClass.MEMORY, Severity.ERROR, id="x", host="h2", gpu="G10"))
    scribe.send(1200, burnt(Verdict.FAIL, ("G10", PERSISTENT), order=None, id="f2", host="h2"))
    scribe.send(1300, TimePassed(host=HostName("h2")))
    scribe.send(1400, OperatorReleased(host=H1, who="ann", reason="cable", override=True))
    scribe.send(1500, BudgetRearmed(who="operator:ann", reason="looked"))
    scribe.send(1600, OperatorBurnin(host=H1, who="ann", reason="sure?", level=None))
    pending = scribe.replay.hosts[H1].pending
    assert pending is not None
    scribe.send(1700, burnt(Verdict.PASS, order=pending.order_id, id="p9"))
    return scribe.entries


def test_the_same_policy_differs_in_nothing() -> None:
    found = rehearse(a_day(), POLICY, limit=9)
    assert (found.differences_total, found.hosts, found.burnins_unknown) == (0, (), 0)
    assert found.orders_were == found.orders_would
    assert found.orders_were["quarantine"] == 2


def test_another_policy_differs_in_what_it_decides() -> None:
    rules = [staged(rule, Stage.OBSERVE) for rule in POLICY.rules]
    found = rehearse(a_day(), with_rules(*rules), limit=2)
    assert (len(found.differences), found.differences_total > 2) == (2, True)
    first = found.differences[0]
    assert (first.at_s, first.host, first.was.orders, first.would.orders) == (1000, "h1", ("quarantine",), ())
    assert first.would.withheld == ("quarantine",)
    assert "quarantine" not in found.orders_would
    assert found.hosts == (("h2", Lifecycle.QUARANTINED, Lifecycle.SUSPECT),)


def test_a_budget_of_0_withholds_what_was_ordered_and_lets_releases_through() -> None:
    nothing = replace(POLICY.budgets.quarantines, max_ratio=0.0, at_least=0)
    found = rehearse(a_day(), replace(POLICY, budgets=replace(POLICY.budgets, quarantines=nothing)), limit=9)
    assert "quarantine" not in found.orders_would
    assert found.orders_would["notify"] > found.orders_were.get("notify", 0)
    assert found.differences[0].would.withheld == ("quarantine",)


def test_a_burnin_of_another_level_has_no_end_in_the_journal() -> None:
    other = replace(POLICY, qualify=replace(POLICY.qualify, level="qualify"))
    found = rehearse(a_day(), other, limit=0)
    assert found.burnins_unknown > 0
    assert ("h3", Lifecycle.HEALTHY, Lifecycle.QUALIFYING) in found.hosts


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────

ONE_RULE = """\
apiVersion: fleetd/v1
kind: Policy
qualify: {level: smoke, timeout_seconds: 100, attempts: 3}
proofs: {}
budgets:
  quarantines: {max_ratio: 0.5, at_least: 1, max_in_window: 10, window_seconds: 1000}
rules: []
"""


def test_the_command_reads_a_ledger_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    store = SqlStore(path)
    store.commit(a_day())
    store.close()
    policy = tmp_path / "p.yaml"
    policy.write_text(ONE_RULE)
    before = path.read_bytes()
    run = CliRunner().invoke(command, ["--policy", str(policy), "--journal", str(path), "--json", str(tmp_path / "o")])
    assert run.exit_code == 0, run.output
    assert "would have led to something else" in run.stdout
    assert "h1 on FindingReceived" in run.stdout
    assert '"schema": "fleetd.rehearsal/1"' in (tmp_path / "o").read_text()
    assert path.read_bytes() == before


@pytest.mark.parametrize(("journal", "words"), [("none.db", "unable to open"), ("text.db", "not a database")])
def test_what_is_no_ledger_is_one_line_and_stays_as_it_is(tmp_path: Path, journal: str, words: str) -> None:
    (tmp_path / "text.db").write_bytes(b"no database, but long enough to be looked at" * 99)
    (tmp_path / "p.yaml").write_text(ONE_RULE)
    run = CliRunner().invoke(command, ["--policy", str(tmp_path / "p.yaml"), "--journal", str(tmp_path / journal)])
    assert (run.exit_code, len(run.stderr.splitlines())) == (2, 1)
    assert words in run.stderr
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("body", ["'{'", "'null'", "cast(x'7b22ff1b5b0a' as text)"])
def test_a_damaged_ledger_is_one_short_line_that_names_it(tmp_path: Path, body: str) -> None:
    path = tmp_path / "fleet.db"
    store = SqlStore(path)
    store.commit(a_day())
    store.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE journal SET body = {body} WHERE id = 2")  # noqa: S608 - a constant of this test
    (tmp_path / "p.yaml").write_text(ONE_RULE)
    run = CliRunner().invoke(command, ["--policy", str(tmp_path / "p.yaml"), "--journal", str(path)])
    assert (run.exit_code, len(run.stderr.splitlines())) == (3, 1)
    assert run.stderr.startswith(f"fleetd: {path}: ")
    assert run.stderr.rstrip("\n").isprintable()


SWAPPED = (
    "UPDATE journal SET body = CASE id WHEN 2 THEN (SELECT body FROM journal WHERE id = 3) "
    "ELSE (SELECT body FROM journal WHERE id = 2) END WHERE id IN (2, 3)"
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DELETE FROM journal WHERE id = 4", "does not follow from the one before it"),
        ("DELETE FROM journal WHERE id = 1", "entry 2 of the journal does not follow"),
        ("DELETE FROM journal WHERE id = (SELECT max(id) FROM journal)", "the journal ends too early"),
        ("DELETE FROM journal", "the journal ends too early: after entry 0"),
        (SWAPPED, "entry 2 of the journal does not follow"),
        ("UPDATE journal SET body = replace(body, 'smoke', 'sm0ke') WHERE id = 2", "entry 3 of the journal"),
        ("UPDATE journal SET body = '{' || substr(body, 45) WHERE id = 3", "entry 3 of the journal"),
    ],
)
def test_a_journal_with_entries_missing_or_out_of_order_is_not_judged(tmp_path: Path, change: str, words: str) -> None:
    path = tmp_path / "fleet.db"
    store = SqlStore(path)
    store.commit(a_day()[:5])
    store.commit(a_day()[5:])
    store.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(change)
    (tmp_path / "p.yaml").write_text(ONE_RULE)
    run = CliRunner().invoke(command, ["--policy", str(tmp_path / "p.yaml"), "--journal", str(path)])
    assert (run.exit_code, run.stdout, len(run.stderr.splitlines())) == (3, "", 1)
    assert run.stderr.startswith(f"fleetd: {path}: ")
    assert words in run.stderr
    assert "rehearse an older copy" in run.stderr


def test_a_gap_is_seen_in_a_store_that_does_not_look() -> None:
    rows = list(enumerate(a_day(), start=1))
    assert list(unbroken(rows, (), FleetRecord())) == a_day()
    with pytest.raises(BrokenJournal, match="entry 3 is missing before entry 4"):
        list(unbroken([*rows[:2], *rows[3:]], (), FleetRecord()))


def test_a_journal_that_lost_the_end_of_it_about_the_fleet_is_not_judged(tmp_path: Path) -> None:
    """No host changed by it; what the policy is asked about did: from there on automation was stopped."""
    stopped = FleetRecord(stopped=Stopped(who="ann", reason="r", at_s=9e3))
    event = AutomationStopped(who="ann", reason="r")
    last = replace(a_day()[-1], event=event, host=None, orders=(), withheld=(), fleet=stopped, progress=None)
    with closing(SqlStore(tmp_path / "fleet.db")) as store:
        store.commit([*a_day(), last])
        rows, image = store.journal(after=0, limit=99), store.load()
    assert len(list(unbroken(rows, image.hosts, image.fleet))) == len(a_day()) + 1
    with pytest.raises(BrokenJournal, match="the fleet is not as the ledger has it"):
        list(unbroken(rows[:-1], image.hosts, image.fleet))


def test_a_journal_of_a_version_that_chained_nothing_can_still_be_rehearsed(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    with closing(SqlStore(path)) as store:
        store.commit(a_day()[:5])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE journal SET body = '{' || substr(body, 45)")
        assert not database.execute("SELECT count(*) FROM journal WHERE body LIKE '%chain\"%'").fetchone()[0]
    with closing(SqlStore(path)) as store:
        store.commit(a_day()[5:])
        assert [entry for _, entry in store.journal(after=0, limit=99)] == a_day()
        assert [n for n, _ in store.journal(after=4, limit=3)] == [5, 6, 7]


def test_a_page_of_the_file_that_is_damaged_is_seen_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    with closing(SqlStore(path)) as store:
        store.commit(a_day() * 20)
    content = bytearray(path.read_bytes())
    for page in range(12, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)
    for read_only in (True, False):
        with pytest.raises(StoreError) as caught:
            SqlStore(path, read_only=read_only)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)


def test_a_policy_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    run = CliRunner().invoke(command, ["--policy", str(tmp_path / "no.yaml"), "--journal", str(tmp_path / "x")])
    assert (run.exit_code, run.stderr) == (2, f"fleetd: {tmp_path / 'no.yaml'}: there is no such file\n")


def test_bad_is_a_rule_of_this_policy() -> None:
    assert BAD in POLICY.rules


def test_an_order_that_closed_a_host_is_known_to_another_policy_by_whatever_number() -> None:
    scribe = Scribe()
    scribe.send(0.0, hello())
    scribe.send(1.0, OperatorQuarantined(host=H1, who="ann", reason="fan"))
    mark = scribe.replay.hosts[H1].closings[-1]
    scribe.send(2.0, OperatorReleased(host=H1, who="ann", reason="fine", override=True))
    scribe.send(3.0, SchedulerDiffers(host=H1, closed=True, order_id=mark))  # it was not opened
    scribe.send(4.0, SchedulerDiffers(host=H1, closed=True, order_id=OrderId("h1/99/quarantine"), why="earlier"))
    assert rehearse(scribe.entries, POLICY, limit=9).differences == ()
    other = replace(POLICY, qualify=replace(POLICY.qualify, attempts=5))
    assert rehearse(scribe.entries, other, limit=9).differences == ()
    numbered_otherwise = [replace(e, at_s=e.at_s + NUMBERS_BEGIN_S + 6e6) for e in scribe.entries]
    assert rehearse(numbered_otherwise, POLICY, limit=9).differences == ()
