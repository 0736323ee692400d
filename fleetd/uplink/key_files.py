"""A certificate and its key on disk, replaced as one although they are two files. Standard library only.

The new key is written beside the old one first (`KEY.new`), then the certificate takes its place, then the key. A
process that is killed in between leaves a certificate whose key is the one beside it, which `heal` sees and completes:
whoever begins to use the two calls it first.
"""

import os
import ssl
from contextlib import suppress
from pathlib import Path

import structlog

from fleetd.durable import sync_folder
from fleetd.ports import UplinkError

_log = structlog.get_logger(__name__)


def waiting_key(key: Path) -> Path:
    """Where a new key waits for its certificate: an attempt to get one goes on where the last one stopped."""
    return key.with_name(f"{key.name}.new")


def replace_pair(cert: Path, key: Path, chain: str) -> None:
    """Take up a certificate for the key that waits. Raises UplinkError."""
    fresh = cert.with_name(f"{cert.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        write_new(fresh, chain.encode("ascii"), mode=0o644)
        fresh.replace(cert)
        waiting_key(key).replace(key)
        for folder in {cert.parent, key.parent}:
            sync_folder(folder)
    except OSError as error:
        raise UplinkError(f"cannot replace {cert} and {key}: {error.strerror}") from error


def heal(cert: Path, key: Path) -> None:
    """Complete a replacement that was cut off; nothing happens when there was none. Raises UplinkError."""
    waiting = waiting_key(key)
    if not waiting.exists() or _belong(cert, key) or not _belong(cert, waiting):
        return  # what waits is a key without a certificate yet
    try:
        waiting.replace(key)
        sync_folder(key.parent)
    except OSError as error:
        raise UplinkError(f"cannot replace {key}: {error.strerror}") from error
    _log.warning("key_replaced_late", key=str(key), why="the replacement of the certificate was cut off")


def write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file that is not there yet, and have it on the disk. Raises OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _belong(cert: Path, key: Path) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(OSError):  # ssl.SSLError is one: it does not belong, or is no PEM
        context.load_cert_chain(cert, key)
        return True
    return False
