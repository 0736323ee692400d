"""Whether what a configuration names is on this machine and usable by this user; nothing is started or changed."""

from collections.abc import Callable, Iterator
from functools import partial

from fleetd.actuators.config import KubernetesConfig, WebhookConfig
from fleetd.actuators.http import read_secret, read_token
from fleetd.actuators.webhook import SECRET_MIN_BYTES
from fleetd.compose.places import state_dir
from fleetd.compose.power import usable_envelope
from fleetd.config import ConfigError, load_policy
from fleetd.config.files import AgentConfig, ControllerConfig
from fleetd.config.power_tree import load_power_tree
from fleetd.config.setpoint import load_setpoint
from fleetd.config.shipped import policy_path
from fleetd.ports import PortError
from fleetd.uplink.config import TlsFiles
from fleetd.uplink.keyfile import check_files


def problems_here(config: AgentConfig | ControllerConfig) -> tuple[str, ...]:
    """Try everything that is named, and return what cannot be used, one line each."""
    return tuple(_failures(_agent(config) if isinstance(config, AgentConfig) else _controller(config)))


def _failures(trials: Iterator[Callable[[], object]]) -> Iterator[str]:
    for trial in trials:
        try:
            trial()
        except (ConfigError, PortError) as error:
            yield str(error)


def _agent(config: AgentConfig) -> Iterator[Callable[[], object]]:
    yield lambda: state_dir(config.state_dir)
    yield from _tls(config.uplink.tls, "uplink")
    if (envelope := config.power.envelope) is not None:
        yield lambda: usable_envelope(config.power, envelope)
    if (point := config.power.set_point) is not None:
        yield lambda: load_setpoint(point)


def _controller(config: ControllerConfig) -> Iterator[Callable[[], object]]:
    yield lambda: state_dir(config.state_dir)
    yield from _tls(config.server.tls, "server")
    yield lambda: load_policy(policy_path(config.policy))
    if (tree := config.power.tree) is not None:
        yield lambda: load_power_tree(tree)
    for told in (config.actuator, config.pages):
        if isinstance(told, WebhookConfig):
            yield partial(read_secret, told.secret, at_least=SECRET_MIN_BYTES)
    if isinstance(config.actuator, KubernetesConfig) and (token := config.actuator.token) is not None:
        yield lambda: read_token(token)


def _tls(files: TlsFiles | None, where: str) -> Iterator[Callable[[], object]]:
    if files is not None:
        yield lambda: check_files(files, where=where)
