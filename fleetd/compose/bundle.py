"""The evidence bundle: which parts it has, and where each of them comes from."""

import http.client
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fleetd import __version__
from fleetd.agent import bundle
from fleetd.agent.bundle_pack import PackError, Part, default_name, pack, zstd_installed
from fleetd.agent.bundle_redact import Redactor
from fleetd.agent.status_client import NoAnswer, ask
from fleetd.config.files import AgentConfig, load_agent
from fleetd.config.strict import ConfigError
from fleetd.devices.kernel_sources import KmsgSource
from fleetd.exporter.config import parse_listen
from fleetd.system import RealClock, boot_id, host_name

UNIT = "fleetd-agent.service"
_GPU_FIELD = re.compile(r'"gpu": ?"([^"\\]{4,})"')
"""As findings and standing faults name a GPU. What is shorter identifies nobody, and stands in every text."""
_RECORDS = ("findings.jsonl", "standing.json")
_ASK_S = 2.0
_METRICS_BYTES_MAX = 8 << 20
_KERNEL_LINES_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRequest:
    """What is to be bundled, and where to."""

    config: Path
    """The agent's configuration; what it names is in it, also when the agent is dead."""
    socket: Path
    """The agent's status socket."""
    out: Path | None
    """None: a name by the time, in the present directory."""
    redact: bool
    root: Path = Path("/")
    """Below it lie `proc`, `sys` and `etc`."""


def make_bundle(request: BundleRequest) -> tuple[Path, dict[str, Any]]:
    """Make a bundle; its path and its manifest. Raises PackError.

    A configuration that is there but bad is evidence; one that is not there is a mistyped path, and a bundle without
    the agent's state is not what was asked for.
    """
    if not request.config.exists():
        raise PackError(f"{request.config}: no such file; name the agent's configuration with --config")
    at_s = RealClock().wall_s()
    status, why = _status(request.socket)
    parts = list(_parts(request, status, why))
    if request.redact:
        redactor = Redactor([*_names(status, _config(request.config)), *_accused(parts)])
        parts = [
            Part(name=part.name, text=redactor.text(part.text), missing=redactor.text(part.missing)) for part in parts
        ]
    out = request.out or Path(default_name(at_s, ".tar.zst" if zstd_installed() else ".tar.gz"))
    about = {"fleetd_version": __version__, "redacted": request.redact, "agent_answers": bool(status)}
    return out, pack(parts, out, at_s=at_s, about=about)


def _parts(request: BundleRequest, status: dict[str, Any], why: str) -> Iterator[Part]:
    config = _config(request.config)
    yield Part(name="status.json", text=bundle.as_json(status)) if status else Part(name="status.json", missing=why)
    yield bundle.had("config.yaml", lambda: _config_text(request.config))
    yield bundle.had("metrics.txt", lambda: _metrics(config))
    if config is None:
        yield Part(name="findings.jsonl", missing="the configuration that names the state directory is unreadable")
    else:
        yield bundle.had("findings.jsonl", lambda: bundle.spooled(config.state_dir))
        yield bundle.had("standing.json", lambda: bundle.tail(config.state_dir / "standing.json"))
        yield from bundle.reports(config.state_dir)
    yield bundle.had("versions.json", lambda: bundle.versions(request.root, fleetd=__version__))
    yield bundle.had("topology.json", lambda: bundle.topology(request.root))
    yield bundle.had("nvidia-driver.txt", lambda: bundle.tail(request.root / "proc/driver/nvidia/params"))
    yield bundle.had("agent-log.txt", lambda: bundle.journal(f"--unit={UNIT}", f"--lines={bundle.LOG_LINES_MAX}"))
    yield bundle.had("kernel-log.txt", lambda: bundle.kernel_lines(_kernel_log(request.root)))


def _kernel_log(root: Path) -> str:
    """This boot's, from the journal; where that has none, what the kernel still has. Raises OSError, ValueError."""
    try:
        text = bundle.journal("--dmesg", "--boot=0")
    except (OSError, ValueError):
        text = ""
    if text:
        return text
    source = KmsgSource.open(root / "dev/kmsg", boot_id=boot_id(), after=None)
    try:
        lines: list[str] = []
        while (found := source.read()) and len(lines) < _KERNEL_LINES_MAX:
            lines += (line.text for line in found)
    finally:
        source.close()
    return "\n".join(lines)


def _status(socket: Path) -> tuple[dict[str, Any], str]:
    """The agent's status, or an empty one and why."""
    try:
        return ask(socket, timeout_s=_ASK_S), ""
    except NoAnswer as error:
        return {}, str(error)


def _config(path: Path) -> AgentConfig | None:
    try:
        return load_agent(path)
    except ConfigError:
        return None  # its text is in the bundle all the same


def _config_text(path: Path) -> str:
    """The configuration without its comments, which may say anything. Raises OSError, ValueError."""
    try:
        return yaml.safe_dump(yaml.safe_load(bundle.tail(path)), sort_keys=False)
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML: {error}") from error


def _metrics(config: AgentConfig | None) -> str:
    """The agent's metrics: the latest reading of every GPU, and how the agent does. Raises OSError, ValueError."""
    if config is None:
        raise ValueError("the configuration that says where they are served is unreadable")
    # Not by urllib: it would ask the site's proxy, which the environment may name, for what this host serves.
    connection = http.client.HTTPConnection(*parse_listen(config.exporter.listen), timeout=_ASK_S)
    try:
        connection.request("GET", "/metrics")
        with closing(connection.getresponse()) as response:  # it has a hold on the socket, too
            body = response.read(_METRICS_BYTES_MAX)
    except http.client.HTTPException as error:
        raise ValueError(f"what listens on {config.exporter.listen} speaks no HTTP: {error!r:.80}") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise ValueError(f"what listens on {config.exporter.listen} answers {response.status}")
    return body.decode(errors="replace")


def _names(status: dict[str, Any], config: AgentConfig | None) -> Iterator[tuple[str, str]]:
    """What identifies this host wherever it stands: not every name can be told by its looks."""
    yield "host", host_name()
    yield "host", host_name().partition(".")[0]
    yield "host", str(status.get("host", ""))
    for gpu in status.get("gpus", ()):
        yield "gpu", str(gpu.get("gpu", ""))
    yield "boot", str(status.get("boot_id", ""))
    if config is not None:
        yield "host", config.host or ""
        for address in config.uplink.addresses:
            yield "controller", address.rpartition(":")[0]


def _accused(parts: Iterable[Part]) -> Iterator[tuple[str, str]]:
    """The GPUs that the agent's own records name: with the agent dead nobody else says how they are called."""
    for part in parts:
        if part.name in _RECORDS:
            yield from (("gpu", name) for name in dict.fromkeys(_GPU_FIELD.findall(part.text)))
