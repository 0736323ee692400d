"""The agent's wiring, its start and its end."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleetd import __version__
from fleetd.agent.agent import Agent, SpoolGauges
from fleetd.agent.attachment import Attachment, PatientBurner
from fleetd.agent.chores import Chores
from fleetd.agent.control_socket import ControlSocket
from fleetd.agent.detector import Detector
from fleetd.agent.fault_tally import FaultTally
from fleetd.agent.log_watch import LogWatch
from fleetd.agent.sampler import Sampler
from fleetd.agent.standing import StandingSpool
from fleetd.agent.standing_file import StandingFile
from fleetd.agent.status_client import control_socket
from fleetd.agent.status_document import document
from fleetd.agent.status_socket import StatusSocket
from fleetd.burner import BurnerConfig, ProcessBurner
from fleetd.compose.companions import build_companions, collectors
from fleetd.compose.kernel_log import kernel_log
from fleetd.compose.log_limit import LogLimit
from fleetd.compose.places import state_dir
from fleetd.compose.reload import Reloader
from fleetd.config.faults import load_catalogue
from fleetd.config.files import AgentConfig
from fleetd.core.faults.catalogue import Catalogue
from fleetd.devices.helper import HelperDevices
from fleetd.exporter.page import Collector
from fleetd.exporter.server import Exporter
from fleetd.model.host import Gpu
from fleetd.model.ids import BootId, GpuId, HostName
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock, Devices, Spool
from fleetd.sim.gpu import SimDevices
from fleetd.system import (
    RealClock,
    Systemd,
    boot_id,
    entropy,
    host_name,
    reload_on_signal,
    setup_logging,
    stop_on_signals,
)
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
    control: ControlSocket
    reloader: Reloader
    uplink: GrpcUplink
    spool: SqliteSpool
    orders: SqliteOrders
    collectors: Sequence[Collector]


def build_agent(
    config: AgentConfig,
    path: Path,
    clock: RealClock,
    systemd: Systemd,
    *,
    restart: Callable[[], None],
    compat: str | None = None,
) -> BuiltAgent:
    """Wire an agent. Raises StoreError: its state directory cannot be used.

    Args:
        config: as it was read from `path`.
        path: where it is read again from.
        clock: real time.
        systemd: the service manager.
        restart: ends the agent in good order; the service manager starts it again.
        compat: overrides the configuration's `exporter: compat`.
    """
    host = HostName(config.host) if config.host else host_name()
    boot = boot_id()
    folder = state_dir(config.state_dir)
    disk = SqliteSpool(folder / "spool.db", rng=entropy())
    catalogue = load_catalogue()
    tally = FaultTally(disk)
    spool = StandingSpool(tally, catalogue=catalogue, clock=clock, file=StandingFile(folder / "standing.json", boot))
    orders = SqliteOrders(folder / "orders.db")
    devices: Devices = DEVICES.get(config.devices.backend, _vendor)(host, config, clock)
    attachment = Attachment(devices, clock=clock)
    detector = Detector(host=host, boot_id=boot, catalogue=catalogue, spool=spool, clock=clock, config=config.detect)

    def judge(samples: tuple[GpuSample, ...], inventory: tuple[Gpu, ...], troubles: Mapping[GpuId, str]) -> None:
        detector.round(samples, inventory, troubles)
        spool.ended(detector.take_cleared())

    sampler = Sampler(
        host=host, boot_id=boot, devices=attachment, spool=spool, clock=clock, config=config.sampler, on_round=judge
    )
    chores = Chores(
        host=host,
        boot_id=boot,
        orders=orders,
        burner=PatientBurner(ProcessBurner(host=host, config=_burner_config(config)), attachment),
        spool=spool,
        clock=clock,
        reports=folder / "burnin",
        config=config.chores,
    )
    companions = build_companions(config, devices, clock=clock, inventory=lambda: sampler.inventory, restart=restart)
    uplink = GrpcUplink(config.uplink, clock=clock, rng=entropy())
    agent = Agent(
        host=host,
        boot_id=boot,
        version=__version__,
        sampler=sampler,
        chores=chores,
        uplink=uplink,
        devices=attachment,
        spool=spool,
        spool_gauges=SpoolGauges(pending=lambda: disk.depth, dropped_total=lambda: disk.dropped_total),
        clock=clock,
        notify=systemd.notify,
        watchdog_s=systemd.watchdog_s,
        place=config.place,
        log_watch=_log_watch(config, host, boot, catalogue=catalogue, spool=spool, clock=clock, sampler=sampler),
        detector=detector,
        companions=companions.loops,
    )
    reloader = Reloader(path, config, apply=_live(agent, sampler, detector), clock=clock)
    at = config.status.socket or folder / "agent.sock"
    status = StatusSocket(
        at,
        lambda: document(
            host=host,
            boot_id=boot,
            version=__version__,
            status=agent.status(),
            faults=spool.faults(),
            driver_silent=sampler.driver_silent,
            stale_s=sampler.config.stale_after_seconds,
            released_s=attachment.released_s,
        ),
    )
    control = ControlSocket(control_socket(at), _requests(attachment))
    shown = collectors(agent, companions, tally=tally, clock=clock, host=host, compat=compat or config.exporter.compat)
    return BuiltAgent(
        agent=agent,
        status=status,
        control=control,
        reloader=reloader,
        uplink=uplink,
        spool=disk,
        orders=orders,
        collectors=(*shown, reloader),
    )


def _live(agent: Agent, sampler: Sampler, detector: Detector) -> Callable[[AgentConfig], None]:
    """What makes `reload.LIVE` take effect."""

    def apply(config: AgentConfig) -> None:
        sampler.configure(config.sampler)
        detector.configure(config.detect)
        agent.stand(config.place)

    return apply


def _requests(attachment: Attachment) -> Callable[[dict[str, Any]], Awaitable[str]]:
    """What may be asked for over the control socket."""

    async def carry_out(request: dict[str, Any]) -> str:
        match request:
            case {"do": "release", "seconds": int() | float() as seconds, **rest} if not rest:
                return await attachment.release(seconds)
            case {"do": "attach", **rest} if not rest:
                attachment.attach()
                return ""
        raise ValueError("known are release with seconds, and attach")

    return carry_out


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


def run_agent(config: AgentConfig, path: Path, *, compat: str | None = None) -> None:
    """Run an agent until SIGTERM or SIGINT; SIGHUP reads `path` again. Raises PortError when it cannot start.

    `compat` overrides the configuration's `exporter: compat`.
    """
    asyncio.run(_agent(config, path, compat))


async def _agent(config: AgentConfig, path: Path, compat: str | None) -> None:
    clock = RealClock()
    limit = LogLimit(clock)
    setup_logging(limit=limit)
    stop = stop_on_signals()
    built = build_agent(config, path, clock, Systemd(os.environ), restart=stop.set, compat=compat)
    exporter = Exporter(config.exporter.listen, [*built.collectors, limit])
    try:
        await built.status.start()
        await built.control.start()
        await built.agent.run(stop, hup=reload_on_signal(), reload=built.reloader.reload)
    finally:
        await built.control.close()
        await built.status.close()
        exporter.close()
        built.spool.close()
        built.orders.close()
