"""Lines of a followed log, and how far it has been read."""

from dataclasses import dataclass

from fleetd.model.ids import BootId


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a source has been read. Only the fields of its kind of source are set."""

    boot_id: BootId
    seq: int | None = None
    """Kernel sequence number of the last record of `/dev/kmsg`; it counts from 0 in every boot."""
    inode: int | None = None
    offset: int | None = None
    """Bytes of the file that were read."""
    journal: str | None = None
    """The journal's own cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a log, one raw record of `/dev/kmsg`, or one JSON record of the journal."""

    text: str
    """Without the line's end; bytes that are no UTF-8 are replaced; cut where the source says so."""
    cursor: Cursor
    """Where the source stands after it: commit it when the line has been dealt with."""
    lost: int = 0
    """Records that the kernel dropped just before this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHealth:
    """How a follower of a log is doing."""

    alive_s: float | None
    """Monotonic time of the source's last answer, also of "nothing new"; None before the first."""
    trouble: str | None
    """Why the log cannot be read just now; None when it can."""
    errors_total: int
    """How often the source could not be opened or read."""
    lost_total: int
    """Records that the kernel dropped before they were read."""
