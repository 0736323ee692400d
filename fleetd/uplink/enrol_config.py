"""Configuration of the controller's authority over agents' certificates; apart, so that reading it loads no gRPC."""

from dataclasses import dataclass
from pathlib import Path

from fleetd.ports import UplinkError
from fleetd.uplink.config import split_address


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentConfig:
    """This controller signs the certificates of its agents. Without this section the site's CA does."""

    ca: Path
    """PEM: the certificate that signs, and after it those between it and the root. `server: ca` must lead to it."""
    ca_key: Path
    """PEM, without a passphrase; readable for this service only. It is read for each signature."""
    listen: str | None = None
    """`HOST:PORT` where hosts without a certificate may spend a token; null: nobody enrols, agents renew."""
    certificate_seconds: float = 30 * 86400.0
    """How long a certificate counts, never longer than the authority itself; agents renew when a third is left."""
    token_seconds: float = 3600.0
    """How long a token counts."""
    attempts_per_second: float = 20.0
    """Attempts to enrol that are looked at in the long run, and five times as many at once."""
    attempts_per_second_each: float = 1.0
    """The same of one address; at once at least 10."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.listen is not None:
            try:
                split_address(self.listen, where="listen")
            except UplinkError as error:
                raise ValueError(str(error)) from error
        for name in ("token_seconds", "attempts_per_second", "attempts_per_second_each"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")
        if self.certificate_seconds < CERTIFICATE_MIN_SECONDS:
            raise ValueError(
                f"certificate_seconds: {self.certificate_seconds:g} is below {CERTIFICATE_MIN_SECONDS:g}: "
                "clocks differ, and a controller may be away for a while"
            )


CERTIFICATE_MIN_SECONDS = 600.0
"""A third of it is what an agent has to renew in."""
