"""The `Signer` port on a CA's files. Needs the extra `controller`.

Always true: it signs for agents only, and of a request it takes the public key alone: names, dates and uses are ours.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from fleetd.model.ids import HostName
from fleetd.ports import Refused, Request, UplinkError, Validity
from fleetd.uplink.certificate import EARLY, PublicKey, base, client_names, leaf
from fleetd.uplink.keyfile import read_key

_FILE_MAX_BYTES = 1 << 20
_CURVES = (ec.SECP256R1, ec.SECP384R1)
_RSA_BITS = range(2048, 4097)
"""What TLS libraries agree on; larger RSA keys cost whoever checks them more than they are worth."""


class FileAuthority:
    """Signs with the key in a file, which is read for each signature: a new CA is taken up, and no key is kept."""

    def __init__(self, ca: Path, ca_key: Path, *, trusted: Path, life_s: float) -> None:
        """Check the files once, so that what is wrong with them is said at the start and not to the first host.

        Args:
            ca: PEM: the certificate that signs, and after it those between it and the root.
            ca_key: its key in PEM.
            trusted: PEM of what the controller accepts of agents: what is signed here has to be among it.
            life_s: how long a certificate counts.

        Raises:
            UplinkError: a file cannot be used, or the controller would not accept what is signed.
        """
        self._ca, self._ca_key, self._life_s = ca, ca_key, life_s
        chain, _key = self._load()
        roots = _certificates(trusted)
        if not any(certificate in roots or _signed_by_one_of(certificate, roots) for certificate in chain):
            raise UplinkError(
                f"enrolment: this controller would turn away what {ca} signs: add that certificate to {trusted}"
            )

    def read(self, csr: str) -> Request:
        """Check a request. Raises Refused: it is damaged, or its key is of a kind that is not signed."""
        return Request(key=_digest(_requested(csr)), csr=csr)

    def sign(self, host: HostName, request: Request, *, now_s: float) -> tuple[str, Validity]:
        """Make the certificate of a host's agent: its PEM chain. Raises UplinkError, Refused."""
        chain, key = self._load()
        issuer, public_key = chain[0], _requested(request.csr)
        now = datetime.fromtimestamp(now_s, UTC).replace(microsecond=0)
        ends = min(now + timedelta(seconds=self._life_s), issuer.not_valid_after_utc)
        # Agents count their certificate's life from here: of a short one the slack for clocks is a part.
        begins = max(now - min(EARLY, timedelta(seconds=self._life_s / 10)), issuer.not_valid_before_utc)
        if ends <= now:
            raise UplinkError(f"enrolment: the certificate in {self._ca} ended at {ends:%Y-%m-%d %H:%M}: replace it")
        builder = base(
            subject=f"agent {host}",
            public_key=public_key,
            issuer=issuer.subject,
            begins=begins,
            ends=ends,
            authority=_authority_of(issuer),
        )
        signed = leaf(builder, client_names("agent", host), server=False).sign(key, hashes.SHA256())
        between = [certificate for certificate in chain if certificate.subject != certificate.issuer]
        pem = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in (signed, *between))
        return pem.decode("ascii"), Validity(begins_at_s=begins.timestamp(), ends_at_s=ends.timestamp())

    def _load(self) -> tuple[list[x509.Certificate], ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey]:
        chain, path = _certificates(self._ca), self._ca_key
        constraints = chain[0].extensions
        try:
            is_authority = constraints.get_extension_for_class(x509.BasicConstraints).value.ca
        except x509.ExtensionNotFound:
            is_authority = False
        if not is_authority:
            raise UplinkError(f"enrolment: the first certificate in {self._ca} is not one of an authority")
        pem = read_key(str(path), where="enrolment")
        try:
            key = load_pem_private_key(pem, password=None)
        except TypeError as error:
            raise UplinkError(f"enrolment: {path} has a passphrase, and nobody is there to type it") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise UplinkError(f"enrolment: {path} holds no private key in PEM that can be read") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise UplinkError(f"enrolment: the key in {path} is neither an elliptic curve's nor RSA")
        if key.public_key() != chain[0].public_key():
            raise UplinkError(f"enrolment: the key in {path} is not that of the first certificate in {self._ca}")
        return chain, key


def _requested(csr: str) -> PublicKey:
    """The public key of a request that its private key has signed. Raises Refused."""
    try:
        request = x509.load_pem_x509_csr(csr.encode("ascii"))
        key = request.public_key()
        if not _may_be_signed(key):
            raise Refused("a key must be of the curve P-256 or P-384, or RSA of 2048 to 4096 bits")
        assert isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)  # noqa: S101 - what was just asked
        whole = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
        raise Refused("the request for a certificate is damaged") from error
    if not whole:
        raise Refused("the request for a certificate is not signed by its own key")
    return key


def _may_be_signed(key: object) -> bool:
    if isinstance(key, ec.EllipticCurvePublicKey):
        return isinstance(key.curve, _CURVES)
    return isinstance(key, rsa.RSAPublicKey) and key.key_size in _RSA_BITS


def _digest(key: PublicKey) -> str:
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _authority_of(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """The issuer's own id of its key, if it has one: checkers compare the two."""
    try:
        own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        public_key = issuer.public_key()
        assert isinstance(public_key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)  # noqa: S101 - its private key is
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(public_key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError as error:
        raise UplinkError(f"enrolment: {path} holds no certificate in PEM that can be read") from error


def _signed_by_one_of(certificate: x509.Certificate, roots: list[x509.Certificate]) -> bool:
    for root in roots:
        try:
            certificate.verify_directly_issued_by(root)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_MAX_BYTES)
    except OSError as error:
        raise UplinkError(f"enrolment: cannot read {path}: {error.strerror}") from error
