"""How schedulers and webhooks are reached: the parts of the controller's file that belong to the actuators."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

NAME_CHARS_MAX = 253
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNames:
    """What the scheduler calls the hosts of the fleet."""

    names: Literal["same", "short"] = "same"
    """`short`: the host's name up to its first dot."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Host → node, for those that are called otherwise."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        owner: dict[str, str] = {}
        for host, node in self.nodes.items():
            if len(node) > NAME_CHARS_MAX or not _NODE.fullmatch(node):
                raise ValueError(f"nodes: {node!r:.80} is no name of a node: letters, digits, `.`, `-`, `_`")
            if node in owner:
                raise ValueError(f"nodes: {owner[node]} and {host} both claim the node {node}")
            owner[node] = host

    def node_of(self, host: str) -> str:
        """The scheduler's name of a host."""
        own = host if self.names == "same" else host.partition(".")[0]
        return self.nodes.get(host, own)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """`actuator: {kind: slurm}`: by Slurm's own commands, as a user that may change nodes."""

    kind: Literal["slurm"]
    scontrol: str = "scontrol"
    """Program to run: a name that is looked for in PATH, or a path."""
    squeue: str = "squeue"
    conf: Path | None = None
    """The cluster's slurm.conf, for machines where the commands do not find it by themselves."""
    hosts: NodeNames = field(default_factory=NodeNames)
    timeout_seconds: float = 15.0
    """A command that runs longer is killed; what it was to do is looked at and tried again. Slurm's own patience with a
    controller that is away is about 10 s (MessageTimeout), after which it says what is wrong."""
    checkpoint_seconds: float = 3600.0
    """How long jobs may take to reach their next checkpoint before they are requeued (`drains: checkpoint`)."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if not self.timeout_seconds >= 1:
            raise ValueError(f"timeout_seconds must be at least 1, not {self.timeout_seconds:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig:
    """`actuator: {kind: kubernetes}`: by the API server. The defaults are those of a pod with a service account."""

    kind: Literal["kubernetes"]
    server: str = "https://kubernetes.default.svc"
    ca: Path | None = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
    """Authority of the server's certificate; null: the system's."""
    token: Path | None = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    """File with the bearer token, read before each request because it is renewed; null: none is sent."""
    hosts: NodeNames = field(default_factory=NodeNames)
    timeout_seconds: float = 15.0
    """Of one request, from its beginning to the end of the answer."""
    checkpoint_seconds: float = 3600.0
    """How long pods may take to reach their next checkpoint before they are evicted (`drains: checkpoint`)."""
    gpu_resources: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")
    """Pods that ask for one of these are jobs; the others are left where they are."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        _check_url("server", self.server)
        if not self.timeout_seconds >= 1:
            raise ValueError(f"timeout_seconds must be at least 1, not {self.timeout_seconds:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """Something of the site's own that is told by HTTP, each message signed."""

    kind: Literal["webhook"] = "webhook"
    url: str
    secret: Path
    """File with the key of the signature, at least 16 bytes; white space around it does not count."""
    ca: Path | None = None
    """Authority of the server's certificate; null: the system's."""
    timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        _check_url("url", self.url)
        if not self.timeout_seconds >= 1:
            raise ValueError(f"timeout_seconds must be at least 1, not {self.timeout_seconds:g}")


ActuatorConfig = SlurmConfig | KubernetesConfig | WebhookConfig


def _check_url(key: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # UnicodeError, a ValueError: a label that is empty or too long for the DNS
    except ValueError:
        raise ValueError(f"{key}: {url!r:.120} is no address") from None
    path = url.removeprefix(f"{parts.scheme}://{parts.netloc}")
    if not (path.isascii() and url.isprintable()) or " " in url:
        raise ValueError(f"{key}: {url!r:.120} has characters that no address has; write them as %XX")
    if not host or parts.scheme not in {"http", "https"} or parts.username is not None:
        raise ValueError(f"{key}: {url!r:.120} is no address such as https://HOST[:PORT]/PATH (and names no user)")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise ValueError(f"{key}: {url!r:.120} is not encrypted; use https (http is for loopback addresses)")
