"""Reads a private key from a file, if nobody else can; and whether a key and its certificates fit together.

A key that others can read is a key that others may have: it has to be refused while somebody still looks, not found in
an audit. The rule is that of PostgreSQL for its own keys: a file of root's may be read by its group besides, which is
how service managers and Kubernetes hand keys to a service; any other file by its owner only. Nobody else may write it.
"""

import os
import ssl
import stat
from pathlib import Path

from fleetd.ports import UplinkError
from fleetd.uplink.config import TlsFiles

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


def check_files(files: TlsFiles, *, where: str) -> None:
    """Read what one side of a connection needs, before there is any connection.

    Raises:
        UplinkError: a file cannot be read, the key is open to others, or it is not that of the certificate.
    """
    read_key(files.key, where=where)
    for path in (files.ca, files.cert):
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise UplinkError(f"{where}: cannot read {path}: {error.strerror}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(files.ca)
        context.load_cert_chain(files.cert, files.key, password="")  # a service has nobody to ask for another one
    except ssl.SSLError as error:
        other = "one of them holds no whole certificate or key, or is locked by a passphrase"
        why = (error.reason or other).lower().replace("_", " ")
        raise UplinkError(
            f"{where}: {files.ca}, {files.cert} and {files.key} cannot be used together: {why}"
        ) from error
