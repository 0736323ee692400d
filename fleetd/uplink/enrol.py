"""How a host gets a certificate: a key that never leaves it, a request, an answer that is checked, two files.

Needs `cryptography` (extra `enrol`): imported by `fleetd agent enrol` and by the short process that renews.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fleetd.model.ids import HostName
from fleetd.pb.v1 import identity_pb2
from fleetd.pb.v1.identity_pb2_grpc import EnrolmentStub, IdentityStub
from fleetd.ports import Refused, UplinkError, Validity
from fleetd.uplink.certificate import client_names, common_name
from fleetd.uplink.channel import failure, open_channel
from fleetd.uplink.config import TlsFiles
from fleetd.uplink.key_files import heal, replace_pair, waiting_key, write_new
from fleetd.uplink.tls import root_credentials
from fleetd.uplink.validity import validity_in
from fleetd.uplink.wire import MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Of one host."""

    ca: Path
    """What the controller's certificate must descend from."""
    cert: Path
    key: Path


def enrol(
    address: str, files: Files, *, host: HostName, token: str, answer_s: float, now_s: float, force: bool = False
) -> Validity:
    """Spend a token and write the host's key and certificate; blocks.

    Args:
        address: `HOST:PORT` of the controller's enrolment.
        files: `cert` and `key` are made, or replaced.
        host: whom the certificate is to name.
        token: of an operator.
        answer_s: how long the controller may take.
        now_s: wall time.
        force: also when the host has a certificate that counts.

    Returns:
        How long the certificate counts.

    Raises:
        UplinkError: no connection; the answer is for somebody else; the disk refuses.
        Refused: there is one that counts, or the controller says no.
    """
    heal(files.cert, files.key)
    if files.cert.exists() and files.key.exists() and not force:
        left_s = validity_in(files.cert).ends_at_s - now_s
        if left_s > 0:
            raise Refused(f"{files.cert} counts for {left_s / 86400:.1f} days more: use --force to replace it")

    async def ask(csr: str) -> str:
        credentials = root_credentials(str(files.ca), where=address)
        channel = open_channel(address, None, receive_max_bytes=MAX_MESSAGE_BYTES, credentials=credentials)
        async with channel:
            request = identity_pb2.EnrolRequest(token=token, host=host, csr=csr)
            answer = await EnrolmentStub(channel).Enrol(request, timeout=answer_s)
            return str(answer.chain)

    return _fetch(address, files, host, ask)


def renew(address: str, files: Files, *, host: HostName, answer_s: float) -> Validity:
    """Replace the host's key and certificate by new ones, by the word of the present ones; blocks.

    Args:
        address: `HOST:PORT` where agents connect.
        files: as they are in use.
        host: whom the certificate names.
        answer_s: how long the controller may take.

    Returns:
        How long the new certificate counts.

    Raises:
        UplinkError: no connection; the answer is for somebody else; the disk refuses.
        Refused: the controller says no.
    """
    heal(files.cert, files.key)

    async def ask(csr: str) -> str:
        tls = TlsFiles(ca=str(files.ca), cert=str(files.cert), key=str(files.key))
        async with open_channel(address, tls, receive_max_bytes=MAX_MESSAGE_BYTES) as channel:
            answer = await IdentityStub(channel).Renew(identity_pb2.RenewRequest(csr=csr), timeout=answer_s)
            return str(answer.chain)

    return _fetch(address, files, host, ask)


def _fetch(address: str, files: Files, host: HostName, ask: Callable[[str], Awaitable[str]]) -> Validity:
    names = client_names("agent", host)
    key = _key(waiting_key(files.key))

    async def answer() -> str:
        try:
            return await ask(_request(key, host, names))
        except grpc.aio.AioRpcError as error:
            raise failure(error, address, secure=True) from error

    chain = asyncio.run(answer())
    _check(chain, key, names, address)
    replace_pair(files.cert, files.key, chain)
    return validity_in(files.cert)


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The key that waits, or a new one. Kept over attempts: a token is spent on a key, whose answer may get lost."""
    try:
        if path.exists():
            try:
                key = load_pem_private_key(path.read_bytes(), password=None)
            except (ValueError, TypeError, UnsupportedAlgorithm):
                path.unlink()  # half a file: its writer was killed before anybody knew of it
            else:
                if isinstance(key, ec.EllipticCurvePrivateKey):
                    return key
                path.unlink()
        made = ec.generate_private_key(ec.SECP256R1())
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_new(path, pem, mode=0o600)
    except OSError as error:
        raise UplinkError(f"cannot write {path}: {error.strerror}") from error
    return made


def _request(key: ec.EllipticCurvePrivateKey, host: HostName, names: list[x509.GeneralName]) -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(common_name(f"agent {host}"))
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode("ascii")


def _check(chain: str, key: ec.EllipticCurvePrivateKey, names: list[x509.GeneralName], address: str) -> None:
    """Before it replaces what works. Raises UplinkError."""
    try:
        first = x509.load_pem_x509_certificates(chain.encode("ascii"))[0]
        named = list(first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ValueError, x509.ExtensionNotFound) as error:
        raise UplinkError(f"the controller at {address} sent no certificate that can be read") from error
    if first.public_key() != key.public_key() or named != names:
        raise UplinkError(f"the controller at {address} sent a certificate for another key or another host")
