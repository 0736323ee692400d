"""The log judged while it grows: told once, told again when it changes, never lost over a restart."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetd.cli.faults_follow import SCHEMA, _Teller, follow
from fleetd.compose.follow import Blind, Follower, Heartbeat, Told
from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.live import WINDOW_MAX, WINDOW_S, LiveScan
from fleetd.model.ids import BootId
from fleetd.model.logline import Cursor, LogHealth, LogLine

XID79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
XID13 = "NVRM: Xid (PCI:0000:5e:00): 13, pid=7, name=python, Graphics Exception: ESR 0x51df30=0x107000e"


def record(seq: int, text: str) -> str:
    return f"3,{seq},{seq * 1_000_000},-;{text}"


def test_a_fault_is_told_once_and_again_after_the_window(catalogue: Catalogue) -> None:
    live = LiveScan(catalogue)
    assert [f.alias for f in live.read(record(1, XID79), now_s=0.0)] == ["XID79"]
    assert live.read(record(2, XID79), now_s=1.0) == ()
    assert live.read(record(3, "usb 1-1: new device"), now_s=2.0) == ()
    assert [f.alias for f in live.read(record(4, XID79), now_s=2.0 + WINDOW_S)] == ["XID79"]


def test_faults_of_two_gpus_are_two_and_a_flood_of_them_is_bounded(catalogue: Catalogue) -> None:
    live = LiveScan(catalogue)
    assert [f.device for f in live.read(record(1, XID79), now_s=0.0)] == ["0000:3b:00"]
    assert [f.device for f in live.read(record(2, XID13), now_s=0.0)] == ["0000:5e:00"]
    for n in range(2 * WINDOW_MAX):
        live.read(record(3 + n, XID13), now_s=1.0)
    assert len(live._window) == WINDOW_MAX


class FakeClock:
    """Each sleep lets the others run and moves time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def wall_s(self) -> float:
        return self.now_s

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


class FakeLog:
    """A log of some lines, then silence."""

    def __init__(self, lines: list[str], *, trouble: str | None = None) -> None:
        self._lines = lines
        self.committed: list[int | None] = []
        self.health = LogHealth(
            alive_s=None if trouble else 0.0, trouble=trouble, errors_total=int(trouble is not None), lost_total=4
        )

    async def lines(self) -> AsyncIterator[LogLine]:
        for n, text in enumerate(self._lines):
            yield LogLine(text=text, cursor=Cursor(boot_id=BootId("b"), seq=n))
        await asyncio.Event().wait()

    def commit(self, cursor: Cursor) -> None:
        self.committed.append(cursor.seq)


def test_the_follower_tells_then_commits_and_gives_signs_of_life(catalogue: Catalogue) -> None:
    log, told = FakeLog([record(0, "hello"), record(1, XID79), record(2, "later")]), list[Told | Heartbeat]()
    stop = asyncio.Event()

    def tell(what: Told | Heartbeat) -> None:
        if isinstance(what, Told):
            assert log.committed == [], "told before it is committed"
        told.append(what)
        if len(told) == 3:
            stop.set()

    asyncio.run(Follower(log, LiveScan(catalogue), FakeClock(), tell).run(stop, heartbeat_s=5.0))
    findings = [what for what in told if isinstance(what, Told)]
    beats = [what for what in told if isinstance(what, Heartbeat)]
    assert [(f.finding.alias, f.seq, f.boot_id) for f in findings] == [("XID79", 1, "b")]
    assert {(beat.lost_total, beat.lines_total) for beat in beats} == {(4, 3)}
    assert len(beats) >= 2
    assert log.committed == [1, 2], "the rest when it stops"


def test_a_log_that_was_never_read_ends_the_follower(catalogue: Catalogue) -> None:
    log = FakeLog([], trouble="the kernel log cannot be read: Operation not permitted")
    follower = Follower(log, LiveScan(catalogue), FakeClock(), lambda _: None)
    with pytest.raises(Blind, match="not permitted"):
        asyncio.run(follower.run(asyncio.Event(), heartbeat_s=5.0))


def test_the_command_refuses_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(follow, ["--source", str(tmp_path / "none.log")])
    assert result.exit_code == 2
    assert "there is no such file" in result.output


def test_the_command_refuses_a_path_for_json_that_cannot_be_written(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.write_text("")
    result = CliRunner().invoke(follow, ["--source", str(log), "--json", str(tmp_path / "none" / "out")])
    assert result.exit_code == 2
    assert "cannot write" in result.output


def test_what_is_told_is_one_json_object_a_line(tmp_path: Path, catalogue: Catalogue) -> None:
    path = tmp_path / "out"
    (finding,) = LiveScan(catalogue).read(record(1, XID79), now_s=0.0)
    with path.open("w", encoding="utf-8") as stream:
        teller = _Teller(stream)
        teller.tell(Told(finding=finding, boot_id="b", seq=1))
        teller.tell(Heartbeat(alive_age_s=0.1, lines_total=1, lost_total=0, trouble=None))
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    assert [row["event"] for row in rows] == ["finding", "heartbeat"]
    assert {row["schema"] for row in rows} == {SCHEMA}
    assert (rows[0]["alias"], rows[0]["action"], rows[0]["severity"]) == ("XID79", "reboot", "fatal")
