"""Holds, audit, report, swaps and alerts, from the command line over gRPC to a controller and back."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleetd.cli import main
from fleetd.stores.sql import SqlStore
from tests.cli.test_cli_people import Run, _run  # noqa: F401 - the fixture `run`
from tests.stores.ledgers import DAY, Ledgerer, burnin


def test_holds_are_listed_placed_and_released(run: Run) -> None:
    listed = json.loads(run("hold", "list", "--json", "-").stdout)["holds"]
    # h01 is held; for h02 the budget was used up, so that its hold is kept back.
    assert [(h["host"], h["owner"], h["withheld"] is None) for h in listed] == [
        ("h01", "fleetd", True),
        ("h02", "fleetd", False),
    ]
    assert "h02-0" in run("hold", "list").stdout
    assert run("hold", "place", "h01", "--reason", "fan", "--expires-in", "3600").exit_code == 0
    mine = json.loads(run("hold", "list", "--owner", "operator:unauthenticated", "--json", "-").stdout)["holds"]
    assert [(h["host"], h["reason"]) for h in mine] == [("h01", "fan")]
    assert run("hold", "release", "h01", "--reason", "please").exit_code == 1  # fleetd's own still asks for a proof
    assert "probation" in run("hold", "release", "h01", "--reason", "looked", "--override").stdout
    # What a filter leaves out is not said to be nowhere: h02 is still charged.
    assert run("hold", "list", "--host", "h01").stdout == "no hold is on h01\n"
    assert run("hold", "list", "--owner", "operator:bob").stdout == "no hold of operator:bob is on any host\n"
    unknown = run("hold", "list", "--host", "h1")
    assert (unknown.exit_code, "no host 'h1'" in unknown.stderr) == (1, True)


def test_the_audit_trail_says_who_what_why_before_and_after(run: Run) -> None:
    assert run("host", "release", "h01", "--reason", "too early").exit_code == 1
    assert run("host", "release", "h01", "--reason", "looked", "--override").exit_code == 0
    assert run("budget", "rearm", "--reason", "all sound").exit_code == 0
    found = json.loads(run("audit", "--json", "-").stdout)
    assert found["schema"] == "fleetd.audit/1"
    short = [(e["who"], e["event"], e["host"], e["reason"], e["refused"]) for e in found["entries"]]
    assert short == [
        ("unauthenticated", "OperatorReleased", "h01", "too early", True),
        ("unauthenticated", "OperatorReleased", "h01", "looked", False),
        ("unauthenticated", "BudgetRearmed", None, "all sound", False),
    ]
    _, release, rearm = found["entries"]
    assert (release["before"], release["after"]) == ("quarantined; held by fleetd", "probation")
    assert (rearm["before"], rearm["after"]) == ("automation running; 1 budgets tripped", "automation running")
    shown = run("audit").stdout
    assert "refused: not released" in shown
    assert len(shown.splitlines()) == 4
    only = json.loads(run("audit", "--event", "BudgetRearmed", "--last", "1h", "--json", "-").stdout)
    assert [e["event"] for e in only["entries"]] == ["BudgetRearmed"]
    assert run("audit", "--who", "nobody").stdout == "nothing of the kind is in the journal\n"
    every = json.loads(run("audit", "--host", "h02", "--everything", "--json", "-").stdout)["entries"]
    assert [e["event"] for e in every] == ["AgentConnected", "FindingReceived", "Rejudged"]
    assert every[0]["who"] is None
    assert "only the oldest 1 are shown" in run("audit", "--limit", "1").stdout
    assert "are shown" not in run("audit", "--limit", "3").stdout, "these are all"
    cut = json.loads(run("audit", "--limit", "2", "--json", "-").stdout)
    assert (len(cut["entries"]), cut["more"], found["more"]) == (2, True, False)
    wrong = run("audit", "--event", "OperatorRelease")
    assert (wrong.exit_code, "did you mean OperatorReleased?" in wrong.stderr) == (2, True)
    assert run("audit", "--last", "soon").exit_code == 2


def test_swaps_and_repairs_are_operator_events(run: Run) -> None:
    refused = run("host", "repaired", "h01", "--reason", "new GPU")
    assert (refused.exit_code, "not under repair" in refused.stderr) == (1, True)
    assert run("host", "repair", "h01", "--reason", "GPU 0").exit_code == 0
    swapped = run("host", "swapped", "h01", "h01-0", "GPU-new", "--reason", "RMA 17", "--json", "-")
    assert (swapped.exit_code, json.loads(swapped.stdout)["state"]) == (0, "repairing")
    done = json.loads(run("host", "repaired", "h01", "--reason", "GPU 0 exchanged", "--json", "-").stdout)
    assert (done["state"], done["pending"]["level"]) == ("qualifying", "smoke")
    for old, new, said in (
        ("GPU-x", "GPU-x", "cannot replace itself"),
        ("GPU-x", "GPU-y", "was ever seen in this host"),
        ("h01-0", "h02-0", "is in h02"),
    ):
        wrong = run("host", "swapped", "h01", old, new, "--reason", "r")
        assert (wrong.exit_code, said in wrong.stderr, len(wrong.stderr.splitlines())) == (1, True, 1)
    found = json.loads(run("report", "--last", "1d", "--json", "-").stdout)["whole"]["sums"]
    assert (found["swaps"], found["repairs"]) == (1, 1)
    assert "swapped gpu h01-0 for GPU-new: RMA 17" in run("host", "explain", "h01").stdout


def test_an_incident_that_is_not_open_cannot_be_shown(run: Run) -> None:
    gone = run("incident", "show", "storm/x/1")
    assert (gone.exit_code, "no incident `storm/x/1` is open" in gone.stderr) == (1, True)


# ── alerts ──────────────────────────────────────────────────────────────────────────────────────────────────────────

BODY: dict[str, Any] = {
    "version": "4",
    "status": "firing",
    "alerts": [
        {
            "status": "firing",
            "labels": {
                "alertname": "GpuFanStuck",
                "severity": "critical",
                "instance": "h02:9400",
                "UUID": "h02-0",
            },
            "annotations": {"summary": "fan of GPU 0 does not turn"},
            "startsAt": "2026-11-30T10:00:00.123456789Z",
            "fingerprint": "c0ffee",
        },
        {"status": "resolved", "labels": {"alertname": "Old", "host": "h01"}, "startsAt": "2026-11-29T10:00:00Z"},
    ],
}


def test_an_alert_becomes_a_finding_once(run: Run, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps(BODY))
    first = json.loads(run("hook", "alertmanager", str(body), "--json", "-").stdout)
    assert (first["firing"], first["resolved"], first["taken"], first["refused"]) == (1, 1, 1, [])
    again = json.loads(run("hook", "alertmanager", str(body), "--json", "-").stdout)
    assert (again["firing"], again["taken"]) == (1, 0)
    shown = json.loads(run("host", "show", "h02", "--json", "-").stdout)
    (found,) = [f for f in shown["findings"] if f.get("code")]
    assert (found["code"], found["gpu"], found["fault_class"]) == ("alert.gpufanstuck", "h02-0", "none")
    assert found["why"] == "alert GpuFanStuck: fan of GPU 0 does not turn"
    assert shown["host"]["state"] == "suspect"  # as it was: an alert by itself takes no host out


def test_what_cannot_be_taken_is_said(run: Run, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    firing = BODY["alerts"][0]
    unknown = {**firing, "labels": {"alertname": "X", "host": "nowhere"}}
    hostless = {**firing, "labels": {"alertname": "Y"}}
    body.write_text(json.dumps({"alerts": [firing, unknown, hostless, "what"]}))
    some = run("hook", "alertmanager", str(body))
    assert some.exit_code == 1
    assert "1 alerts fire" not in some.stdout
    assert "X: no host 'nowhere' is known" in some.stdout
    assert "Y: no label says which host" in some.stdout
    assert "alert 4: no object with `labels`" in some.stdout


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"alerts": 1}', "nul", "[" * 100_000, '{"alerts": ' + "[1]" * 9])
def test_a_body_that_is_none_is_one_line(text: str, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(text)
    wrong = CliRunner().invoke(main, ["hook", "alertmanager", str(body), "--insecure"])
    assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (3, 1)
    assert "cannot be read" in wrong.stderr


# ── the report ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Page(HTMLParser):
    """Collects what the page loads from elsewhere, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "data"}]


