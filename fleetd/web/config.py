"""Where the web server listens, and whom it believes; a module of its own, so that reading it loads no server."""

import ipaddress
import math
from dataclasses import dataclass
from pathlib import Path

_PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """The HTTP API and the page.

    Who somebody is, says his client certificate (if `ca` is named) or his bearer token (if `tokens` is).
    """

    listen: str = "127.0.0.1:7480"
    """`ADDRESS:PORT`, IPv6 in brackets; port 0 takes a free one."""
    cert: str | None = None
    """PEM file of the server's certificate chain. It, `key` and `ca` are read again when they change."""
    key: str | None = None
    ca: str | None = None
    """Certificates that a client's certificate must descend from; null: none is asked for."""
    tokens: Path | None = None
    """File of bearer tokens, a line each: NAME ROLE SHA256 [EXPIRES]; `fleetd token new` makes them."""
    insecure: bool = False
    """Plain HTTP; loopback addresses only. Without `tokens` whoever can open a socket on this host is believed."""
    agents_port: int = 9466
    """Port at which Prometheus finds the metrics of each agent, for `/sd/agents`."""
    connections_max: int = 512
    """For one more, the one that has rested longest between two requests is closed; if none rests, it gets a 503."""
    changes_per_minute: float = 120.0
    """That one peer may ask for; a quarter of it at once."""
    reads_per_second: float = 100.0
    """The same for questions, in the long run; ten times as many at once. An event stream is one."""
    session_seconds: float = 12 * 3600.0
    """After that a browser has to show its token again."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        host, _ = parse_listen(self.listen)
        given = [word for word, value in (("cert", self.cert), ("key", self.key), ("ca", self.ca)) if value]
        if self.insecure:
            if given:
                raise ValueError(f"insecure: it and {', '.join(given)} exclude each other, remove one of them")
            if not ipaddress.ip_address(host).is_loopback:
                raise ValueError(
                    f"insecure: {self.listen} is not the loopback, where alone it may be; use cert and key, "
                    "or let a proxy with TLS stand before the loopback"
                )
        else:
            missing = [word for word in ("cert", "key") if word not in given]
            if missing:
                raise ValueError(
                    f"{missing[0]}: missing; `fleetd pki dev DIR` makes development certificates, "
                    "or set `insecure` for an address on the loopback"
                )
            if not self.ca and self.tokens is None:
                raise ValueError("ca: neither it nor `tokens` is given, so nobody could come in; name one of them")
        if not 0 < self.agents_port <= _PORT_MAX:
            raise ValueError(f"agents_port: {self.agents_port} is no port")
        for name in ("connections_max", "changes_per_minute", "reads_per_second", "session_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")

    @property
    def open(self) -> bool:
        """Whether everybody on this machine is believed."""
        return self.insecure and self.tokens is None


def parse_listen(listen: str) -> tuple[str, int]:
    """Split `ADDRESS:PORT`. Raises ValueError."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    try:
        ipaddress.ip_address(host)
        valid = bool(colon) and port.isascii() and port.isdecimal() and int(port) <= _PORT_MAX
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"listen: {listen!r} is no ADDRESS:PORT; write for example 127.0.0.1:7480 or [::1]:7480")
    return host, int(port)
