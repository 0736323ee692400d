"""How hosts come by their certificates: what people and agents ask for, and what that needs of the world."""

from dataclasses import dataclass
from typing import Protocol

from fleetd.model.ids import HostName
from fleetd.ports.desk import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """From when until when a certificate counts; wall times."""

    begins_at_s: float
    ends_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Lets a host enrol, once."""

    token: str
    """The secret itself: shown once, kept nowhere."""
    expires_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """What is kept of a token."""

    host: HostName
    """The only one that it is for."""
    expires_at_s: float
    spent_on: str | None = None
    """Digest of the public key that it was spent on; None: it was not spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One line of the audit of identities."""

    at_s: float
    what: str
    """`token`, `enrol`, `renew`."""
    host: str
    """As it was asked for; of a stranger it is no more than what he says."""
    who: str
    """A person, an agent, or an address."""
    refused: bool
    why: str


class TokenBook(Protocol):
    """Keeps tokens, by their digest, and the audit. Every call is short; all of it is on disk when it returns."""

    def issue(self, digest: str, record: TokenRecord, *, now_s: float) -> None:
        """Keep a new token. Raises Refused when too many wait to be spent; StoreError."""

    def token(self, digest: str) -> TokenRecord | None:
        """What is known of a token. Raises StoreError."""

    def spend(self, digest: str, key: str) -> bool:
        """Spend a token on a key, once; whether it is spent on this key now. Raises StoreError."""

    def note(self, attempt: Attempt) -> None:
        """Add to the audit, in which the oldest give way. Raises StoreError."""

    def attempts(self, *, limit: int) -> tuple[Attempt, ...]:
        """The newest, newest first. Raises StoreError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for a certificate whose sender has proved that he has the key."""

    key: str
    """Digest of the public key."""
    csr: str
    """PEM."""


class Signer(Protocol):
    """The authority that signs agents' certificates."""

    def read(self, csr: str) -> Request:
        """Check a request. Raises Refused: it is damaged, or its key is of a kind that is not signed."""

    def sign(self, host: HostName, request: Request, *, now_s: float) -> tuple[str, Validity]:
        """Make the certificate of a host's agent: its PEM chain. Raises UplinkError."""


class IdentityDoor(Protocol):
    """What the controller offers about identities, whatever the transport."""

    async def issue_token(self, peer: Peer, host: HostName, reason: str) -> Token:
        """Let a host enrol, once. Raises Refused, StoreError."""

    async def enrol(self, address: str, token: str, host: HostName, csr: str) -> str:
        """Spend a token: the PEM chain for the host. Raises Refused, StoreError, UplinkError."""

    async def renew(self, peer: Peer, csr: str) -> str:
        """A new certificate for the agent that asks: its PEM chain. Raises Refused, StoreError, UplinkError."""


class Certificates(Protocol):
    """An agent's own certificate."""

    def validity(self) -> Validity:
        """Of the file as it is now. Raises UplinkError."""

    async def renew(self) -> None:
        """Replace it by a new one. Raises Refused: the controller says no; UplinkError."""
