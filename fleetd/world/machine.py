"""One simulated host: its parts, its disk, its kernel's messages, and the real agent that runs on it."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetd import __version__
from fleetd.agent.agent import Agent, SpoolGauges
from fleetd.agent.chores import Chores, ChoresConfig
from fleetd.agent.detector import Detector
from fleetd.agent.sampler import Sampler, SamplerConfig
from fleetd.core.detect_config import DetectConfig
from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.model.host import Place
from fleetd.model.ids import BootId, FindingId, HostName, SpoolId
from fleetd.ports import StoreError
from fleetd.sim.burner import SimBurner
from fleetd.sim.clock import SimClock
from fleetd.sim.disk import File, OrderRecord, SimOrders, SimSpool, SpoolRecord
from fleetd.sim.gpu import Cure, SimDevices, Trouble, parts
from fleetd.sim.kernel_log import KernelRing
from fleetd.sim.life import Fuse, Killed, Life
from fleetd.sim.link import Network, SimUplink
from fleetd.world.kernel import KERNEL_SAYS, log_watch, shipped_catalogue
from fleetd.world.settings import Settings

_RETRY_S = 10.0


class Machine:
    """A host from its first boot on. Its name stays; parts, disk and boot may change."""

    def __init__(
        self,
        name: HostName,
        *,
        settings: Settings,
        place: Place,
        network: Network,
        folder: Path,
        fuse: Fuse | None,
        on_bug: Callable[[BaseException], None],
        body: str | None = None,
    ) -> None:
        """Build it; it is not switched on.

        Args:
            name: of the host.
            settings: of the world.
            place: where it stands.
            network: to the controller.
            folder: where reports of burn-ins may lie.
            fuse: counts the boundaries at which its agent may be cut.
            on_bug: told of an agent that ends by itself.
            body: what this machine is in itself, if another one uses its name too.
        """
        self.name = name
        self._body = body or name
        self.clock = SimClock()
        self.parts = parts(host=HostName(self._body), gpus=settings.gpus, seed=settings.seed)
        self.powered = False
        self.boots = 0
        self.burner_broken = False
        self.alike_wrong = False
        """Whether all its GPUs compute the same wrong results."""
        self.driver_seconds = 0.0
        """How long the driver takes after a boot until it answers."""
        self.planted = False
        """Whether anything was ever wrong with this host that may cost it its place."""
        self.retired_files: list[File[SpoolRecord]] = []
        """Spools of disks that were replaced."""
        self._settings = settings
        self._place = place
        self._network = network
        self._folder = folder
        self._fuse = fuse
        self._on_bug = on_bug
        self._rng = random.Random(f"{settings.seed}/{self._body}")  # noqa: S311 - a simulation
        self._installs = 0
        self._life: Life | None = None
        self._run: asyncio.Task[None] | None = None
        self._spool: SimSpool | None = None
        self._devices: SimDevices | None = None
        self._driver_hangs = False
        self._kernel: KernelRing | None = None  # of the present boot
        self._ring: list[DeviceFault] = []  # bounded by the timetable, as is the next
        self._told: list[DeviceFault] = []
        self._faults = 0
        self.reinstall()

    @property
    def boot_id(self) -> BootId:
        """Of the present boot."""
        return BootId(f"{self._body}-boot-{self.boots}")

    @property
    def spool_file(self) -> File[SpoolRecord]:
        """What is on the disk of the agent's spool."""
        return self._spool_file

    @property
    def is_troubled(self) -> bool:
        """Whether something is wrong with it now that keeps it from being healthy."""
        disk_full = self._spool_file.full or self._orders_file.full
        host = self._driver_hangs or self.burner_broken or self.alike_wrong or disk_full
        return host or any(part.troubles for part in self.parts)

    # ── power ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def switch_on(self) -> None:
        """Boot, and start the agent; a reboot cures what a reboot cures."""
        self.powered = True
        self.boots += 1
        self._kernel = KernelRing(self.boot_id)
        self._ring.clear()
        self._told.clear()
        for part in self.parts:
            part.cure((Cure.RESET, Cure.REBOOT))
        self._driver_hangs = self.driver_seconds > 0
        self._start()
        if self._driver_hangs:
            asyncio.get_running_loop().call_later(self.driver_seconds, self._driver_answers)

    def switch_off(self) -> None:
        """Cut the power."""
        self.powered = False
        if self._life is not None:
            self._life.end()

    def reboot(self) -> None:
        """Cut the power, and be back after a while."""
        self.switch_off()
        asyncio.get_running_loop().call_later(self._settings.boot_seconds, self.switch_on)

    def kill_agent(self) -> None:
        """Kill the agent's process; the service manager starts it again."""
        if self._life is not None:
            self._life.end()

    def reinstall(self) -> None:
        """Give it an empty disk. Switch it off before."""
        if self._installs:
            self.retired_files.append(self._spool_file)
        self._installs += 1
        now_s = self.clock.elapsed_s
        self._spool_file: File[SpoolRecord] = File(now_s)
        self._orders_file: File[OrderRecord] = File(now_s)

    def lose_state(self) -> None:
        """Have the agent's files deleted: it starts again and reads this boot's kernel log from the beginning."""
        self.kill_agent()
        self.reinstall()
        self._ring = [*self._told, *self._ring]
        self._told.clear()
        if self._kernel is not None:
            self._kernel.dealt_with = 0

    # ── trouble ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def plant(self, index: int, trouble: Trouble, cure: Cure) -> None:
        """Let something go wrong with a part; the kernel says so if it would."""
        self.planted = True
        self.parts[index].troubles[trouble] = cure
        if trouble in KERNEL_SAYS:
            code, fault_class, why = KERNEL_SAYS[trouble]
            self.report(code, index=index, fault_class=fault_class, severity=Severity.FATAL, why=why)

    def compute_wrong(self) -> None:
        """Let all GPUs compute the same wrong results from now on."""
        self.planted = self.alike_wrong = True

    def hang_driver(self) -> None:
        """Let no call into the driver be answered until the host is rebooted."""
        self.planted = self._driver_hangs = True
        if self._devices is not None:
            self._devices.driver_hangs = True

    def _driver_answers(self) -> None:
        self._driver_hangs = False
        if self._devices is not None:
            self._devices.driver_hangs = False

    def heal(self) -> None:
        """Let all troubles of its GPUs end by themselves."""
        self.alike_wrong = False
        for part in self.parts:
            part.cure(Cure)

    def fill_disk(self, *, full: bool) -> None:
        """Let the disk refuse all writes, or take them again."""
        self._spool_file.full = self._orders_file.full = full

    def report(
        self,
        code: str,
        *,
        index: int | None = None,
        fault_class: FaultClass = FaultClass.NONE,
        severity: Severity = Severity.ERROR,
        scope: Scope = Scope.GPU,
        why: str = "as told by the kernel log",
    ) -> None:
        """Let the kernel log a fault; the agent tells of it now, or when it is running again in this boot."""
        self._faults += 1
        self.planted = self.planted or fault_class.is_hardware
        fault = DeviceFault(
            id=FindingId(f"{self.boot_id}/{code}/{self._faults}"),
            host=self.name,
            boot_id=self.boot_id,
            at_s=self.clock.wall_s(),
            why=why,
            code=code,
            gpu=None if index is None else self.parts[index].gpu,
            index=index,
            scope=scope,
            severity=severity,
            fault_class=fault_class,
        )
        self._ring.append(fault)
        self._tell()

    def log(self, text: str, *, planted: bool) -> None:
        """Let the kernel log a line, for the agent to judge; `planted`: whether it tells of a real fault."""
        self.planted = self.planted or planted
        if self._kernel is not None:
            self._kernel.say(text)

    def _tell(self) -> None:
        """Spool what the kernel has said, as an agent that keeps its place in the kernel log does."""
        try:
            while self._ring and self._spool is not None:
                self._spool.append(self._ring[0])
                self._told.append(self._ring.pop(0))
        except StoreError:
            asyncio.get_running_loop().call_later(_RETRY_S, self._tell)
        except Killed:
            return  # told when the agent has been started again

    # ── the agent ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        if not self.powered or (self._life is not None and self._life.alive):
            return
        life = Life(self.name, fuse=self._fuse, on_end=self._died)
        self._life = life
        self._run = asyncio.create_task(self._agent(life).run(asyncio.Event()), name=f"agent of {self.name}")
        self._run.add_done_callback(lambda run: self._ended(life, run))
        self._tell()

    def _agent(self, life: Life) -> Agent:
        settings, clock, host, boot = self._settings, self.clock, self.name, self.boot_id
        spool = SimSpool(SpoolId(f"{self._body}-disk-{self._installs}"), self._spool_file, life)
        devices = SimDevices(
            host=host, gpus=0, seed=0, clock=clock, built_in=self.parts, driver_hangs=self._driver_hangs
        )
        self._spool, self._devices = spool, devices
        every_s = settings.sample_seconds
        config = SamplerConfig(interval_seconds=every_s, stale_after_seconds=max(30.0, 3 * every_s))
        sampler = Sampler(host=host, boot_id=boot, devices=devices, spool=spool, clock=clock, config=config)
        burner = SimBurner(
            parts=self.parts,
            clock=clock,
            life=life,
            rng=self._rng,
            seconds=settings.burnin_seconds,
            broken=lambda: self.burner_broken,
            alike_wrong=lambda: self.alike_wrong,
        )
        at: dict[str, Any] = {"host": host, "boot_id": boot, "spool": spool, "clock": clock}
        detector = Detector(**at, catalogue=shipped_catalogue(), config=DetectConfig()) if settings.detect else None
        sampler = Sampler(**at, devices=devices, config=config, on_round=detector.round if detector else None)
        return Agent(
            host=host,
            boot_id=boot,
            version=__version__,
            sampler=sampler,
            chores=Chores(
                host=host,
                boot_id=boot,
                orders=SimOrders(self._orders_file, life),
                burner=burner,
                spool=spool,
                clock=clock,
                reports=self._folder / f"{self._body}-disk-{self._installs}",
                config=ChoresConfig(),
            ),
            uplink=SimUplink(
                host=host, network=self._network, clock=clock, life=life, rng=self._rng, telemetry_interval_s=every_s
            ),
            devices=devices,
            spool=spool,
            spool_gauges=SpoolGauges(pending=lambda: spool.depth, dropped_total=lambda: len(spool.dropped)),
            clock=clock,
            notify=lambda _: None,
            watchdog_s=None,
            place=self._place,
            log_watch=log_watch(
                settings.catalogue, self._kernel, host=host, life=life, spool=spool, clock=clock, sampler=sampler
            ),
            detector=detector,
        )

    def _died(self) -> None:
        """Lose what a dead process loses."""
        self._spool = self._devices = None
        self._spool_file.lose_unsynced()
        self._orders_file.lose_unsynced()
        if self._run is not None:
            self._run.cancel()

    def _ended(self, life: Life, run: asyncio.Task[None]) -> None:
        error = None if run.cancelled() else run.exception()
        if life.alive:
            life.end()
            self._on_bug(error or RuntimeError(f"the agent of {self.name} ended by itself"))
        elif error is not None and not isinstance(error, Killed):
            self._on_bug(error)
        if life.cut and self._fuse is not None and self._fuse.power:
            self.reboot()
        elif self.powered:
            asyncio.get_running_loop().call_later(self._settings.restart_seconds, self._start)
