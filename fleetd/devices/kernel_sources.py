"""What a kernel log is read from: `/dev/kmsg`, a file that grows, or the journal. None of them ever waits."""

import errno
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fleetd.model.ids import BootId
from fleetd.model.logline import Cursor, LogLine

KMSG = Path("/dev/kmsg")
LINE_MAX = 8192
"""Bytes of a line that are kept. The kernel's records are shorter; only a file can have more."""
_READ_BYTES = 1 << 16


class Source(Protocol):
    """Something that is read without waiting. `read` raises OSError."""

    def read(self) -> list[LogLine]:
        """What has come since the last read; empty when there is nothing new."""

    @property
    def lost_total(self) -> int:
        """Records that the kernel dropped before they were read."""

    def close(self) -> None:
        """Let go; idempotent."""


class KmsgSource:
    """`/dev/kmsg`, or anything that gives one record a read (in tests a pipe that keeps packets apart)."""

    def __init__(self, fd: int, *, boot_id: BootId, after: Cursor | None) -> None:
        """Take over `fd`, opened without blocking; records up to `after` are skipped if they are of this boot."""
        self._fd = fd
        self._boot_id = boot_id
        self._seq = after.seq if after is not None and after.boot_id == boot_id else None
        self._closed = False
        self.lost_total = 0
        self.overruns_total = 0
        """How often the kernel said that it had dropped records (EPIPE)."""

    @classmethod
    def open(cls, path: Path, *, boot_id: BootId, after: Cursor | None) -> "KmsgSource":
        """Open it at the oldest record that the kernel still has. Raises OSError."""
        return cls(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), boot_id=boot_id, after=after)

    def read(self) -> list[LogLine]:
        """Read at most 64 KiB of records. Raises OSError."""
        lines: list[LogLine] = []
        size = 0
        while size < _READ_BYTES:
            try:
                record = os.read(self._fd, LINE_MAX)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EPIPE:
                    raise
                self.overruns_total += 1  # the next read gives the oldest record that is left
                continue
            if not record:
                raise OSError(errno.EIO, "the kernel log has ended")
            size += len(record)
            line = self._line(record)
            if line is not None:
                lines.append(line)
        return lines

    def _line(self, record: bytes) -> LogLine | None:
        """`6,1234,98765,-;text`, followed by ` KEY=value` lines, which are left out."""
        text = record.split(b"\n", 1)[0].decode("utf-8", "replace")
        number = text.split(",", 2)[1:2]
        seq = int(number[0]) if number and number[0].isdigit() else None
        lost = 0
        if seq is not None:
            if self._seq is not None and seq <= self._seq:
                return None
            # Without a cursor of this boot the first record says nothing about what was before it.
            lost = 0 if self._seq is None else seq - self._seq - 1
            self._seq = seq
            self.lost_total += lost
        return LogLine(text=text, cursor=Cursor(boot_id=self._boot_id, seq=self._seq), lost=lost)

    def close(self) -> None:
        """Close it; idempotent."""
        if not self._closed:
            self._closed = True
            os.close(self._fd)


