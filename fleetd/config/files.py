"""The two files that people write: `kind: Agent` and `kind: Controller`. Each part is the struct of its owner."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fleetd.agent.chores import ChoresConfig
from fleetd.agent.sampler import SamplerConfig
from fleetd.burner import BurnerConfig
from fleetd.config.strict import load
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.devices.config import DevicesConfig
from fleetd.exporter import ExporterConfig
from fleetd.uplink.config import ServerConfig, UplinkConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """One host's agent."""

    state_dir: Path
    """Where the spool, accepted orders and burn-in reports live; it must exist and belong to the agent alone."""
    host: str | None = None
    """The host's name in the fleet, as its certificate has it; None: what the kernel says."""
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    burner: BurnerConfig = field(default_factory=BurnerConfig)
    chores: ChoresConfig = field(default_factory=ChoresConfig)
    uplink: UplinkConfig
    exporter: ExporterConfig = field(default_factory=ExporterConfig)

    def __post_init__(self) -> None:
        """Refuse a burn-in of something else than the host's GPUs: its pass would be taken for proof. ValueError."""
        if self.devices.backend != "sim" and self.burner.backend in {"sim", "cpu"}:
            raise ValueError(
                f"burner: backend: {self.burner.backend} proves nothing about the GPUs of devices: "
                f"backend: {self.devices.backend}; use auto or cuda"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The controller."""

    state_dir: Path
    """Where the ledger and the dry run's record live; it must exist and belong to the controller alone."""
    policy: str = "default"
    """A shipped policy (`observe`, `default`, `strict`) or the path of one."""
    actuator: Literal["dryrun"] = "dryrun"
    dispatcher: DispatcherConfig = field(default_factory=DispatcherConfig)
    server: ServerConfig
    exporter: ExporterConfig = field(default_factory=ExporterConfig)


def load_agent(path: Path) -> AgentConfig:
    """Read an agent's configuration. Raises ConfigError."""
    return load(path, AgentConfig, kind="Agent")


def load_controller(path: Path) -> ControllerConfig:
    """Read a controller's configuration. Raises ConfigError."""
    return load(path, ControllerConfig, kind="Controller")