def test_the_report_is_a_table_json_and_one_page(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    shown = run("report", "--last", "2d", "--by", "vendor", "--html", str(page))
    assert shown.exit_code == 0, shown.output
    assert "the ledger begins at" in shown.stdout
    assert re.search(r"^vendor +host days +available", shown.stdout, re.MULTILINE)
    assert re.search(r"^all ", shown.stdout, re.MULTILINE)
    html = page.read_text()
    parsed = Page(html)
    assert parsed.loads == []
    assert parsed.tags.count("svg") >= 2
    assert "script" not in parsed.tags
    assert "@import" not in html
    found = json.loads(run("report", "--json", "-").stdout)
    assert found["schema"] == "fleetd.report/1"
    assert found["whole"]["sums"]["quarantines"] == 1
    assert set(found["by"]) == {"vendor", "sku", "pool"}
    for words, said in (("0d", "no window"), ("99999d", "no window"), ("x", "no duration")):
        wrong = run("report", "--last", words)
        assert (wrong.exit_code, said in wrong.stderr) == (2, True)
    assert run("report", "--html", str(tmp_path / "no" / "x.html")).exit_code == 2


def test_the_report_of_a_ledger_needs_no_controller(tmp_path: Path) -> None:
    made = Ledgerer()
    start_s = 20_000 * DAY
    made.join(start_s, ["<b>h1</b>", "h2"])
    made.at(start_s + DAY, burnin("h2", "bad", start_s + DAY - 20))
    store = SqlStore(tmp_path / "fleet.db")
    store.commit(made.entries)
    store.close()
    words = ["report", "--ledger", str(tmp_path / "fleet.db"), "--last", "4000d"]
    found = json.loads(CliRunner().invoke(main, [*words, "--json", "-"]).stdout)
    assert found["whole"]["sums"]["failures"] == 1
    assert found["whole"]["sums"]["detect_seconds"] == [20.0]
    assert found["false_quarantine_objective_met"] is True
    missing = CliRunner().invoke(main, ["report", "--ledger", str(tmp_path / "none.db")])
    assert (missing.exit_code, len(missing.stderr.splitlines())) == (2, 1)
    (tmp_path / "text.db").write_text("no ledger" * 100)
    damaged = CliRunner().invoke(main, ["report", "--ledger", str(tmp_path / "text.db")])
    assert (damaged.exit_code, len(damaged.stderr.splitlines())) == (3, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--objective", "nan"), "--objective nan is no number"),
        (("--objective", "inf"), "--objective inf is no number"),
        (("--html", "-"), "--html wants the path of a file"),
        (("--last", "0d"), "--last 0d is no window"),
    ],
)
def test_a_report_is_not_made_of_what_is_none(words: tuple[str, str], said: str) -> None:
    found = CliRunner().invoke(main, ["report", "--ledger", "none.db", *words])
    assert (found.exit_code, len(found.stderr.splitlines())) == (2, 1)
    assert said in found.stderr


@pytest.mark.parametrize("noun", ["audit", "report", "hold", "hook"])
def test_what_asks_a_controller_needs_no_database(noun: str) -> None:
    code = f"import sys, fleetd.cli.{noun}; print([m for m in ('sqlalchemy', 'alembic', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