class FileSource:
    """A file that grows, is truncated, or is renamed away and made anew by a log rotation."""

    def __init__(self, path: Path, *, boot_id: BootId, after: Cursor | None) -> None:
        """Go on after `after` where it is about this file, else begin at its start. Raises OSError."""
        self._path = path
        self._boot_id = boot_id
        self._rest = b""
        self._offset = 0
        self._open(after)
        self.lost_total = 0

    def _open(self, after: Cursor | None = None) -> None:
        # Rotated while nobody read: the end of the old file comes first, then `read` goes on with the new one.
        old = self._path.with_name(self._path.name + ".1")
        rotated = after is not None and after.inode is not None and self._path.stat().st_ino != after.inode
        path = old if after is not None and rotated and _inode(old) == after.inode else self._path
        self._file = path.open("rb", buffering=0)
        stat = os.fstat(self._file.fileno())
        self._inode = stat.st_ino
        self._offset = 0
        if after is not None and after.inode == stat.st_ino and (after.offset or 0) <= stat.st_size:
            self._offset = after.offset or 0
            # A cursor stands behind a line's end; where there is none, the file was emptied and written anew.
            if self._offset and os.pread(self._file.fileno(), 1, self._offset - 1) != b"\n":
                self._offset = 0
        self._file.seek(self._offset)
        self._rest = b""

    def read(self) -> list[LogLine]:
        """Read at most 64 KiB. A file that was replaced is read to its end first. Raises OSError."""
        block = self._file.read(_READ_BYTES)
        if not block and self._moved():
            self._file.close()
            self._open()
            block = self._file.read(_READ_BYTES)
        lines: list[LogLine] = []
        pieces = (block or b"").split(b"\n")
        for piece in pieces[:-1]:
            self._offset += len(piece) + 1
            text = (self._rest + piece)[:LINE_MAX].rstrip(b"\r").decode("utf-8", "replace")
            self._rest = b""
            cursor = Cursor(boot_id=self._boot_id, inode=self._inode, offset=self._offset)
            lines.append(LogLine(text=text, cursor=cursor))
        self._offset += len(pieces[-1])
        self._rest = (self._rest + pieces[-1])[:LINE_MAX]
        return lines

    def _moved(self) -> bool:
        """Whether the path is another file now, or this one has become shorter."""
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False  # between renaming and making anew: look again at the next read
        return now.st_ino != self._inode or now.st_size < self._offset

    def close(self) -> None:
        """Close it; idempotent."""
        self._file.close()


def _inode(path: Path) -> int | None:
    """The file's number; None when there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


class JournalSource:
    """The journal's kernel messages, through `journalctl`: its format on disk is not for others to read."""

    COMMAND = ("journalctl", "--dmesg", "--follow", "--no-tail", "--no-pager", "--quiet", "--output=json")
    RECORD_MAX = 1 << 16
    """Bytes of a record that are kept; a longer one is left out and counts as lost."""

    def __init__(self, command: Sequence[str] = COMMAND, *, boot_id: BootId, after: Cursor | None) -> None:
        """Start it after the cursor if that is of this boot: the journal refuses others. Raises OSError."""
        here = after is not None and after.boot_id == boot_id and after.journal is not None
        extra = [f"--after-cursor={after.journal}"] if here and after is not None else []
        # A session of its own: what a terminal sends to this process is not for it.
        self._process = subprocess.Popen(
            [*command, *extra], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        assert self._process.stdout is not None  # noqa: S101 - opened above
        self._fd = self._process.stdout.fileno()
        os.set_blocking(self._fd, False)
        self._boot_id = boot_id
        self._rest = b""
        self._cut = False
        self.lost_total = 0

    def read(self) -> list[LogLine]:
        """Read at most 64 KiB of records. Raises OSError when journalctl has ended."""
        try:
            block = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return []
        if not block:
            raise OSError(errno.EIO, f"journalctl ended with exit code {self._process.wait()}")
        lines: list[LogLine] = []
        pieces = block.split(b"\n")
        for piece in pieces[:-1]:
            record, self._rest = self._rest + piece, b""
            if self._cut or len(record) > self.RECORD_MAX:
                self._cut = False
                self.lost_total += 1
                continue
            place = _journal_cursor(record)
            cursor = Cursor(boot_id=self._boot_id, journal=place)
            lines.append(LogLine(text=record.decode("utf-8", "replace"), cursor=cursor))
        self._rest += pieces[-1]
        if len(self._rest) > self.RECORD_MAX:
            self._rest, self._cut = b"", True
        return lines

    def close(self) -> None:
        """End journalctl; idempotent."""
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _journal_cursor(record: bytes) -> str | None:
    """The record's place in the journal; None when it has none (then the one before it stays)."""
    try:
        fields = json.loads(record)
    except ValueError:
        return None
    place = fields.get("__CURSOR") if isinstance(fields, dict) else None
    return place if isinstance(place, str) else None
