"""The agent's wiring, its start and its end."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleetd import __version__
from fleetd.agent.agent import Agent, SpoolGauges
from fleetd.agent.attachment import Attachment, PatientBurner
from fleetd.agent.chores import Chores
from fleetd.agent.control_socket import ControlSocket
from fleetd.agent.detector import Detector
from fleetd.agent.guard_socket import GuardSocket, guard_socket
from fleetd.agent.log_watch import LogWatch
from fleetd.agent.peer_gpus import addresses, open_devices
from fleetd.agent.power_burner import GrantedBurner
from fleetd.agent.power_lease import PowerLease
from fleetd.agent.power_outside import PowerOutside
from fleetd.agent.renewal import Renewal
from fleetd.agent.sampler import Sampler
from fleetd.agent.status_client import SOCKET, control_socket, default_socket
from fleetd.agent.status_document import document
from fleetd.agent.status_socket import StatusSocket
from fleetd.burner import BurnerConfig, ProcessBurner
from fleetd.compose.certificate import build_renewal
from fleetd.compose.companions import Companions, build_companions, collectors
from fleetd.compose.kernel_log import kernel_log
from fleetd.compose.log_limit import LogLimit
from fleetd.compose.owned import Owned, owned
from fleetd.compose.power_lease import build_lease
from fleetd.compose.reload import Reloader
from fleetd.config.files import AgentConfig
from fleetd.exporter.page import Collector
from fleetd.exporter.server import Exporter
from fleetd.model.ids import GpuId
from fleetd.ports import Burner, Clock
from fleetd.system import (
    RealClock,
    Systemd,
    entropy,
    few_arenas,
    reload_on_signal,
    run_on_daemon,
    setup_logging,
    stop_on_signals,
)
from fleetd.uplink.client import GrpcUplink
from fleetd.uplink.orders import SqliteOrders
from fleetd.uplink.spool import SqliteSpool

EXPOSURE = "burnin-exposure.json"
"""In the state directory: how long each GPU was tested by what. Burn-ins that others start may add to it as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltAgent:
    """An agent with what has to be closed after it."""

    agent: Agent
    status: StatusSocket
    control: ControlSocket
    guard: GuardSocket
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
    """Wire an agent. Raises StoreError: its state directory; ConfigError: its envelope; UplinkError: its certificate.

    Args:
        config: as it was read from `path`.
        path: where it is read again from.
        clock: real time.
        systemd: the service manager.
        restart: ends the agent in good order; the service manager starts it again.
        compat: overrides the configuration's `exporter: compat`.
    """
    own = owned(config, clock)
    outside = PowerOutside(standing=own.spool.faults(), samples=own.sampler.latest)
    lease = build_lease(config.power, own, clock=clock)
    companions = build_companions(
        config,
        own.devices,
        clock=clock,
        inventory=lambda: own.sampler.inventory,
        restart=restart,
        released=lambda: own.attachment.released_s is not None,
        outside=outside,
        lease=lease,
        renewal=_renewal(config, own, clock),
    )
    uplink = GrpcUplink(config.uplink, clock=clock, rng=entropy())
    log_watch = _log_watch(config, own, clock, outside.hear)
    agent = _wired(config, own, companions, uplink=uplink, clock=clock, systemd=systemd, log_watch=log_watch)
    reloader = Reloader(path, config, apply=_live(agent, own.sampler, own.detector), clock=clock)
    return BuiltAgent(
        agent=agent,
        status=_status_socket(config, own, agent, companions),
        control=ControlSocket(control_socket(_socket(config)), _requests(own.attachment)),
        guard=_guard_socket(config, own, clock),
        reloader=reloader,
        uplink=uplink,
        spool=own.disk,
        orders=own.orders,
        collectors=(
            *collectors(
                agent,
                companions,
                tally=own.tally,
                clock=clock,
                host=own.host,
                compat=compat or config.exporter.compat,
                exposure=own.folder / EXPOSURE,
            ),
            reloader,
        ),
    )


def _renewal(config: AgentConfig, own: Owned, clock: Clock) -> Renewal | None:
    again = own.sampler.inventory_changed.set  # it connects anew, as when a GPU came or went
    return build_renewal(config, host=own.host, clock=clock, rng=entropy(), renewed=again)


