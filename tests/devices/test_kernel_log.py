"""The follower on pipes that keep records apart as /dev/kmsg does, on files, on a program in journalctl's place."""

import asyncio
import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from fleetd.devices.kernel_log import CursorFile, FollowedLog
from fleetd.devices.kernel_sources import FileSource, JournalSource, KmsgSource, Source
from fleetd.model.ids import BootId
from fleetd.model.logline import Cursor, LogLine
from fleetd.ports import StoreError

BOOT = BootId("boot-1")


class FakeClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def wall_s(self) -> float:
        return self.now_s

    def elapsed_s(self) -> float:
        return self.now_s

    async def sleep_s(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


@pytest.fixture
def ring() -> Iterator[tuple[int, int]]:
    """Read end and write end of a pipe that gives one record a read."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_DIRECT)
    yield read, write
    for fd in (read, write):
        with suppress(OSError):  # the source may have closed its end
            os.close(fd)


def put(fd: int, seq: int, text: str = "hello") -> None:
    os.write(fd, f"6,{seq},{seq * 1000},-;{text}\n SUBSYSTEM=pci\n".encode())


def seqs(lines: list[LogLine]) -> list[int | None]:
    return [line.cursor.seq for line in lines]


def test_records_are_read_one_by_one_without_their_dictionary(ring: tuple[int, int]) -> None:
    put(ring[1], 7, "NVRM: Xid")
    put(ring[1], 8)
    source = KmsgSource(ring[0], boot_id=BOOT, after=None)
    lines = source.read()
    assert [line.text for line in lines] == ["6,7,7000,-;NVRM: Xid", "6,8,8000,-;hello"]
    assert source.read() == []
    assert source.lost_total == 0, "what was before the first record of a fresh start is not lost"
    source.close()
    source.close()


def test_after_a_restart_only_new_records_of_this_boot_are_read(ring: tuple[int, int]) -> None:
    for seq in (7, 8, 9):
        put(ring[1], seq)
    assert seqs(KmsgSource(ring[0], boot_id=BOOT, after=Cursor(boot_id=BOOT, seq=8)).read()) == [9]
    put(ring[1], 0)
    other = KmsgSource(ring[0], boot_id=BOOT, after=Cursor(boot_id=BootId("boot-0"), seq=500))
    assert seqs(other.read()) == [0], "sequence numbers of another boot say nothing"


def test_holes_in_the_sequence_are_counted_as_lost(ring: tuple[int, int]) -> None:
    put(ring[1], 10)
    put(ring[1], 14)
    source = KmsgSource(ring[0], boot_id=BOOT, after=Cursor(boot_id=BOOT, seq=7))
    assert [line.lost for line in source.read()] == [2, 3]
    assert source.lost_total == 5


def test_garbage_in_a_record_is_passed_on(ring: tuple[int, int]) -> None:
    os.write(ring[1], b"\xff\xfe;\n")
    os.write(ring[1], b"x" * 4000)
    lines = KmsgSource(ring[0], boot_id=BOOT, after=None).read()
    assert [len(line.text) for line in lines] == [3, 4000]
    assert seqs(lines) == [None, None]


def test_an_overrun_is_counted_and_reading_goes_on(ring: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    put(ring[1], 3)
    real, refusals = os.read, [OSError(errno.EPIPE, "Broken pipe")]

    def overrun(fd: int, size: int) -> bytes:
        if refusals:
            raise refusals.pop()
        return real(fd, size)

    monkeypatch.setattr(os, "read", overrun)
    source = KmsgSource(ring[0], boot_id=BOOT, after=None)
    assert seqs(source.read()) == [3]
    assert source.overruns_total == 1


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def texts(source: Source) -> list[str]:
    return [line.text for line in source.read()]


def test_a_growing_file_is_read_by_whole_lines_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_bytes(b"one\ntw")
    with closing(FileSource(path, boot_id=BOOT, after=None)) as source:
        lines = source.read()
        assert [line.text for line in lines] == ["one"]
        with path.open("ab") as file:
            file.write(b"o\r\nthree\n")
        assert texts(source) == ["two", "three"]
    with closing(FileSource(path, boot_id=BOOT, after=lines[0].cursor)) as source:
        assert texts(source) == ["two", "three"]


def test_a_rotated_and_a_truncated_file_are_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_bytes(b"one\n")
    with closing(FileSource(path, boot_id=BOOT, after=None)) as source:
        assert texts(source) == ["one"]
        with path.open("ab") as file:
            file.write(b"last\n")
        path.rename(tmp_path / "kern.log.1")
        assert texts(source) == ["last"], "the old file is read to its end"
        assert texts(source) == [], "between renaming and making anew"
        path.write_bytes(b"new\n")
        assert texts(source) == ["new"]
        path.write_bytes(b"")
        assert texts(source) == []
        path.write_bytes(b"x\n")
        assert texts(source) == ["x"]


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_bytes(b"x" * 1_000_000 + b"\nnext\n")
    with closing(FileSource(path, boot_id=BOOT, after=None)) as source:
        lines = [text for _ in range(20) for text in texts(source)]
    assert [len(text) for text in lines] == [8192, 4]


# ── the journal ─────────────────────────────────────────────────────────────────────────────────────────────────────


def drain(source: Source, lines: list[LogLine]) -> None:
    while True:
        lines += source.read()


def journal(script: str, after: Cursor | None = None) -> tuple[list[LogLine], int]:
    """Read all that a program in the place of journalctl prints; return it and how much was lost."""
    lines: list[LogLine] = []
    with closing(JournalSource((sys.executable, "-c", script), boot_id=BOOT, after=after)) as source:
        os.set_blocking(source._fd, True)  # so that the test waits for the program and not for time
        with pytest.raises(OSError, match="exit code 0"):
            drain(source, lines)
    return lines, source.lost_total


def test_the_journal_is_resumed_after_its_own_cursor() -> None:
    script = "import sys, json; print(json.dumps({'__CURSOR': 's=1;i=2', 'MESSAGE': ' '.join(sys.argv[1:])}))"

    def said(after: Cursor | None) -> str:
        return str(json.loads(journal(script, after)[0][0].text)["MESSAGE"])

    cursor = journal(script)[0][0].cursor
    assert cursor.journal == "s=1;i=2"
    assert said(None) == ""
    assert said(cursor) == "--after-cursor=s=1;i=2"
    assert said(Cursor(boot_id=BootId("boot-0"), journal="s=1;i=2")) == ""


def test_an_overlong_record_of_the_journal_is_left_out_and_counted() -> None:
    lines, lost = journal("print('x' * 500000); print('{}'); print('y' * 70000); print('no json')")
    assert [line.text for line in lines] == ["{}", "no json"]
    assert lost == 2


# ── the follower ────────────────────────────────────────────────────────────────────────────────────────────────────


class FakeSource:
    """Gives what it was told to give, one item a read: lines, or an error."""

    def __init__(self, script: list[list[LogLine] | OSError]) -> None:
        self._script = script
        self.lost_total = 1
        self.closed = False

    def read(self) -> list[LogLine]:
        if not self._script:
            return []
        item = self._script.pop(0)
        if isinstance(item, OSError):
            raise item
        return item

    def close(self) -> None:
        self.closed = True


def line(seq: int) -> LogLine:
    return LogLine(text=f"line {seq}", cursor=Cursor(boot_id=BOOT, seq=seq))


async def take(log: FollowedLog, count: int) -> list[int | None]:
    taken: list[int | None] = []
    lines = log.lines()
    async for one in lines:
        taken.append(one.cursor.seq)
        if len(taken) == count:
            break
    await lines.aclose()  # type: ignore[attr-defined]  # an async generator has it
    return taken


def test_a_source_that_fails_is_opened_again_after_the_last_line(tmp_path: Path) -> None:
    opened: list[Cursor | None] = []
    sources = [
        FakeSource([[line(1)], OSError(errno.EIO, "Input/output error")]),
        FakeSource([OSError(errno.EIO, "Input/output error")]),
        FakeSource([[line(2), line(3)]]),
    ]

    def opener(after: Cursor | None) -> Source:
        opened.append(after)
        return sources[len(opened) - 1]

    kept = CursorFile(tmp_path / "cursor")
    kept.save(Cursor(boot_id=BOOT, seq=0))
    clock = FakeClock()
    log = FollowedLog(opener, cursor=kept, clock=clock)
    assert log.health.alive_s is None
    assert asyncio.run(take(log, 3)) == [1, 2, 3]
    assert [after and after.seq for after in opened] == [0, 1, 1]
    assert log.health.errors_total == 2
    assert log.health.lost_total == 3, "of every source that was open"
    assert log.health.trouble is None
    assert log.health.alive_s is not None
    assert all(source.closed for source in sources)


def test_a_source_that_is_not_there_is_asked_ever_more_rarely_and_the_log_says_that_it_is_blind() -> None:
    clock = FakeClock()
    asked: list[float] = []

    def opener(_after: Cursor | None) -> Source:
        asked.append(clock.now_s)
        if len(asked) == 12:
            return FakeSource([[line(1)]])
        raise PermissionError(errno.EPERM, "Operation not permitted")

    log = FollowedLog(opener, cursor=None, clock=clock)
    assert asyncio.run(take(log, 1)) == [1]
    waits = [after - before for before, after in pairwise(asked)]
    assert waits == sorted(waits)
    assert max(waits) == FollowedLog.RETRY_MAX_S
    log.commit(Cursor(boot_id=BOOT))  # without a file it is kept nowhere


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"\xff", b'{"schema": "other/1"}', b'{"schema": "fleetd.kernel_log.cursor/1", "seq": 1}',
     b'{"schema": "fleetd.kernel_log.cursor/1", "boot_id": "b", "seq": -1}',
     b'{"schema": "fleetd.kernel_log.cursor/1", "boot_id": "b", "seq": true}',
     b'{"schema": "fleetd.kernel_log.cursor/1", "boot_id": "b", "who": 1}'],
)  # fmt: skip
def test_a_cursor_file_that_is_none_counts_as_none(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "cursor"
    path.write_bytes(body)
    assert CursorFile(path).load() is None


def test_a_cursor_is_kept_and_one_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    cursor = Cursor(boot_id=BOOT, seq=5, inode=1, offset=2, journal="s=1")
    kept = CursorFile(tmp_path / "cursor")
    assert kept.load() is None
    kept.save(cursor)
    assert kept.load() == cursor
    with pytest.raises(StoreError, match="cannot write the cursor"):
        CursorFile(tmp_path / "none" / "cursor").save(cursor)
