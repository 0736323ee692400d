"""Configuration of the uplink's three ends; a module of its own, so that reading a configuration does not load gRPC.

Without TLS only the loopback may be used: what travels here takes hosts away from their users.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address

from fleetd.ports import UplinkError

HELLO_PATIENCE = 2
"""So many times `answer_seconds` has a controller from the beginning of a connection to its answer to the hello.

The whole fleet may be coming back: who goes away half-way comes back to the end of the queue, and what was done for him
is lost. 5,000 agents at once that waited for 10 s were all served after twice the time of those that wait for 20 s.
"""
KEEPALIVE_SECONDS = 30.0
KEEPALIVE_ANSWER_SECONDS = 10.0
"""A line without traffic is tried after the first time; one that does not answer within the second is dead."""

DEFAULT_ADDRESS = "127.0.0.1:7443"
_ADDRESSES_MAX = 16
_AGENTS_MAX = 1_000_000
"""Far beyond what one controller serves, and what gRPC still counts in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where the three PEM files of one side are; they are read again for every new connection (rotation)."""

    ca: str
    """Certificates that the other side's certificate must descend from."""
    cert: str
    key: str


def tls_files(
    address: str, *, ca: str | None, cert: str | None, key: str | None, insecure: bool, where: str
) -> TlsFiles | None:
    """Decide how an address may be used.

    Args:
        address: `HOST:PORT`, `[IPV6]:PORT`.
        ca: path of the CA certificates.
        cert: path of our certificate.
        key: path of our private key.
        insecure: do without TLS; only on the loopback.
        where: what is configured, for messages (`uplink`, `listen`).

    Returns:
        The files for mutual TLS; None for plain text on the loopback.

    Raises:
        UplinkError: no such address, files missing, or plain text beyond this host.
    """
    host, _port = split_address(address, where=where)
    given = [word for word, value in (("ca", ca), ("cert", cert), ("key", key)) if value]
    if insecure:
        if given:
            raise UplinkError(f"{where}: `insecure` and {', '.join(given)} exclude each other, remove one of them")
        if not is_loopback(host):
            raise UplinkError(
                f"{where}: {address} is not on this host, and `insecure` is for the loopback only; use ca, cert and key"
            )
        return None
    if not (ca and cert and key):
        missing = [word for word in ("ca", "cert", "key") if word not in given]
        raise UplinkError(
            f"{where}: {', '.join(missing)} missing; `fleetd pki dev DIR` makes development certificates, "
            "or set `insecure` for an address on the loopback"
        )
    return TlsFiles(ca=ca, cert=cert, key=key)


