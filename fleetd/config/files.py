"""The two files that people write: `kind: Agent` and `kind: Controller`. Each part is the struct of its owner."""

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from fleetd.actuators.config import KubernetesConfig, SlurmConfig, WebhookConfig
from fleetd.agent.chores import ChoresConfig
from fleetd.agent.governor_config import GovernorConfig
from fleetd.agent.jobs_config import JobsConfig
from fleetd.agent.log_watch import KernelLogConfig
from fleetd.agent.memory import MemoryConfig
from fleetd.agent.sampler import SamplerConfig
from fleetd.agent.status_socket import StatusConfig
from fleetd.burner import BurnerConfig
from fleetd.config.strict import load
from fleetd.controller.dispatcher import DispatcherConfig
from fleetd.controller.power_config import BudgetConfig
from fleetd.controller.scheduler_watch import SchedulerWatchConfig
from fleetd.core.detect_config import DetectConfig
from fleetd.devices.config import DevicesConfig
from fleetd.exporter.config import AgentExporterConfig, ControllerExporterConfig
from fleetd.model.host import Place
from fleetd.stores.place import PgPlace
from fleetd.stores.retention import RetentionConfig
from fleetd.uplink.config import ServerConfig, UplinkConfig
from fleetd.uplink.enrol_config import EnrolmentConfig
from fleetd.web.config import WebConfig

HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""As in the DNS, with underscores; certificates, burn-in reports and metrics carry it."""
PLACE_CHARS_MAX = 256
"""What the protocol carries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """One host's agent."""

    state_dir: Path
    """Where the spool, accepted orders and burn-in reports live; it must exist and belong to the agent alone."""
    host: str | None = None
    """The host's name in the fleet, as its certificate has it; None: what the kernel says."""
    place: Place = field(default_factory=Place)
    """Where the host stands; budgets and comparisons by pool, rack or domain need it."""
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    detect: DetectConfig = field(default_factory=DetectConfig)
    status: StatusConfig = field(default_factory=StatusConfig)
    burner: BurnerConfig = field(default_factory=BurnerConfig)
    chores: ChoresConfig = field(default_factory=ChoresConfig)
    kernel_log: KernelLogConfig = field(default_factory=KernelLogConfig)
    jobs: JobsConfig = field(default_factory=JobsConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    power: GovernorConfig = field(default_factory=GovernorConfig)
    uplink: UplinkConfig
    exporter: AgentExporterConfig = field(default_factory=AgentExporterConfig)

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.host is not None and not HOST_NAME.fullmatch(self.host):
            raise ValueError(f"host: {self.host!r:.80} is no host name: letters, digits, `.`, `-`, `_`, at most 253")
        for label in fields(self.place):
            value = getattr(self.place, label.name)
            if value is not None and not (value.isprintable() and 0 < len(value) <= PLACE_CHARS_MAX):
                raise ValueError(
                    f"place: {label.name}: {value!r:.80} is no label: 1 to {PLACE_CHARS_MAX} printable characters"
                )
        # The pass of a burn-in of something else than the host's GPUs would be taken for proof.
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
    store: str | None = None
    """A ledger that several controllers share, one of which judges: `postgresql://USER@HOST/DATABASE`, and what else
    libpq understands; passwords by a file (`?passfile=`, PGPASSFILE). null: `fleet.db` in `state_dir`."""
    policy: str = "default"
    """A shipped policy (`observe`, `default`, `strict`) or the path of one."""
    actuator: Literal["dryrun"] | SlurmConfig | KubernetesConfig | WebhookConfig = "dryrun"
    """What carries orders out; `dryrun` records what would have been done, and touches nothing."""
    pages: WebhookConfig | None = None
    """Where what a human has to know is sent; null: it is logged, and goes to a webhook that is the actuator."""
    dispatcher: DispatcherConfig = field(default_factory=DispatcherConfig)
    scheduler: SchedulerWatchConfig = field(default_factory=SchedulerWatchConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    power: BudgetConfig = field(default_factory=BudgetConfig)
    server: ServerConfig
    enrolment: EnrolmentConfig | None = None
    """The controller signs its agents' certificates; null: the site's CA does."""
    exporter: ControllerExporterConfig = field(default_factory=ControllerExporterConfig)
    web: WebConfig | None = None
    """The HTTP API and the page; null: neither is served."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.enrolment is not None and self.server.insecure:
            raise ValueError("enrolment: it needs a server with TLS: remove `insecure`, and name ca, cert and key")
        if self.store is not None:
            try:
                PgPlace(url=self.store)
            except ValueError as error:
                raise ValueError(f"store: {error}") from None


def load_agent(path: Path) -> AgentConfig:
    """Read an agent's configuration. Raises ConfigError."""
    return load(path, AgentConfig, kind="Agent")


def load_controller(path: Path) -> ControllerConfig:
    """Read a controller's configuration. Raises ConfigError."""
    return load(path, ControllerConfig, kind="Controller")
