"""Certificates and identities: which files prove who we are, and who a verified certificate names.

Both sides show a certificate. A client's certificate carries exactly one URI `fleetd://ROLE/NAME` among its subject
alternative names; that, not anything said later, is who the peer is.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import grpc
import structlog

from fleetd.ports import Peer, UplinkError
from fleetd.ports.certificate import IDENTITY, peer_named
from fleetd.uplink.config import TlsFiles
from fleetd.uplink.keyfile import read_key

_log = structlog.get_logger(__name__)

_MAX_PEM_BYTES = 1 << 20


def _read(path: str, *, where: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_PEM_BYTES)
    except OSError as error:
        raise UplinkError(f"{where}: cannot read {path}: {error.strerror}") from error
    if b"-----BEGIN " not in content:
        raise UplinkError(f"{where}: {path} is no PEM file")
    return content


def channel_credentials(files: TlsFiles, *, where: str) -> grpc.ChannelCredentials:
    """Read the files of a client; raises UplinkError."""
    return grpc.ssl_channel_credentials(
        root_certificates=_read(files.ca, where=where),
        private_key=read_key(files.key, where=where),
        certificate_chain=_read(files.cert, where=where),
    )


def root_credentials(ca: str, *, where: str) -> grpc.ChannelCredentials:
    """Read what a server's certificate must descend from, for a client that has none yet; raises UplinkError."""
    return grpc.ssl_channel_credentials(root_certificates=_read(ca, where=where))


def server_credentials(files: TlsFiles, *, where: str, clients_named: bool = True) -> grpc.ServerCredentials:
    """Read the files of a server, and again when one of them changes, so that certificates rotate without downtime.

    A client must show a certificate, unless `clients_named` is false: then none is looked at. New files that cannot be
    read are logged, and the last good ones stay in use.
    Raises UplinkError when the first reading fails.
    """
    config = _server_configuration(files, where=where)
    seen = _stamps(files)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        # gRPC calls this on one of its threads before each handshake.
        nonlocal seen
        now = _stamps(files)
        if now == seen:
            return None
        seen = now
        try:
            fresh = _server_configuration(files, where=where)
        except UplinkError as error:
            _log.error("certificates_not_reloaded", why=str(error))
            return None
        _log.info("certificates_reloaded", cert=files.cert)
        return fresh

    # The stub forgets that the fetcher may return None, "no change".
    return grpc.dynamic_ssl_server_credentials(config, changed, require_client_authentication=clients_named)  # type: ignore[arg-type]


def _server_configuration(files: TlsFiles, *, where: str) -> grpc.ServerCertificateConfiguration:
    pair = (read_key(files.key, where=where), _read(files.cert, where=where))
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=_read(files.ca, where=where))


def _stamps(files: TlsFiles) -> tuple[tuple[int, int], ...]:
    """Tell whether a file was replaced: inode and modification time; zeros for a file that is not there now."""
    stamps = []
    for path in (files.ca, files.cert, files.key):
        try:
            status = Path(path).stat()
        except OSError:
            stamps.append((0, 0))
        else:
            stamps.append((status.st_ino, status.st_mtime_ns))
    return tuple(stamps)


def identity(role: str, name: str) -> str:
    """Return the URI that names a peer in its certificate; raises UplinkError on a name that cannot be written so."""
    uri = f"fleetd://{role}/{name}"
    if not IDENTITY.fullmatch(uri):
        raise UplinkError(
            f"{role} {name!r}: a name has 1 to 253 letters, digits, dots, dashes and underscores, "
            "and begins and ends with a letter or a digit"
        )
    return uri


def peer_of(auth_context: Mapping[str, Iterable[bytes]]) -> Peer:
    """Return who a verified certificate names; raises Refused unless it names exactly one peer.

    Args:
        auth_context: gRPC's properties of the connection; the certificate's chain has been checked by then.
    """
    return peer_named(name.decode("utf-8", "replace") for name in auth_context.get("peer_uri", ()))


def certificate_of(auth_context: Mapping[str, Iterable[bytes]]) -> bytes | None:
    """Return a peer's certificate in PEM; None without TLS."""
    return next(iter(auth_context.get("x509_pem_cert", ())), None)
