"""Where Prometheus finds the metrics; a module of its own, so that reading a configuration loads no server."""

import ipaddress
from dataclasses import dataclass

_PORT_MAX = 65535
COMPAT = ("dcgm",)
"""Names of other exporters that the agent can serve beside its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterConfig:
    """Where Prometheus finds the metrics."""

    listen: str
    """`ADDRESS:PORT`, IPv6 in brackets. Metrics are served without authentication: beyond loopback they are readable
    by everybody who reaches the port. Port 0: any free one."""

    def __post_init__(self) -> None:
        """Refuse what is no address. Raises ValueError."""
        parse_listen(self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentExporterConfig(ExporterConfig):
    """Where Prometheus finds an agent's metrics; its GPUs may be served under further names."""

    listen: str = "127.0.0.1:9466"
    compat: str | None = None
    """`dcgm`: also under the names, labels and units of dcgm-exporter, for NVIDIA and AMD; None: fleetd's own only."""

    def __post_init__(self) -> None:
        """Refuse what cannot be served. Raises ValueError."""
        ExporterConfig.__post_init__(self)  # no super(): a class with slots is made twice
        if self.compat is not None and self.compat not in COMPAT:
            raise ValueError(
                f"compat: {self.compat!r} is none of {', '.join(COMPAT)}; remove it for fleetd's names only"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerExporterConfig(ExporterConfig):
    """Where Prometheus finds a controller's metrics: by default beside an agent's, as both may run on one host."""

    listen: str = "127.0.0.1:9467"


def parse_listen(listen: str) -> tuple[str, int]:
    """Split `ADDRESS:PORT`. Raises ValueError."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    try:
        ipaddress.ip_address(host)
        valid = bool(colon) and port.isdecimal() and int(port) <= _PORT_MAX
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"listen: {listen!r} is no ADDRESS:PORT; write for example 127.0.0.1:9466 or [::1]:9466")
    return host, int(port)
