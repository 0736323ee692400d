"""A development certificate authority with everything a small fleet needs, made in one go or not at all.

For laptops, tests and demonstrations. A site's own CA signs the same identities in production: a URI
`fleetd://agent/HOST`, `fleetd://operator/NAME` or `fleetd://viewer/NAME` among the subject alternative names.
Needs the extra `controller`: import this module only where certificates are made; agents do without.
"""

import ipaddress
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fleetd.ports import UplinkError
from fleetd.uplink.certificate import EARLY, base, client_names, common_name, key_usage, leaf
from fleetd.uplink.tls import identity

VALID_DAYS = 365
"""How long development certificates live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevPki:
    """What to make: one CA, one controller, and a certificate for each name."""

    hosts: tuple[str, ...]
    operators: tuple[str, ...]
    viewers: tuple[str, ...] = ()
    sans: tuple[str, ...] = ()
    """More names and addresses of the controller, beside localhost, 127.0.0.1 and ::1."""


def make_dev_pki(directory: Path, wanted: DevPki, *, now_s: float) -> None:
    """Make `directory` with `ca`, `controller`, `agents/HOST`, `operators/NAME` and `viewers/NAME` (`.crt`, `.key`).

    The directory appears complete or not at all.

    Args:
        directory: must not exist, or be empty.
        wanted: the names.
        now_s: wall time, seconds since the epoch.

    Raises:
        UplinkError: the directory is in use, a name cannot be written into a certificate, or the disk refuses.
    """
    in_use = f"{directory} exists already: name a new directory, nothing in it was changed"
    try:
        if os.path.lexists(directory) and not (directory.is_dir() and not any(directory.iterdir())):
            raise UplinkError(in_use)
        directory.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    except OSError as error:
        raise UplinkError(f"cannot make {directory}: {error.strerror}") from error
    try:
        _fill(scratch, wanted, datetime.fromtimestamp(now_s, UTC))
        scratch.rename(directory)  # replaces an empty directory, and nothing else
    except OSError as error:
        raise UplinkError(in_use if directory.exists() else f"cannot make {directory}: {error.strerror}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fill(directory: Path, wanted: DevPki, now: datetime) -> None:
    ca = _Authority(now)
    ca.write(directory / "ca")
    local = ["localhost", "127.0.0.1", "::1"]
    ca.issue(directory / "controller", "fleetd controller", _server_names([*local, *wanted.sans]), server=True)
    for folder, role, names in (
        ("agents", "agent", wanted.hosts),
        ("operators", "operator", wanted.operators),
        ("viewers", "viewer", wanted.viewers),
    ):
        if names:
            (directory / folder).mkdir(mode=0o700)
        for name in dict.fromkeys(names):
            ca.issue(directory / folder / name, f"{role} {name}", client_names(role, name), server=False)


def _server_names(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            identity("agent", name)  # the same rule for what a host name may be
            found.append(x509.DNSName(name))
    return found


class _Authority:
    """The CA of one directory; its key is written once and never leaves the process otherwise."""

    def __init__(self, now: datetime) -> None:
        self._begins, self._ends = now - EARLY, now + timedelta(days=VALID_DAYS)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = "fleetd development CA"
        builder = self._builder(self._name, self._key.public_key())
        self._cert = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).add_extension(
            key_usage(signs_certificates=True), critical=True
        )
        self._signed = self._sign(self._cert)

    def write(self, stem: Path) -> None:
        """Write the CA's own `.crt` and `.key`."""
        _write_pair(stem, self._signed, self._key)

    def issue(self, stem: Path, subject: str, names: list[x509.GeneralName], *, server: bool) -> None:
        """Make a key and a certificate and write them to `stem` + `.key` and `.crt`."""
        key = ec.generate_private_key(ec.SECP256R1())
        _write_pair(stem, self._sign(leaf(self._builder(subject, key.public_key()), names, server=server)), key)

    def _builder(self, subject: str, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return base(
            subject=subject,
            public_key=public_key,
            issuer=common_name(self._name),
            begins=self._begins,
            ends=self._ends,
            authority=x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )

    def _sign(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(self._key, hashes.SHA256())


def _write_pair(stem: Path, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for suffix, mode, content in ((".crt", 0o644, cert.public_bytes(Encoding.PEM)), (".key", 0o600, private)):
        path = stem.parent / (stem.name + suffix)  # not with_suffix: a host name has dots
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
