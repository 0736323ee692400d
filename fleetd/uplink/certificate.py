"""What fleetd's certificates look like, whoever signs them. Needs `cryptography`: imported only where one is made."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fleetd.uplink.tls import identity

EARLY = timedelta(hours=1)
"""Certificates begin a little in the past: clocks of a fleet differ."""

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


def base(
    *,
    subject: str,
    public_key: PublicKey,
    issuer: x509.Name,
    begins: datetime,
    ends: datetime,
    authority: x509.AuthorityKeyIdentifier,
) -> x509.CertificateBuilder:
    """What every certificate has: names, key, serial number, dates, the ids of both keys."""
    return (
        x509.CertificateBuilder()
        .subject_name(common_name(subject))
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(authority, critical=False)
    )


def leaf(
    builder: x509.CertificateBuilder, names: Sequence[x509.GeneralName], *, server: bool
) -> x509.CertificateBuilder:
    """Make it one that proves who somebody is, as a server or as a client, and signs no other."""
    use = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )


def client_names(role: str, name: str) -> list[x509.GeneralName]:
    """Who a client is. Raises UplinkError on a name that cannot be written so."""
    return [x509.UniformResourceIdentifier(identity(role, name))]


def common_name(value: str) -> x509.Name:
    """A subject for people; nothing is decided by it. At most 64 characters of it fit (RFC 5280, ub-common-name)."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value[:64])])


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """An authority signs certificates and nothing else; everybody else signs handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
