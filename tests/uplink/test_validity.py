"""The dates of a certificate, read without the library that makes certificates: the two must agree."""

import base64
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from fleetd.ports import UplinkError
from fleetd.uplink.validity import validity_in, validity_of

KEY = ec.generate_private_key(ec.SECP256R1())
TIMES = st.datetimes(datetime(1950, 1, 1), datetime(2499, 1, 1)).map(lambda t: t.replace(microsecond=0, tzinfo=UTC))  # noqa: DTZ001


def certificate(begins: datetime, ends: datetime, *, name: str = "x", serial: int = 1) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(KEY.public_key())
    builder = builder.serial_number(serial).not_valid_before(begins).not_valid_after(ends)
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("fleetd://agent/" + name)])
    return builder.add_extension(names, critical=False).sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)


@given(times=st.tuples(TIMES, TIMES).map(sorted), serial=st.integers(1, 2**150), length=st.integers(1, 64))
def test_it_reads_what_the_library_wrote(times: list[datetime], serial: int, length: int) -> None:
    begins, ends = times
    pem = certificate(begins, ends, name="n" * length, serial=serial)
    read = validity_of(b"# a comment\n" + pem + certificate(begins, begins), where="here")
    assert (read.begins_at_s, read.ends_at_s) == (begins.timestamp(), ends.timestamp())


@given(where=st.integers(0, 10_000), new=st.binary(min_size=0, max_size=4))
def test_damage_is_told_and_never_an_accident(where: int, new: bytes) -> None:
    pem = bytearray(certificate(datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)))
    where %= len(pem)
    pem[where : where + max(1, len(new))] = new
    with suppress(UplinkError):  # and nothing else
        validity_of(bytes(pem), where="here")


@given(der=st.binary(max_size=60))
def test_garbage_between_the_markers_is_told(der: bytes) -> None:
    pem = b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(der) + b"\n-----END CERTIFICATE-----\n"
    with pytest.raises(UplinkError, match="here holds"):
        validity_of(pem, where="here")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UplinkError, match=r"cannot read .*nothing\.crt: No such file"):
        validity_in(tmp_path / "nothing.crt")
