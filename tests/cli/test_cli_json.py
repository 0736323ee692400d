"""`--json` of every noun: one object with a `schema` of its own, in a file that is whole or as it was before."""

import ast
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fleetd.cli import jsonout, main
from fleetd.cli.failure import Failure
from fleetd.cli.jsonout import write_json
from fleetd.config.example import example
from tests.cli.test_cli_people import Run, _run  # noqa: F401 - the fixture `run`

FLEET, HOST, LEDGER = "fleetd.fleet/1", "fleetd.host/1", "fleetd.ledger/1"
SCHEMAS = {
    "agent status": "fleetd.agent.status/1",
    "audit": "fleetd.audit/1",
    "automation resume": FLEET,
    "automation show": FLEET,
    "automation stop": FLEET,
    "budget rearm": FLEET,
    "budget show": FLEET,
    "bundle": "fleetd.bundle/1",
    "check": "fleetd.agent.status/1",
    "config check": "fleetd.config.check/1",
    "faults explain": "fleetd.faults.entry/1",
    "faults follow": "fleetd.faults.follow/1",
    "faults scan": "fleetd.faults.scan/1",
    "hold list": "fleetd.holds/1",
    "hold place": HOST,
    "hold release": HOST,
    "hook alertmanager": "fleetd.alerts/1",
    "host burnin": HOST,
    "host explain": "fleetd.host.explain/1",
    "host list": "fleetd.hosts/1",
    "host quarantine": HOST,
    "host release": HOST,
    "host repair": HOST,
    "host repaired": HOST,
    "host retire": HOST,
    "host show": "fleetd.host.show/1",
    "host swapped": HOST,
    "incident close": FLEET,
    "incident list": FLEET,
    "incident show": "fleetd.incident/1",
    "job ended": HOST,
    "pki log": "fleetd.pki.log/1",
    "policy check": "fleetd.policy.check/1",
    "policy test": "fleetd.policy.test/1",
    "power bench": "fleetd.power.bench/1",
    "power check": "fleetd.power.check/1",
    "power simulate": "fleetd.power.simulate/1",
    "power status": "fleetd.power.status/1",
    "power tree": "fleetd.power.tree/1",
    "power tune": "fleetd.power.tune/1",
    "rehearse": "fleetd.rehearsal/1",
    "report": "fleetd.report/1",
    "store backup": LEDGER,
    "store check": LEDGER,
    "store prune": "fleetd.prune/1",
    "store restore": LEDGER,
    "store restored": LEDGER,
    "token new": "fleetd.token/1",
}
"""Command → what it writes. A command that is added stands here, with a schema that no other meaning has."""
SOURCES = Path(jsonout.__file__).parents[1]
LINES = {"faults_follow.py", "demo_world.py", "power_bench.py", "power_tune.py"}
"""They tell what happens as it happens, an object a line."""
ASKS = {"power_guard.py"}
"""It speaks JSON with the power guard."""


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))
    elif any("--json" in parameter.opts for parameter in command.params):
        yield " ".join(path), command


def test_every_command_with_json_has_its_schema() -> None:
    assert {name for name, _ in commands(main)} == set(SCHEMAS)
    texts = "\n".join(file.read_text() for file in sorted(SOURCES.rglob("*.py")))
    for name, schema in SCHEMAS.items():
        assert re.fullmatch(r"fleetd(\.[a-z]+){1,3}/[1-9]", schema)
        assert f'"{schema}"' in texts, f"{name}: nothing writes {schema}"


def test_one_place_writes_them() -> None:
    calls = {
        file.name
        for file in (SOURCES / "cli").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"dumps", "dump"} and ast.unparse(node.value) == "json"
    }
    assert calls == {"jsonout.py"} | LINES | ASKS


OFFLINE = (
    ("config check", "{config}"),
    ("faults explain", "63"),
    ("faults scan", "{log}"),
    ("policy check", "{policies}/default.yaml"),
    ("policy test", "{policies}/tests"),
    ("power check", "mi300x"),
    ("power check", "{none}"),
    ("check", "--socket", "{none}"),
    ("token new", "alice", "--role", "viewer"),
)


@pytest.mark.parametrize("words", OFFLINE, ids=" ".join)
def test_what_needs_nobody_says_its_schema_first(words: tuple[str, ...], tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("config", "log", "none")} | {
        "policies": Path(__file__).parents[2] / "policies"
    }
    places["config"].write_text(example("Agent"))
    places["log"].write_text("NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.\n")
    out = tmp_path / "out.json"
    result = CliRunner().invoke(main, [*words[0].split(), *(w.format(**places) for w in words[1:]), "--json", str(out)])
    assert out.exists(), result.output
    assert first(out.read_text()) == ("schema", SCHEMAS[words[0]])


def first(text: str) -> tuple[str, object]:
    body = json.loads(text)
    assert isinstance(body, dict)
    return next(iter(body.items()))


def test_what_asks_a_controller_says_its_schema_first(run: Run) -> None:
    why = ("--reason", "x")
    for words in (
        ("host list",),
        ("host show", "h01"),
        ("host explain", "h01"),
        ("hold list",),
        ("audit",),
        ("report",),
        ("budget show",),
        ("incident list",),
        ("automation show",),
        ("automation stop", *why),
        ("automation resume", *why),
        ("budget rearm", *why),
        ("job ended", "h01", "17", "--failed", "--ran", "9"),
        ("hold place", "h01", *why),
        ("hold release", "h01", *why, "--override"),
        ("host quarantine", "h01", *why),
        ("host burnin", "h01", *why),
        ("host repair", "h01", *why),
        ("host repaired", "h01", *why),
        ("host retire", "h01", *why),
        ("host release", "h01", *why, "--override"),
    ):
        result = run(*words[0].split(), *words[1:], "--json", "-")
        assert result.stdout, f"{words}: {result.output}"
        assert first(result.stdout) == ("schema", SCHEMAS[words[0]]), words


# ── the file ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_schema_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        write_json(str(tmp_path / "out"), {"hosts": []})
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_whole_and_keeps_its_mode_and_its_links(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "latest.json"
    target.write_text("before")
    target.chmod(0o604)
    link.symlink_to(target)
    with target.open() as reader:
        assert write_json(str(link), {"schema": "s/1", "n": 1}) is False
        assert reader.read() == "before", "whoever has it open reads what it was"
    assert json.loads(target.read_text()) == {"schema": "s/1", "n": 1}
    assert stat.S_IMODE(target.stat().st_mode) == 0o604
    assert link.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"real.json", "latest.json"}


def test_a_link_to_itself_is_refused_in_one_line(tmp_path: Path) -> None:
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    with pytest.raises(Failure, match="symbolic links"):
        write_json(str(circle), {"schema": "x/1"})
    assert list(tmp_path.iterdir()) == [circle]


def test_a_new_file_has_the_mode_of_any_other_new_file(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write_json(str(tmp_path / "out"), {"schema": "s/1"})
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.json"
    target.write_text("before")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Failure, match="No space left on device; give --json a path that can be written"):
        write_json(str(target), {"schema": "s/1"})
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"], "nothing half-written is left"


def test_a_pipe_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_json(str(pipe), {"schema": "s/1"})
        assert json.loads(os.read(reader, 1000)) == {"schema": "s/1"}
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
