"""What runs beside the agent's own loops, and what the agent serves as metrics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import getpid
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd import __version__
from fleetd.agent.agent import Agent, Loop
from fleetd.agent.fault_tally import FaultTally
from fleetd.agent.governor import Governor
from fleetd.agent.governor_ports import Outside
from fleetd.agent.jobs import JobWatch
from fleetd.agent.memory import STUCK, MemoryWatch
from fleetd.agent.power_lease import PowerLease
from fleetd.agent.renewal import Renewal
from fleetd.compose.certificate import CertificateCollector
from fleetd.compose.power import build_governor
from fleetd.config.files import AgentConfig
from fleetd.devices.helper import HelperDevices
from fleetd.exporter.dcgm import DcgmCollector
from fleetd.exporter.exposure import ExposureCollector
from fleetd.exporter.native import AgentCollector, BuildCollector, FaultCollector, JobCollector
from fleetd.exporter.page import Collector
from fleetd.exporter.power import PowerCollector
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId, HostName
from fleetd.ports import Clock, Devices
from fleetd.system import resident_bytes, run_on_daemon, user_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Companions:
    """The agent's loops that need nothing of each other."""

    jobs: JobWatch
    memory: MemoryWatch
    governor: Governor | None = None
    lease: PowerLease | None = None
    renewal: Renewal | None = None

    @property
    def loops(self) -> Mapping[str, Loop]:
        """By name."""
        governor = {} if self.governor is None else {"governor": self.governor.run}
        renewal = {} if self.renewal is None else {"certificate": self.renewal.run}
        return {"jobs": self.jobs.run, "memory": self.memory.run, **governor, **renewal}


def build_companions(
    config: AgentConfig,
    devices: Devices,
    *,
    clock: Clock,
    inventory: Callable[[], tuple[Gpu, ...]],
    restart: Callable[[], None],
    released: Callable[[], bool] = lambda: False,
    outside: Outside | None = None,
    lease: PowerLease | None = None,
    renewal: Renewal | None = None,
) -> Companions:
    """`devices` are those of the vendor; `restart` ends the agent in good order. Raises ConfigError: of the envelope.

    `released`: whether the agent has let go of the GPUs; `outside`: what speaks against boost from elsewhere; `lease`:
    the host's of the fleet's power budgets.
    """
    helper = devices if isinstance(devices, HelperDevices) else None

    def processes() -> Mapping[GpuId, tuple[int, ...]]:
        return {} if helper is None else helper.processes

    def memory() -> Mapping[str, float]:
        stuck = () if helper is None else helper.stuck
        working = () if helper is None else (pid for pid in helper.helpers if pid not in stuck)
        held = {"agent": resident_bytes(getpid()), "helper": sum(map(resident_bytes, working), 0.0)}
        return held | ({STUCK: sum(map(resident_bytes, stuck), 0.0)} if stuck else {})

    return Companions(
        jobs=JobWatch(
            config=config.jobs,
            clock=clock,
            run_blocking=run_on_daemon,
            inventory=inventory,
            processes=processes,
            user_name=user_name,
        ),
        memory=MemoryWatch(config=config.memory, clock=clock, read=memory, restart=restart),
        governor=build_governor(
            config.power, devices, clock=clock, inventory=inventory, released=released, outside=outside, budget=lease
        ),
        lease=lease,
        renewal=renewal,
    )


class MemoryCollector:
    """`fleetd_agent_resident_bytes`: the agent's own memory, as it watches it."""

    def __init__(self, watch: MemoryWatch) -> None:
        self._watch = watch

    def collect(self) -> list[Metric]:
        """Nothing before the first look."""
        text = "Resident memory of the agent and of its vendor helpers; shared pages count for each."
        family = GaugeMetricFamily("fleetd_agent_resident_bytes", text, labels=["process"])
        for process, held in self._watch.resident_bytes.items():
            family.add_metric([process], held)
        return [family] if family.samples else []


def collectors(
    agent: Agent,
    companions: Companions,
    *,
    tally: FaultTally,
    clock: Clock,
    host: HostName,
    compat: str | None,
    exposure: Path,
) -> Sequence[Collector]:
    """Everything that an agent shows of itself and of its GPUs.

    `compat`: see `AgentExporterConfig`. `exposure`: the file that burn-ins add to.
    """
    began_at_s, jobs = clock.wall_s(), companions.jobs
    found: list[Collector] = [
        AgentCollector(agent.status, started_at_s=began_at_s),
        FaultCollector(tally.counts, started_at_s=began_at_s),
        JobCollector(jobs.jobs, errors=lambda: jobs.errors_total, started_at_s=began_at_s),
        MemoryCollector(companions.memory),
        ExposureCollector(exposure),
        BuildCollector(__version__),
    ]
    if companions.governor is not None:
        found.append(PowerCollector(companions.governor.status, started_at_s=began_at_s))
    if companions.renewal is not None:
        found.append(CertificateCollector(companions.renewal, started_at_s=began_at_s))
    if compat == "dcgm":
        found.append(DcgmCollector(agent.status, host=host, faults=tally.counts, jobs=jobs.jobs))
    return found
