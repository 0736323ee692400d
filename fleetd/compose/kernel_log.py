"""Which source a kernel log is followed from."""

from pathlib import Path

from fleetd.devices.kernel_log import CursorFile, FollowedLog
from fleetd.devices.kernel_sources import KMSG, FileSource, JournalSource, KmsgSource, Source
from fleetd.model.ids import BootId
from fleetd.model.logline import Cursor
from fleetd.ports import Clock


def kernel_log(source: str, *, cursor: Path | None, boot_id: BootId, clock: Clock) -> FollowedLog:
    """Follow `kmsg`, `journal`, or the file at the path given.

    Args:
        source: One of the two words, or a path.
        cursor: Where to keep how far it was read; None: start at the oldest line every time.
        boot_id: The present boot.
        clock: Both clocks.
    """

    def opened(after: Cursor | None) -> Source:
        if source == "kmsg":
            return KmsgSource.open(KMSG, boot_id=boot_id, after=after)
        if source == "journal":
            return JournalSource(boot_id=boot_id, after=after)
        path = Path(source)
        if path.is_char_device():
            return KmsgSource.open(path, boot_id=boot_id, after=after)
        return FileSource(path, boot_id=boot_id, after=after)

    return FollowedLog(opened, cursor=None if cursor is None else CursorFile(cursor), clock=clock)
