"""What stands before the message of a log line: time, facility, who wrote it.

Understood are raw `/dev/kmsg` records, `dmesg` with and without times, with `-T`, `-x` and ISO times, pstore's `<4>`,
syslog (ISO and BSD, localised month names too), `journalctl` in its short forms and as JSON, a bare time of day, and
any of these quoted in a mail. A prefix that is not understood is left in the message, where it does no harm.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from fleetd.core.faults.observation import Moment

KERNEL_FACILITY = 0
MAX_RECORD_BYTES = 8192
"""Of a journal's record that are looked at to recognise one."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PROGRAM = re.compile(
    r"root|logger|systemd[\w-]*|\(?sd-\w+\)?|(?:ba|da|z|k)?sh|python[\d.]*|perl|sudo|su|sshd?(?:-session)?|crond?|anacron|echo"
    r"|containerd|dockerd|kubelet|slurm\w+|rsyslogd|syslog-ng|ansible[\w-]*|puppet[\w-]*|salt-\w+|test[\w-]*",
    re.IGNORECASE,
)
"""Programs whose tag says enough: what they wrote is theirs, whatever it quotes."""
_REPORTER = re.compile(
    r"nv-[\w-]+|nvidia-[\w-]+|dcgm[\w-]*|gpud|vgpu[\w-]*|amd-[\w-]+|rasdaemon|mcelog|node-problem-detector",
    re.IGNORECASE,
)
"""Daemons that report faults of GPUs in words of their own."""
_DRIVER = re.compile(
    r"nvrm|nvidia[\w-]*|nvswitch\w*|amdgpu|amdkfd|kfd|drm|mce|edac|ghes|apei|erst|bert|acpi|pci(?:port|ehp)?|aer|dpc|edr|dmar"
    r"|amd-vi|iommu|rcu|watchdog|nmi|bug|info|warning|oops|traps|oom\w*|sysrq|ras|audit|usb|mlx5\w*|nvme\w*|xid|vmiop_log",
    re.IGNORECASE,
)
"""Parts of the kernel whose name stands where a program's tag would."""
_OF_KERNEL = re.compile(r"segfault at|general protection|trap |unhandled signal|bad frame", re.IGNORECASE)
"""What the kernel itself writes behind `name[pid]:`."""
_RELAYED = re.compile(r"\[ *\d+\.\d{6}\]\s")
"""The kernel's own time behind a program's tag: a line of its log passed on as it is, by a container's `dmesg -w`."""

_KMSG = re.compile(r"(?P<pri>\d{1,4}),(?P<seq>\d+),(?P<us>-?\d+),[^;]{0,40};")
_QUOTE = re.compile(r"[>\s|]*")
_LEVEL = re.compile(r"<(\d{1,3})>")
_DECODED = re.compile(r"([a-z0-9]{3,9})\s*:\s*[a-z]{3,7}\s*:\s+", re.IGNORECASE)
_ISO = re.compile(
    r"\[?(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)\]?(?=\s)", re.IGNORECASE
)
_BOOT = re.compile(r"\[\s*(?P<boot>\d{1,12}(?:\.\d{1,9})?)\s*\]")
_CTIME = re.compile(
    r"\[\s*(?P<ctime>\S{1,12}\s+(?P<mon>\S{3,10})\s+(?P<day>\d{1,2})\s+(?P<hms>\d\d:\d\d:\d\d)\s+(?P<year>\d{4}))\s*\]"
)
_DATED = re.compile(
    r"\[(?P<ctime>(?P<mon>\S{3,10})\s+(?P<day>\d{1,2})\s+(?P<year>\d{4})\s+(?P<hms>\d\d:\d\d:\d\d))(?:\.\d+)?\]"
)
_BSD = re.compile(
    r"(?P<bsd>(?P<mon>[^\W\d_][^\s\d]{1,9}|\d{1,2}[^\W\d_])\s+(?P<day>\d{1,2})\s+(?P<hms>\d\d:\d\d:\d\d)(?:\.\d+)?)(?=\s)"
)
_CLOCK = re.compile(r"(?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?)(?=\s)")
_HOST_TAG = re.compile(
    r"\s*(?:(?P<host>[\w.-]{1,64})\s+)?(?P<tag>[A-Za-z(][\w./@()+-]{0,60})(?P<pid>\[\d+\])?:(?=\s)\s*"
)

