"""The follower on what the machine has: its own /dev/kmsg, a rotated file, `journalctl` from PATH, and kill -9."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fleetd.devices.kernel_sources import KMSG, FileSource, JournalSource, KmsgSource, Source
from fleetd.model.ids import BootId
from fleetd.model.logline import LogLine

BOOT = BootId("boot-1")
XID79 = "[1.0] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
XID13 = "[2.0] NVRM: Xid (PCI:0000:5e:00): 13, Graphics Exception\n"
XID95 = "[3.0] NVRM: Xid (PCI:0000:5f:00): 95, Uncontained error\n"


def readable() -> bool:
    """Whether this machine has a kernel log, and this user may read it."""
    try:
        os.close(os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not readable(), reason="needs a /dev/kmsg that may be read")
def test_the_kernels_own_log_is_read_in_order_and_resumed() -> None:
    with closing(KmsgSource.open(KMSG, boot_id=BOOT, after=None)) as source:
        first = source.read()
    if not first:
        pytest.skip("this kernel's log is empty or not shown here")
    numbers = [line.cursor.seq for line in first]
    assert all(n is not None for n in numbers)
    assert numbers == sorted(set(numbers), key=lambda n: n or 0)
    with closing(KmsgSource.open(KMSG, boot_id=BOOT, after=first[-1].cursor)) as again:
        assert not {line.cursor.seq for line in again.read()} & set(numbers)


def texts(source: Source, reads: int = 4) -> list[str]:
    return [line.text for _ in range(reads) for line in source.read()]


def test_a_file_that_was_rotated_while_nobody_read_is_read_to_its_end_first(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text("one\n", encoding="utf-8")
    with closing(FileSource(path, boot_id=BOOT, after=None)) as source:
        (line,) = source.read()
    with path.open("a", encoding="utf-8") as file:
        file.write("two\n")
    path.rename(tmp_path / "kern.log.1")
    path.write_text("three\n", encoding="utf-8")
    with closing(FileSource(path, boot_id=BOOT, after=line.cursor)) as source:
        assert texts(source) == ["two", "three"]
    (tmp_path / "kern.log.1").unlink()
    with closing(FileSource(path, boot_id=BOOT, after=line.cursor)) as source:
        (last,) = source.read()
        assert last.text == "three"
    path.write_text("written anew and longer\n", encoding="utf-8")
    with closing(FileSource(path, boot_id=BOOT, after=last.cursor)) as source:
        assert texts(source) == ["written anew and longer"]


def test_journalctl_is_taken_from_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.dumps({"__CURSOR": "s=1;i=9", "MESSAGE": "hello", "_TRANSPORT": "kernel"})
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\necho '{record}'\necho \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    lines: list[LogLine] = []
    with closing(JournalSource(boot_id=BOOT, after=None)) as source:
        os.set_blocking(source._fd, True)  # so that the test waits for the program and not for time

        def drain() -> None:
            while True:
                lines.extend(source.read())

        with pytest.raises(OSError, match="exit code 0"):
            drain()
    assert (lines[0].cursor.journal, json.loads(lines[0].text)["MESSAGE"]) == ("s=1;i=9", "hello")
    assert "--dmesg" in lines[1].text


def told_until(path: Path, cursor: Path, last: str) -> list[str]:
    """Run `faults follow` on a file until it has told `last` and given a sign of life after it; then kill it."""
    command = (sys.executable, "-m", "fleetd", "faults", "follow", "--source", str(path), "--cursor", str(cursor))
    aliases: list[str] = []
    with subprocess.Popen([*command, "--heartbeat", "0.1", "--json", "-"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            for row in map(json.loads, process.stdout):
                if row["event"] == "finding":
                    aliases.append(row["alias"])
                elif last in aliases:
                    break
        finally:
            process.send_signal(signal.SIGKILL)
    return aliases


def test_nothing_is_lost_or_told_twice_over_kill_9_rotation_and_truncation(tmp_path: Path) -> None:
    path, cursor = tmp_path / "kern.log", tmp_path / "cursor"
    path.write_text(XID79, encoding="utf-8")
    assert told_until(path, cursor, "XID79") == ["XID79"]
    with path.open("a", encoding="utf-8") as file:
        file.write(XID13)
    path.rename(tmp_path / "kern.log.1")
    path.write_text(XID95, encoding="utf-8")
    assert told_until(path, cursor, "XID95") == ["XID13", "XID95"]
    os.truncate(path, 0)
    path.write_text(XID13, encoding="utf-8")
    assert told_until(path, cursor, "XID13") == ["XID13"]