def _wired(
    config: AgentConfig,
    own: Owned,
    companions: Companions,
    *,
    uplink: GrpcUplink,
    clock: RealClock,
    systemd: Systemd,
    log_watch: LogWatch | None,
) -> Agent:
    return Agent(
        host=own.host,
        boot_id=own.boot,
        version=__version__,
        sampler=own.sampler,
        chores=_chores(config, own, clock, companions.lease),
        uplink=uplink,
        devices=own.attachment,
        spool=own.spool,
        spool_gauges=SpoolGauges(pending=lambda: own.disk.depth, dropped_total=lambda: own.disk.dropped_total),
        clock=clock,
        notify=systemd.notify,
        watchdog_s=systemd.watchdog_s,
        place=config.place,
        log_watch=log_watch,
        detector=own.detector,
        companions=companions.loops,
        power=companions.lease,
    )


def _chores(config: AgentConfig, own: Owned, clock: Clock, lease: PowerLease | None) -> Chores:
    exposure = own.folder / EXPOSURE
    burner: Burner = ProcessBurner(host=own.host, config=_burner_config(config), exposure=exposure)
    if lease is not None:
        burner = GrantedBurner(burner, lease, clock=clock)
    return Chores(
        host=own.host,
        boot_id=own.boot,
        orders=own.orders,
        burner=PatientBurner(burner, own.attachment),
        spool=own.spool,
        clock=clock,
        reports=own.folder / "burnin",
        config=config.chores,
    )


def _socket(config: AgentConfig) -> Path:
    path = config.status.socket or default_socket(os.environ)
    if path == SOCKET:
        with suppress(OSError):  # the socket will say what is wrong
            SOCKET.parent.mkdir(exist_ok=True)  # the packaged service makes it; /run is empty after a boot
    return path


def _status_socket(config: AgentConfig, own: Owned, agent: Agent, companions: Companions) -> StatusSocket:
    governor = companions.governor
    return StatusSocket(
        _socket(config),
        lambda: document(
            host=own.host,
            boot_id=own.boot,
            version=__version__,
            status=agent.status(),
            faults=own.spool.faults(),
            driver_silent=own.sampler.driver_silent,
            stale_s=own.sampler.config.stale_after_seconds,
            unheard=own.sampler.unheard,
            released_s=own.attachment.released_s,
            power=None if governor is None else governor.status(),
        ),
    )


def _guard_socket(config: AgentConfig, own: Owned, clock: Clock) -> GuardSocket:
    async def held(pid: int) -> frozenset[str]:
        return await run_on_daemon(lambda: frozenset(addresses(open_devices(pid))))

    return GuardSocket(
        guard_socket(_socket(config)),
        host=own.host,
        boot_id=own.boot,
        spool=own.spool,
        clock=clock,
        inventory=lambda: own.sampler.inventory,
        held=held,
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
    config: AgentConfig, own: Owned, clock: Clock, heard: Callable[[str, GpuId | None, str | None], None]
) -> LogWatch | None:
    """The kernel log's reader, which tells `heard` every code. A simulated host has none: this log is not its log."""
    source = config.kernel_log.source
    if source == "auto":
        source = "off" if config.devices.backend == "sim" else "kmsg"
    if source == "off":
        return None
    return LogWatch(
        host=own.host,
        boot_id=own.boot,
        log=kernel_log(source, cursor=config.state_dir / "kernel-log.cursor", boot_id=own.boot, clock=clock),
        catalogue=own.catalogue,
        spool=own.spool,
        clock=clock,
        inventory=lambda: own.sampler.inventory,
        heard=heard,
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
    few_arenas()
    setup_logging(limit=limit)
    stop = stop_on_signals()
    built = build_agent(config, path, clock, Systemd(os.environ), restart=stop.set, compat=compat)
    exporter = Exporter(config.exporter.listen, [*built.collectors, limit])
    try:
        await built.status.start()
        await built.control.start()
        await built.guard.start()
        await built.agent.run(stop, hup=reload_on_signal(), reload=built.reloader.reload)
    finally:
        await built.guard.close()
        await built.control.close()
        await built.status.close()
        exporter.close()
        built.spool.close()
        built.orders.close()