Kind = Literal["kmsg", "dmesg", "journal", "syslog"]


@dataclass(frozen=True, slots=True)
class Prefix:
    """One line taken apart."""

    message: str
    at: Moment | None
    kind: Kind | None
    """Which kind of log has such lines; None when there was no prefix."""
    injected: bool = False
    """Not written by the kernel."""
    seq: int | None = None
    """Sequence number of a raw record."""


def is_journal(text: bytes) -> bool:
    """Whether an input is `journalctl -o json`: one record a line, not a tool's JSON."""
    first = text.lstrip()[:MAX_RECORD_BYTES].split(b"\n", 1)[0]
    return first.startswith(b"{") and any(key in first for key in (b'"_BOOT_ID"', b'"__CURSOR"', b'"_TRANSPORT"'))


def split(line: str) -> Prefix:
    """Take the prefix off a line."""
    if line.startswith("{") and '"MESSAGE"' in line:
        return _journal_json(line)
    start = _QUOTE.match(line)
    position = start.end() if start else 0
    if (raw := _KMSG.match(line, position)) is not None:
        seconds = int(raw["us"]) / 1e6
        at = Moment(text=f"{seconds:.6f}", seconds=seconds, clock="boot")
        injected = int(raw["pri"]) >> 3 != KERNEL_FACILITY
        return Prefix(message=line[raw.end() :], at=at, kind="kmsg", injected=injected, seq=int(raw["seq"]))
    return _text(line, position)


def _text(line: str, position: int) -> Prefix:
    kind: Kind | None = None
    at: Moment | None = None
    injected = False
    if (level := _LEVEL.match(line, position)) is not None:
        injected = int(level[1]) >> 3 != KERNEL_FACILITY
        position, kind = level.end(), "dmesg"
    if (decoded := _DECODED.match(line, position)) is not None:
        injected = decoded[1].lower() == "user"
        position, kind = decoded.end(), "dmesg"
    if line[position : position + 1] == "[":
        at, end = _bracketed(line, position)
        if at is not None:
            return _after(line, end, at, kind or "dmesg", injected=injected)
    if (iso := _ISO.match(line, position)) is not None:
        at = Moment(text=iso["iso"], seconds=_iso_seconds(iso["iso"]))
        return _after(line, iso.end(), at, kind or "syslog", injected=injected)
    for pattern in (_BSD, _CLOCK):
        if (found := pattern.match(line, position)) is not None:
            text = found["bsd"] if pattern is _BSD else found["clock"]
            seconds = _bsd_seconds(found) if pattern is _BSD else _of_day(text)
            return _after(line, found.end(), Moment(text=text, seconds=seconds), "syslog", injected=injected)
    return _after(line, position, None, kind, injected=injected)


def _after(line: str, position: int, at: Moment | None, kind: Kind | None, *, injected: bool) -> Prefix:
    """Host name and tag, and the kernel's own time behind them."""
    tag = _HOST_TAG.match(line, position)
    if tag is not None and tag["tag"] in {"kernel", "kern", "klogd"}:
        kind = "journal" if kind == "dmesg" else kind or "journal"
        position = tag.end()
        if (boot := _BOOT.match(line, position)) is not None:
            position = boot.end()
    elif tag is not None and _by_program(tag, line, dated=at is not None and at.clock == "wall"):
        injected = True
        position = tag.end()
    return Prefix(message=line[position:].lstrip(), at=at, kind=kind, injected=injected)


