"""From when until when a certificate counts, read with the standard library alone.

The agent watches its own certificate all the time, and the library that makes certificates would cost it 10 MiB. X.509
is RFC 5280, its encoding X.690: of a certificate we walk to `validity`, the fifth field.
"""

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

from fleetd.ports import UplinkError, Validity

_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_MAX_PEM_BYTES = 1 << 20
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----\s.+?-----END CERTIFICATE-----", re.DOTALL)


def validity_in(path: Path) -> Validity:
    """Read the dates of the first certificate in a file; raises UplinkError."""
    try:
        with path.open("rb") as file:
            pem = file.read(_MAX_PEM_BYTES)
    except OSError as error:
        raise UplinkError(f"cannot read {path}: {error.strerror}") from error
    return validity_of(pem, where=str(path))


def validity_of(pem: bytes, *, where: str) -> Validity:
    """Read the dates of the first certificate in PEM.

    Args:
        pem: what a file holds, or what TLS says of a peer; what follows the first certificate is its chain.
        where: what it is, for messages.

    Raises:
        UplinkError: there is no certificate in it, or it is damaged.
    """
    found = _PEM.search(pem)
    if found is None:
        raise UplinkError(f"{where} holds no certificate in PEM")
    try:
        return _validity(ssl.PEM_cert_to_DER_cert(found[0].decode("ascii")))
    except (ValueError, IndexError) as error:
        raise UplinkError(f"{where} holds a certificate that is damaged") from error


def _validity(der: bytes) -> Validity:
    """Raises ValueError, IndexError."""
    signed = _value(der, _SEQUENCE)[0]
    fields = _value(signed, _SEQUENCE)[0]
    if fields[0] == _VERSION:
        fields = _value(fields, _VERSION)[1]
    for _field in ("serialNumber", "signature", "issuer"):
        fields = _value(fields, None)[1]
    times = _value(fields, _SEQUENCE)[0]
    begins, rest = _time(times)
    ends, rest = _time(rest)
    if rest:
        raise ValueError("more than two times")
    return Validity(begins_at_s=begins, ends_at_s=ends)


def _value(der: bytes, tag: int | None) -> tuple[bytes, bytes]:
    """Take one element apart: (its value, what follows it). Raises ValueError, IndexError."""
    if tag is not None and der[0] != tag:
        raise ValueError(f"tag {der[0]:#x} where {tag:#x} was expected")
    length, begins = der[1], 2
    if length & 0x80:  # the long form: so many bytes of length follow
        begins += length & 0x7F
        length = int.from_bytes(der[2:begins])
    if len(der) < begins + length:
        raise ValueError("cut off")
    return der[begins : begins + length], der[begins + length :]


def _time(der: bytes) -> tuple[float, bytes]:
    """Seconds since the epoch, and what follows; UTCTime until 2049, GeneralizedTime from then on, both in Z."""
    if der[0] not in {_UTC_TIME, _GENERALIZED_TIME}:
        raise ValueError("no time")
    value, rest = _value(der, None)
    text = value.decode("ascii")
    if der[0] == _UTC_TIME:  # two digits of the year: 50 and above are of the last century
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp(), rest
