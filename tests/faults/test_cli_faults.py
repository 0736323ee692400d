"""`fleetd faults`: exit codes, JSON, mistakes in one line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fleetd.cli import main

FALLEN = "[1.0] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["faults", *arguments], input=text, catch_exceptions=False)


@pytest.mark.parametrize(
    ("text", "exit_code", "action"),
    [
        (FALLEN, 1, "reboot"),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 43, pid=1, Ch 8\n", 0, "none"),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper: New row marked\n", 0, "monitor"),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception\n", 0, "restart_app"),
        ("[1.0] usb 1-1: new device\n", 0, "none"),
        ("NVRM: Xid (PCI:0000:aa:00): abc\n", 3, None),
        ("", 3, None),
    ],
)
def test_exit_codes_and_json_whatever_they_are(tmp_path: Path, text: str, exit_code: int, action: str | None) -> None:
    log = tmp_path / "log"
    log.write_text(text, encoding="utf-8")
    out = tmp_path / "out.json"
    result = run("scan", str(log), "--json", str(out))
    assert result.exit_code == exit_code
    body = json.loads(out.read_text(encoding="utf-8"))
    assert (body["exit_code"], body["action"]) == (exit_code, action)
    assert (body["cannot_judge"] is None) == (exit_code != 3)


def test_the_json_of_a_finding() -> None:
    result = run("scan", "-", "--json", "-", text=FALLEN)
    body = json.loads(result.stdout)
    (finding,) = body["findings"]
    keys = {"code", "alias", "device", "scope", "role", "severity", "action", "at", "why", "lines"}
    assert keys <= set(finding)
    assert (finding["code"], finding["alias"], finding["device"]) == ("nvidia.xid.79", "XID79", "0000:3b:00")
    assert (finding["role"], finding["severity"], finding["action"]) == ("root", "fatal", "reboot")
    assert (finding["scope"], finding["at"], finding["lines"]) == ("gpu", "1.0", [1])
    assert body["unrecognised"] == []


def test_a_tools_output_and_a_log_in_one_paste_are_judged_together() -> None:
    smi = "==============NVSMI LOG==============\nGPU 00000000:3B:00.0\n    Remapped Rows\n        Pending : Yes\n"
    body = json.loads(run("scan", "-", "--json", "-", text=smi + FALLEN).stdout)
    assert {"XID79", "REMAP_PENDING"} <= {finding["alias"] for finding in body["findings"]}
    assert body["action"] == "reboot"


def test_a_journal_export_is_a_log() -> None:
    record = {"MESSAGE": FALLEN[6:].strip(), "_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": "1730000000000000"}
    body = json.loads(run("scan", "-", "--json", "-", text=json.dumps(record) + "\n").stdout)
    assert (body["format"], body["action"]) == ("journal", "reboot")


@pytest.mark.parametrize("wanted", ["kmsg", "dmesg", "journal", "syslog"])
def test_a_named_log_is_not_searched_for_documents(wanted: str) -> None:
    body = json.loads(run("scan", "-", "--format", wanted, "--json", "-", text=FALLEN).stdout)
    assert (body["format"], body["action"]) == (wanted, "reboot")


def test_what_is_not_a_document_of_the_named_format_cannot_be_judged() -> None:
    assert run("scan", "-", "--format", "prometheus", text="hello\n").exit_code == 3


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "site"
    broken.mkdir()
    (broken / "x.yaml").write_text("apiVersion: fleetd/v1\nkind: Policy\n", encoding="utf-8")
    for arguments, exit_code in (
        (("scan", str(tmp_path / "nothing")), 2),
        (("scan", str(tmp_path)), 2),
        (("scan", "-", "--catalogue", str(broken)), 2),
        (("scan", "-", "--json", str(tmp_path / "no" / "where")), 2),
        (("explain", "xid 500"), 2),
    ):
        result = run(*arguments, text=FALLEN)
        assert result.exit_code == exit_code
        assert "Traceback" not in result.output
        assert len(result.stderr.strip().splitlines()) == 1


def test_explain_prints_the_entry(tmp_path: Path) -> None:
    result = run("explain", "xid", "79")
    assert result.exit_code == 0
    for text in ("nvidia.xid.79", "reboot", "RESTART_BM", "on_test(smoke)"):
        assert text in result.output
    body = json.loads(run("explain", "63", "--json", "-").stdout)
    assert (body["code"], body["action"]) == ("nvidia.xid.63", "monitor")
    (tmp_path / "ours.yaml").write_text(
        'apiVersion: fleetd/v1\nkind: FaultCatalogue\nsource: us\nversion: "1"\n'
        "overrides:\n  - {code: nvidia.xid.63, action: drain, reason: we are careful}\n",
        encoding="utf-8",
    )
    assert "we are careful" in run("explain", "63", "--catalogue", str(tmp_path)).output


def test_the_terminal_output_says_what_to_do() -> None:
    result = run("scan", "-", text=FALLEN)
    assert "to do: reboot" in result.output
    assert "XID79" in result.output
