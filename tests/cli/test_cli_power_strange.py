"""`fleetd power status` and `restore` when whoever answers is of another version, refuses, or is somebody else."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fleetd.agent.status_document import SCHEMA
from fleetd.cli.power_guard import restore_command, status_command

ANSWER_S = 10.0


class Sayer:
    """Says one thing to whoever connects."""

    def __init__(self, path: Path, kind: int, words: bytes) -> None:
        self._listener, self._kind, self._words = socket.socket(socket.AF_UNIX, kind), kind, words
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            channel, _ = self._listener.accept()
            with channel:
                channel.settimeout(ANSWER_S)
                if self._kind == socket.SOCK_SEQPACKET and channel.recv(1 << 16) == b"end":
                    return
                channel.send(self._words)

    def end(self) -> None:
        """Only of a guard; an agent's thread ends with the tests."""
        with socket.socket(socket.AF_UNIX, self._kind) as channel:
            channel.connect(self._listener.getsockname())
            channel.send(b"end")
        self._thread.join(ANSWER_S)
        self._listener.close()


def run(command: str, folder: Path) -> Result:
    words = ["--guard", str(folder / "guard")]
    words += ["--socket", str(folder / "agent")] if command == "status" else ["--state", str(folder / "state")]
    return CliRunner().invoke(status_command if command == "status" else restore_command, words)


@pytest.fixture(params=["status", "restore"])
def command(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def guard_says() -> Iterator[list[Sayer]]:
    sayers: list[Sayer] = []
    yield sayers
    for one in sayers:
        one.end()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (b"[]", "are they of one version?"),
        (b"{}", "are they of one version?"),
        (b"7", "are they of one version?"),
        (b"\xff\xfe", "does not answer"),
        (b"[" * 50_000, "does not answer"),
        (b'{"ok": false, "why": "user 7 may not use the power guard"}', "user 7 may not use the power guard"),
        (b'{"ok": false}', "gives no reason"),
        (b'{"ok": true, "why": "", "errors": 5}', "are they of one version?"),
    ],
)
def test_a_strange_guard_is_one_line(
    tmp_path: Path, guard_says: list[Sayer], command: str, words: bytes, says: str
) -> None:
    guard_says.append(Sayer(tmp_path / "guard", socket.SOCK_SEQPACKET, words))
    done = run(command, tmp_path)
    assert done.exit_code == 3
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_guard_of_another_version_hides_nothing_of_the_governor(tmp_path: Path, guard_says: list[Sayer]) -> None:
    power = {"allowed": "safe", "envelope": "h200", "set_point": "", "gpus": []}
    body = json.dumps({"schema": SCHEMA, "power": power}).encode() + b"\n"
    Sayer(tmp_path / "agent", socket.SOCK_STREAM, body)
    guard_says.append(Sayer(tmp_path / "guard", socket.SOCK_SEQPACKET, b'{"ok": true, "why": ""}'))
    done = run("status", tmp_path)
    assert done.exit_code == 0
    assert "missing required field `pid`" in done.stdout
    assert "governor: at most safe, envelope h200" in done.stdout


@pytest.mark.parametrize("power", [[], {}, "boost", {"gpus": [{"gpu": "x"}]}])
def test_a_strange_agent_is_one_line(tmp_path: Path, power: object) -> None:
    Sayer(tmp_path / "agent", socket.SOCK_STREAM, json.dumps({"schema": SCHEMA, "power": power}).encode() + b"\n")
    done = run("status", tmp_path)
    assert done.exit_code == 3
    assert "are they of one version?" in done.stderr
    assert "no power guard at" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_where_nothing_was_declared_nothing_is_said_to_be_restored(tmp_path: Path, guard_says: list[Sayer]) -> None:
    words = b'{"ok": true, "why": "no GPU was ever declared", "errors": {}}'
    guard_says.append(Sayer(tmp_path / "guard", socket.SOCK_SEQPACKET, words))
    done = run("restore", tmp_path)
    assert (done.exit_code, done.stdout) == (0, "nothing to restore: no GPU was ever declared\n")
