"""What stands before a message: time, kind of log, and who wrote it."""

import pytest

from fleetd.core.faults.prefix import is_journal, split

MESSAGE = "NVRM: Xid (PCI:0000:3b:00): 79, x"


@pytest.mark.parametrize(
    ("prefix", "kind", "seconds", "clock"),
    [
        ("4,22726,652513349062,-;", "kmsg", 652513.349062, "boot"),
        ("[  188281.220101] ", "dmesg", 188281.220101, "boot"),
        ("<4>[  145461.830320] ", "dmesg", 145461.83032, "boot"),
        ("[Mon Apr  6 03:21:37 2026] ", "dmesg", 1775445697.0, "wall"),
        ("[Feb 27 2025 15:10:02] ", "dmesg", 1740669002.0, "wall"),
        ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ", "dmesg", 1737434504.283302, "wall"),
        ("kern  :err   : [  12.5] ", "dmesg", 12.5, "boot"),
        ("Aug 10 15:36:05 node-a kernel: ", "syslog", 19236965.0, "wall"),
        ("Feb 29 00:00:01 node-a kernel: [    6.6] ", "syslog", 5097601.0, "wall"),
        ("2026-08-10T15:36:05+02:00 node-a kernel: ", "syslog", 1786368965.0, "wall"),
        ("[ 12.5] node-a kernel: ", "journal", 12.5, "boot"),
        ("> [  113.5] ", "dmesg", 113.5, "boot"),
        ("16:32:32 ", "syslog", 59552.0, "wall"),
    ],
)
def test_times(prefix: str, kind: str, seconds: float, clock: str) -> None:
    line = split(prefix + MESSAGE)
    assert (line.message, line.kind, line.injected) == (MESSAGE, kind, False)
    assert line.at is not None
    assert line.at.seconds == pytest.approx(seconds)
    assert line.at.clock == clock


@pytest.mark.parametrize("prefix", ["févr. 27 12:00:00 node-a kernel: ", "[Mo Mär  6 03:21:37 2026] "])
def test_a_foreign_month_keeps_its_text_and_has_no_seconds(prefix: str) -> None:
    line = split(prefix + MESSAGE)
    assert line.message == MESSAGE
    assert line.at is not None
    assert line.at.seconds is None


@pytest.mark.parametrize("prefix", ["[Tue Feb 31 03:21:37 2026] ", "2026-13-40T15:36:05+02:00 ", "Feb 31 00:00:00 "])
def test_an_impossible_date_has_no_seconds(prefix: str) -> None:
    line = split(prefix + MESSAGE)
    assert line.at is not None
    assert line.at.seconds is None


def test_no_prefix_is_left_alone() -> None:
    assert split(MESSAGE).message == MESSAGE
    assert split(MESSAGE).kind is None


@pytest.mark.parametrize(
    ("record", "message", "injected"),
    [
        ('{"MESSAGE":"hello","_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"1730000000000000"}', "hello", False),
        ('{"MESSAGE":[104,105,255],"_TRANSPORT":"kernel"}', "hi\ufffd", False),
        ('{"MESSAGE":"hello","_TRANSPORT":"syslog","SYSLOG_FACILITY":"1"}', "hello", True),
        ('{"MESSAGE":null,"__REALTIME_TIMESTAMP":"99999999999999999999999"}', "", False),
    ],
)
def test_records_of_the_journal(record: str, message: str, injected: bool) -> None:
    line = split(record)
    assert (line.message, line.kind, line.injected) == (message, "journal", injected)


def test_broken_records_are_plain_text() -> None:
    for text in ('{"MESSAGE": ', '{"MESSAGE":' + "[" * 100000, '{"MESSAGE"'):
        assert split(text).kind is None


def test_a_journal_is_told_from_a_tools_json() -> None:
    assert is_journal(b'{"__CURSOR":"s=1","MESSAGE":"x"}\n')
    assert not is_journal(b'{"DCGM GPU Diagnostic": {}}')
    assert not is_journal(b"")


@pytest.mark.parametrize(
    ("prefix", "injected"),
    [
        ("Mar  4 11:22:33 node-a klogd: ", False),
        ("Mar  4 11:22:33 node-a kernel[0]: ", False),
        ("Mar  4 11:22:33 node-a docker[991]: [12345.678901] ", False),
        ("Mar  4 11:22:33 node-a docker[991]: ", True),
        ("Mar  4 11:22:33 node-a docker[991]: [12345.678] ", True),
        ("Mar  4 11:22:33 node-a python[991]: [12345.678901] ", True),
        ("Mar  4 11:22:33 node-a logger: [12345.678901] ", True),
        ("Mar  4 11:22:33 node-a nvidia-persistenced[2010]: ", False),
    ],
)
def test_a_line_of_the_kernel_that_a_program_passes_on_is_the_kernels(prefix: str, injected: bool) -> None:
    assert split(prefix + MESSAGE).injected is injected
