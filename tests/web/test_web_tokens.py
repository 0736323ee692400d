"""The file of tokens: what is read of it, and when."""

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetd.cli.token import command
from fleetd.ports import Peer
from fleetd.web.limits import PEERS_MAX, Buckets
from fleetd.web.sessions import SESSIONS_MAX, Sessions
from fleetd.web.tokens import TokenFile, WebError, digest_of, new_token, read_tokens
from tests.web.conftest import NOW_S, StillClock

SHA = "0" * 64


def test_a_token_is_let_in_by_its_line_alone() -> None:
    token, line = new_token("alice", "operator", entropy="s3cret", expires_at_s=1_900_000_000.0)
    assert token.removeprefix("fleetd_") == "s3cret"
    assert "s3cret" not in line
    (found,) = read_tokens(f"# people\n\n{line}   # of the day shift\n").values()
    assert found.peer == Peer(name="alice", role="operator")
    assert found.digest == digest_of(token)
    assert found.expires_at_s == 1_900_000_000.0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("alice operator", "NAME ROLE SHA256"),
        (f"alice operator {SHA} 2030-01-01 more", "NAME ROLE SHA256"),
        (f"al/ice operator {SHA}", "is no name"),
        (f"{'a' * 300} operator {SHA}", "is no name"),
        (f"alice admin {SHA}", "is no role"),
        (f"alice agent {SHA}", "is no role"),
        (f"alice operator {SHA[1:]}", "no SHA-256"),
        (f"alice operator {SHA[1:]}G", "no SHA-256"),
        (f"alice operator {SHA} soon", "is no time"),
        (f"alice operator {SHA}\nbob viewer {SHA}", "2: this token stands there already, for alice"),
    ],
)
def test_a_line_that_is_wrong_is_told_with_its_number(line: str, said: str) -> None:
    with pytest.raises(WebError, match=f"^[12]: .*{re.escape(said.removeprefix('2: '))}"):
        read_tokens(line)


def test_an_expiry_is_a_moment_in_utc(tmp_path: Path) -> None:
    token, line = new_token("alice", "viewer", entropy="s")
    clock = StillClock()
    path = tmp_path / "tokens"
    path.write_text(f"{line} 2027-01-15T08:00:10\n")  # NOW_S is 2027-01-15T08:00:00Z
    tokens = TokenFile(path, clock=clock)
    assert tokens.peer(digest_of(token)) == Peer(name="alice", role="viewer")
    clock.pass_s(9.5)
    assert tokens.peer(digest_of(token)) is not None
    clock.pass_s(0.5)
    assert tokens.peer(digest_of(token)) is None


def test_a_broken_file_changes_nothing_and_a_mended_one_counts(tmp_path: Path) -> None:
    token, line = new_token("alice", "viewer", entropy="s")
    other, other_line = new_token("bob", "operator", entropy="t")
    clock = StillClock()
    path = tmp_path / "tokens"
    path.write_text(line)
    tokens = TokenFile(path, clock=clock)
    for broken in ("nonsense", "\udcff"):
        path.write_bytes(broken.encode("utf-8", "surrogateescape"))
        clock.pass_s(1)
        assert tokens.peer(digest_of(token)) is not None
    path.unlink()
    clock.pass_s(1)
    assert tokens.peer(digest_of(token)) is not None
    path.write_text(other_line)
    assert tokens.peer(digest_of(other)) is None  # it is not looked at more often than once a second
    clock.pass_s(1)
    assert tokens.peer(digest_of(other)) == Peer(name="bob", role="operator")
    assert tokens.peer(digest_of(token)) is None


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "tokens"
    path.write_text(new_token("alice", "viewer", entropy="s")[1])
    path.chmod(mode)
    with pytest.raises(WebError, match="chmod go-w"):
        TokenFile(path, clock=StillClock())


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WebError, match="cannot be read: No such file"):
        TokenFile(tmp_path / "none", clock=StillClock())
    (tmp_path / "large").write_text("#" * (1 << 21))
    with pytest.raises(WebError, match="more than"):
        TokenFile(tmp_path / "large", clock=StillClock())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WebError, match="no regular file"):
        TokenFile(tmp_path / "pipe", clock=StillClock())


def test_sessions_are_bounded_and_the_oldest_goes(tmp_path: Path) -> None:
    token, line = new_token("alice", "viewer", entropy="s")
    (tmp_path / "tokens").write_text(line)
    clock = StillClock()
    counted = iter(range(10 * SESSIONS_MAX))
    sessions = Sessions(
        TokenFile(tmp_path / "tokens", clock=clock), clock=clock, secret=lambda: f"secret{next(counted)}", session_s=9.0
    )
    cookies = [sessions.open(token)[0] for _ in range(SESSIONS_MAX + 2)]
    assert [sessions.find(cookie) is None for cookie in cookies[:4]] == [True, True, False, False]
    assert sessions.find(cookies[-1]) is not None
    assert sessions.owner("fleetd_no") is None


def test_buckets_fill_with_time_and_remember_so_many_peers() -> None:
    clock = StillClock()
    buckets = Buckets(per_minute=60, at_once=2, clock=clock)
    assert [buckets.wait_s("a"), buckets.wait_s("a")] == [0, 0]
    assert buckets.wait_s("a") == pytest.approx(1.0)
    assert buckets.wait_s("b") == 0
    clock.pass_s(1.5)
    assert buckets.wait_s("a") == 0
    assert buckets.wait_s("a") == pytest.approx(0.5)
    for number in range(2 * PEERS_MAX):
        buckets.wait_s(f"peer{number}")
    assert len(buckets._left) == PEERS_MAX


def test_the_command_shows_a_token_once_and_its_line() -> None:
    shown = CliRunner().invoke(command, ["new", "alice", "--role", "viewer", "--expires-in", "90d", "--json", "-"])
    assert shown.exit_code == 0
    token = re.search(r'"token": "(fleetd_[A-Za-z0-9_-]{43})"', shown.output)
    line = re.search(r'"line": "(.*)"', shown.output)
    assert token is not None
    assert line is not None
    assert read_tokens(line[1])[digest_of(token[1])].peer == Peer(name="alice", role="viewer")
    assert NOW_S > 0


@pytest.mark.parametrize(
    "words", [["new", "a b", "--role", "viewer"], ["new", "a", "--role", "viewer", "--expires-in", "999999w"]]
)
def test_the_command_refuses_in_one_line(words: list[str]) -> None:
    shown = CliRunner().invoke(command, words)
    assert shown.exit_code == 2
    assert shown.output.startswith("fleetd: token new: ")
    assert shown.output.count("\n") == 1