def split_address(address: str, *, where: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT` or `[IPV6]:PORT`; raises UplinkError on anything else."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    # A closed character set: gRPC would read `unix:…`, `dns:…` or a list of addresses in it.
    good_host = re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", host) is not None
    if not colon or not good_host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:  # noqa: PLR2004
        raise UplinkError(f"{where}: {address!r} is no address, write HOST:PORT (or [IPV6]:PORT)")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's loopback."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkConfig:
    """The agent's line to its controller."""

    address: str | tuple[str, ...] = DEFAULT_ADDRESS
    """`HOST:PORT` of the controller, or a list of those that share a ledger; each name must be one of those in the
    controller's certificate. They are tried in turn until one takes us: the judge."""
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False
    """Plain text; loopback addresses only."""
    telemetry_interval_seconds: float = 10.0
    answer_seconds: float = 10.0
    """How long the controller may take to acknowledge a finding; for its answer to the hello it has `HELLO_PATIENCE`
    times as long. Then it is tried anew."""
    retry_first_seconds: float = 0.5
    retry_max_seconds: float = 30.0
    """The wait after every controller was tried doubles from the first to the maximum, and is drawn from its upper
    half; between two of one round there is none."""
    refused_seconds: float = 60.0
    """The wait after the controller has said no: somebody has to change something first."""
    renew: bool = False
    """Replace `cert` and `key` by new ones, of the controller, before they end: for hosts that were enrolled. Without,
    whoever made the files replaces them; they are read anew for every connection."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if not 1 <= len(self.addresses) <= _ADDRESSES_MAX or len(set(self.addresses)) < len(self.addresses):
            raise ValueError(f"address: name from 1 to {_ADDRESSES_MAX} controllers, each once")
        for address in self.addresses:
            _check_link(self, address, "address")
        _check_positive(
            self,
            "telemetry_interval_seconds",
            "answer_seconds",
            "retry_first_seconds",
            "retry_max_seconds",
            "refused_seconds",
        )
        if self.renew and self.insecure:
            raise ValueError("renew: there is no certificate to renew without TLS: remove `insecure` or `renew`")

    @property
    def slowest_return_seconds(self) -> float:
        """How long an agent may need at most after a short break: to see it, for its longest wait, for the answer."""
        seen = KEEPALIVE_SECONDS + KEEPALIVE_ANSWER_SECONDS
        answers = HELLO_PATIENCE * self.answer_seconds * len(self.addresses)
        return seen + max(self.retry_max_seconds, self.refused_seconds) + answers

    @property
    def addresses(self) -> tuple[str, ...]:
        """The controllers, in the order in which they are tried."""
        return (self.address,) if isinstance(self.address, str) else self.address

    @property
    def tls(self) -> TlsFiles | None:
        """The files for mutual TLS; None: plain text. Raises UplinkError."""
        return tls_files(
            self.addresses[0], ca=self.ca, cert=self.cert, key=self.key, insecure=self.insecure, where="address"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where the controller listens for agents and operators."""

    listen: str = DEFAULT_ADDRESS
    """`HOST:PORT`; port 0 takes a free one."""
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False
    """Plain text; loopback addresses only. Whoever can open a socket on this host is then believed."""
    hello_seconds: float = 10.0
    """How long a new connection may take to say hello."""
    agents_max: int = 10_000
    """Streams served at once; more are turned away and try again."""
    drain_retry_after_seconds: float = 2.0
    """What agents are told to wait when the controller stops in order."""
    agent_calls_per_second: float = 2.0
    """What each agent may ask in the long run, its connections among it; at once at least 10."""
    agent_messages_per_second: float = 200.0
    """How many messages of each agent's stream are taken in the long run, and five times as many at once. What is
    beyond waits on the line, and nothing is lost: one agent that talks without end slows down itself only."""
    desk_calls_per_second: float = 50.0
    """What each operator or viewer may ask in the long run, and five times as many at once."""
    slow_reader_seconds: float = 30.0
    """An agent that does not read what it is sent for so long is disconnected; its orders are kept."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        _check_link(self, self.listen, "listen")
        _check_positive(
            self,
            "hello_seconds",
            "agents_max",
            "drain_retry_after_seconds",
            "agent_calls_per_second",
            "agent_messages_per_second",
            "desk_calls_per_second",
            "slow_reader_seconds",
        )
        if self.agents_max > _AGENTS_MAX:
            raise ValueError(f"agents_max: {self.agents_max} is more than {_AGENTS_MAX}")

    @property
    def tls(self) -> TlsFiles | None:
        """The files for mutual TLS; None: plain text. Raises UplinkError."""
        return tls_files(self.listen, ca=self.ca, cert=self.cert, key=self.key, insecure=self.insecure, where="listen")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskConfig:
    """How an operator's command reaches the controller. Checked when it is used: it comes from a command line."""

    address: str = DEFAULT_ADDRESS
    """`HOST:PORT`, or several with commas between them: of controllers that share a ledger the judge is asked."""
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False
    """Plain text; loopback addresses only."""
    answer_seconds: float = 10.0
    """How long the controller may take to answer."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The controllers, in the order in which they are asked."""
        return tuple(self.address.replace(" ", "").split(","))

    @property
    def tls(self) -> TlsFiles | None:
        """The files for mutual TLS; None: plain text. Raises UplinkError."""
        for address in self.addresses:
            files = tls_files(
                address, ca=self.ca, cert=self.cert, key=self.key, insecure=self.insecure, where="controller"
            )
        return files


def _check_link(config: UplinkConfig | ServerConfig, address: str, where: str) -> None:
    try:
        tls_files(address, ca=config.ca, cert=config.cert, key=config.key, insecure=config.insecure, where=where)
    except UplinkError as error:
        raise ValueError(str(error)) from error


def _check_positive(config: UplinkConfig | ServerConfig, *names: str) -> None:
    for name in names:
        if not 0 < getattr(config, name) < float("inf"):
            raise ValueError(f"{name}: {getattr(config, name)} is not above 0")
