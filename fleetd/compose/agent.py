"""The agent's wiring, its start and its end."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fleetd import __version__
from fleetd.agent.agent import Agent, SpoolGauges
from fleetd.agent.chores import Chores
from fleetd.agent.detector import Detector
from fleetd.agent.log_watch import LogWatch
from fleetd.agent.sampler import Sampler
from fleetd.agent.standing import StandingSpool
from fleetd.agent.standing_file import StandingFile
from fleetd.agent.status_document import document
from fleetd.agent.status_socket import StatusSocket
from fleetd.burner import BurnerConfig, ProcessBurner
from fleetd.compose.kernel_log import kernel_log
from fleetd.compose.places import state_dir
from fleetd.config.faults import load_catalogue
from fleetd.config.files import AgentConfig
from fleetd.core.faults.catalogue import Catalogue
from fleetd.devices.helper import HelperDevices
from fleetd.exporter.native import AgentCollector, BuildCollector
from fleetd.exporter.server import Exporter
from fleetd.model.host import Gpu
from fleetd.model.ids import BootId, GpuId, HostName
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock, Devices, Spool
from fleetd.sim.gpu import SimDevices
from fleetd.system import RealClock, Systemd, boot_id, entropy, host_name, setup_logging, stop_on_signals
from fleetd.uplink.client import GrpcUplink
from fleetd.uplink.orders import SqliteOrders
from fleetd.uplink.spool import SqliteSpool


def _vendor(_host: HostName, config: AgentConfig, clock: Clock) -> Devices:
    return HelperDevices(vendor=config.devices.backend, clock=clock, config=config.devices)


def _simulated(host: HostName, config: AgentConfig, clock: Clock) -> Devices:
    return SimDevices(host=host, gpus=config.devices.gpus, seed=config.devices.seed, clock=clock)


DEVICES: dict[str, Callable[[HostName, AgentConfig, Clock], Devices]] = {
    "amd": _vendor,
    "nvidia": _vendor,
    "sim": _simulated,
}
"""`devices.backend` → what makes it. Any other is a reader of one's own, by `module:factory`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltAgent:
    """An agent with what has to be closed after it."""

    agent: Agent
    status: StatusSocket
    uplink: GrpcUplink
    spool: SqliteSpool
    orders: SqliteOrders


def build_agent(config: AgentConfig, clock: RealClock, systemd: Systemd) -> BuiltAgent:
    """Wire an agent. Raises StoreError when its state directory cannot be used."""
    host = HostName(config.host) if config.host else host_name()
    boot = boot_id()
    folder = state_dir(config.state_dir)
    disk = SqliteSpool(folder / "spool.db", rng=entropy())
    catalogue = load_catalogue()
    spool = StandingSpool(disk, catalogue=catalogue, clock=clock, file=StandingFile(folder / "standing.json", boot))
    orders = SqliteOrders(folder / "orders.db")
    devices: Devices = DEVICES.get(config.devices.backend, _vendor)(host, config, clock)
    detector = Detector(host=host, boot_id=boot, catalogue=catalogue, spool=spool, clock=clock, config=config.detect)

    def judge(samples: tuple[GpuSample, ...], inventory: tuple[Gpu, ...], troubles: Mapping[GpuId, str]) -> None:
        detector.round(samples, inventory, troubles)
        spool.ended(detector.take_cleared())

    sampler = Sampler(
        host=host, boot_id=boot, devices=devices, spool=spool, clock=clock, config=config.sampler, on_round=judge
    )
    chores = Chores(
        host=host,
        boot_id=boot,
        orders=orders,
        burner=ProcessBurner(host=host, config=_burner_config(config)),
        spool=spool,
        clock=clock,
        reports=folder / "burnin",
        config=config.chores,
    )
    uplink = GrpcUplink(config.uplink, clock=clock, rng=entropy())
    agent = Agent(
        host=host,
        boot_id=boot,
        version=__version__,
        sampler=sampler,
        chores=chores,
        uplink=uplink,
        devices=devices,
        spool=spool,
        spool_gauges=SpoolGauges(pending=lambda: disk.depth, dropped_total=lambda: disk.dropped_total),
        clock=clock,
        notify=systemd.notify,
        watchdog_s=systemd.watchdog_s,
        place=config.place,
        log_watch=_log_watch(config, host, boot, catalogue=catalogue, spool=spool, clock=clock, sampler=sampler),
        detector=detector,
    )
    status = StatusSocket(
        config.status.socket or folder / "agent.sock",
        lambda: document(
            host=host,
            boot_id=boot,
            version=__version__,
            status=agent.status(),
            faults=spool.faults(),
            driver_silent=sampler.driver_silent,
            stale_s=config.sampler.stale_after_seconds,
        ),
    )
    return BuiltAgent(agent=agent, status=status, uplink=uplink, spool=disk, orders=orders)


def _log_watch(
    config: AgentConfig,
    host: HostName,
    boot: BootId,
    *,
    catalogue: Catalogue,
    spool: Spool,
    clock: Clock,
    sampler: Sampler,
) -> LogWatch | None:
    """The kernel log's reader. A simulated host has none: this machine's log is not its log."""
    source = config.kernel_log.source
    if source == "auto":
        source = "off" if config.devices.backend == "sim" else "kmsg"
    if source == "off":
        return None
    return LogWatch(
        host=host,
        boot_id=boot,
        log=kernel_log(source, cursor=config.state_dir / "kernel-log.cursor", boot_id=boot, clock=clock),
        catalogue=catalogue,
        spool=spool,
        clock=clock,
        inventory=lambda: sampler.inventory,
    )


def _burner_config(config: AgentConfig) -> BurnerConfig:
    """Simulated devices are burnt in as simulated devices; no other backend ever sees a planted fault."""
    if config.devices.backend != "sim":
        return config.burner
    return replace(config.burner, backend="sim", gpus=config.devices.gpus, inject=config.devices.fault)


def run_agent(config: AgentConfig) -> None:
    """Run an agent until SIGTERM or SIGINT. Raises PortError when it cannot start."""
    setup_logging()
    asyncio.run(_agent(config))


async def _agent(config: AgentConfig) -> None:
    built = build_agent(config, RealClock(), Systemd(os.environ))
    exporter = Exporter(config.exporter.listen, [AgentCollector(built.agent.status), BuildCollector(__version__)])
    try:
        await built.status.start()
        await built.agent.run(stop_on_signals())
    finally:
        await built.status.close()
        exporter.close()
        built.spool.close()
        built.orders.close()