def _by_program(tag: re.Match[str], line: str, *, dated: bool) -> bool:
    """Whether a tag is a program's: the kernel's lines have `kernel:` or no tag, and a program only quotes them.

    Without a process number only the well-known names count in a kernel's own log; in a syslog, where host and tag
    stand before every message, all that are no part of the kernel.
    """
    name = tag["tag"]
    if _REPORTER.fullmatch(name):
        return False
    if tag["pid"] is not None and _OF_KERNEL.match(line, tag.end()):
        return False
    if _PROGRAM.fullmatch(name):
        return True
    if _RELAYED.match(line, tag.end()):
        return False
    if tag["pid"] is not None:
        return True
    return dated and tag["host"] is not None and _DRIVER.fullmatch(name) is None


def _bracketed(line: str, position: int) -> tuple[Moment | None, int]:
    if (boot := _BOOT.match(line, position)) is not None:
        return Moment(text=boot["boot"], seconds=float(boot["boot"]), clock="boot"), boot.end()
    for pattern in (_CTIME, _DATED):
        if (found := pattern.match(line, position)) is not None:
            return Moment(text=found["ctime"], seconds=_ctime_seconds(found)), found.end()
    if (iso := _ISO.match(line, position)) is not None:
        return Moment(text=iso["iso"], seconds=_iso_seconds(iso["iso"])), iso.end()
    return None, position


def _iso_seconds(text: str) -> float | None:
    plain = text.replace(",", ".").replace("Z", "+00:00").replace("z", "+00:00")
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _of_day(text: str) -> float | None:
    hours, minutes, seconds = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _month(text: str) -> int | None:
    """English names only: a month that is not understood leaves the text without seconds."""
    key = text[:3].lower()
    return _MONTHS.index(key) + 1 if key in _MONTHS else None


def _ctime_seconds(found: re.Match[str]) -> float | None:
    month = _month(found["mon"])
    if month is None:
        return None
    try:
        day = datetime(int(found["year"]), month, int(found["day"]), tzinfo=UTC)
    except ValueError:
        return None
    return day.timestamp() + (_of_day(found["hms"]) or 0.0)


def _bsd_seconds(found: re.Match[str]) -> float | None:
    """Seconds since the start of a leap year: a syslog line has no year, and 29 February must fit."""
    month = _month(found["mon"])
    if month is None:
        return None
    try:
        day = datetime(2000, month, int(found["day"]), tzinfo=UTC) - datetime(2000, 1, 1, tzinfo=UTC)
    except ValueError:
        return None
    return day.total_seconds() + (_of_day(found["hms"]) or 0.0)


def _journal_json(line: str) -> Prefix:
    """One record of `journalctl -o json`; a message of bytes comes as a list of numbers."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return Prefix(message=line, at=None, kind=None)
    if not isinstance(record, dict):
        return Prefix(message=line, at=None, kind=None)
    message = record.get("MESSAGE")
    if isinstance(message, list):
        message = bytes(n for n in message if isinstance(n, int) and 0 <= n < 256).decode("utf-8", "replace")  # noqa: PLR2004 - a byte
    stamp = str(record.get("__REALTIME_TIMESTAMP", ""))
    seconds = int(stamp) / 1e6 if stamp.isdecimal() and len(stamp) < 20 else None  # noqa: PLR2004 - 64 bits
    at = None
    if seconds is not None and seconds < 253402300800.0:  # noqa: PLR2004 - the year 9999
        at = Moment(text=datetime.fromtimestamp(seconds, UTC).isoformat(), seconds=seconds)
    return Prefix(message=str(message or ""), at=at, kind="journal", injected=_journal_program(record))


def _journal_program(record: dict[str, object]) -> bool:
    """Whether a program wrote a record: not the kernel, not a syslog daemon that forwards it, and no reporter."""
    name = str(record.get("SYSLOG_IDENTIFIER") or record.get("_COMM") or "kernel")
    if _REPORTER.fullmatch(name) or str(record.get("SYSLOG_FACILITY", "")) == str(KERNEL_FACILITY):
        return False
    transport = record.get("_TRANSPORT")
    return name.lower() != "kernel" if transport is None else transport != "kernel"
