"""Reads a private key from a file, if nobody else can.

A key that others can read is a key that others may have: it has to be refused while somebody still looks, not found in
an audit. The rule is that of PostgreSQL for its own keys: a file of root's may be read by its group besides, which is
how service managers and Kubernetes hand keys to a service; any other file by its owner only. Nobody else may write it.
"""

import os
import stat
from pathlib import Path

from fleetd.ports import UplinkError

_BYTES_MAX = 1 << 20


def read_key(path: str, *, where: str) -> bytes:
    """Return the PEM text of a private key. Symbolic links are followed: the file's own mode counts, not the link's.

    Args:
        path: the file.
        where: what names it, for messages.

    Raises:
        UplinkError: it cannot be read, is no PEM file, or more people may read or write it than should.
    """
    try:
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())  # of what is read, whatever the name means by now
            content = file.read(_BYTES_MAX)
    except OSError as error:
        raise UplinkError(f"{where}: cannot read {path}: {error.strerror}") from error
    too_open = status.st_mode & (0o027 if status.st_uid == 0 else 0o077)
    if too_open:
        mode = stat.S_IMODE(status.st_mode)
        others = "by others" if status.st_mode & 0o007 else "by its group"
        right = "640" if status.st_uid == 0 and not status.st_mode & 0o007 else "600"
        raise UplinkError(
            f"{where}: the private key {path} may be used {others} (mode {mode:04o}): chmod {right} {path}, "
            "and have it replaced if anybody may have read it"
        )
    if b"-----BEGIN " not in content:
        raise UplinkError(f"{where}: {path} is no PEM file")
    return content
