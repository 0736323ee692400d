"""What the agent reads its GPUs with, and what it remembers: shared by all of its loops."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetd.agent.attachment import Attachment
from fleetd.agent.detector import Detector
from fleetd.agent.fault_tally import FaultTally
from fleetd.agent.sampler import Sampler
from fleetd.agent.standing import StandingSpool
from fleetd.agent.standing_file import StandingFile
from fleetd.compose.places import state_dir
from fleetd.config.faults import load_catalogue
from fleetd.config.files import AgentConfig
from fleetd.core.faults.catalogue import Catalogue
from fleetd.devices.helper import HelperDevices
from fleetd.model.host import Gpu
from fleetd.model.ids import BootId, GpuId, HostName
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock, Devices
from fleetd.sim.gpu import SimDevices
from fleetd.system import RealClock, boot_id, entropy, host_name
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
class Owned:
    """What reads and what remembers: everything that the agent's loops share."""

    host: HostName
    boot: BootId
    folder: Path
    disk: SqliteSpool
    tally: FaultTally
    catalogue: Catalogue
    spool: StandingSpool
    orders: SqliteOrders
    devices: Devices
    attachment: Attachment
    detector: Detector
    sampler: Sampler


def owned(config: AgentConfig, clock: RealClock) -> Owned:
    """Make them. Raises StoreError: the state directory cannot be used."""
    host, boot = HostName(config.host) if config.host else host_name(), boot_id()
    folder = state_dir(config.state_dir)
    disk = SqliteSpool(folder / "spool.db", rng=entropy())
    catalogue = load_catalogue()
    # Counted where it is stored, so that a finding that the disk refuses and that is tried again counts once.
    tally = FaultTally(disk)
    spool = StandingSpool(tally, catalogue=catalogue, clock=clock, file=StandingFile(folder / "standing.json", boot))
    devices: Devices = DEVICES.get(config.devices.backend, _vendor)(host, config, clock)
    attachment = Attachment(devices, clock=clock)
    detector = Detector(host=host, boot_id=boot, catalogue=catalogue, spool=spool, clock=clock, config=config.detect)

    def judge(samples: tuple[GpuSample, ...], inventory: tuple[Gpu, ...], troubles: Mapping[GpuId, str]) -> None:
        detector.round(samples, inventory, troubles)
        spool.ended(detector.take_cleared())

    return Owned(
        host=host,
        boot=boot,
        folder=folder,
        disk=disk,
        tally=tally,
        catalogue=catalogue,
        spool=spool,
        orders=SqliteOrders(folder / "orders.db"),
        devices=devices,
        attachment=attachment,
        detector=detector,
        sampler=Sampler(
            host=host, boot_id=boot, devices=attachment, spool=spool, clock=clock, config=config.sampler, on_round=judge
        ),
    )
