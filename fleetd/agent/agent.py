"""The agent: its loops side by side, from READY to the end within two seconds of being told to stop."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from fleetd.agent.chores import Chores
from fleetd.agent.detector import Detector
from fleetd.agent.log_watch import LogWatch
from fleetd.agent.sampler import Sampler
from fleetd.model.host import POWER_LEASES, Hello, Place
from fleetd.model.ids import BootId, HostName
from fleetd.model.status import AgentStatus
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock, Devices, PowerLine, Spool, Uplink

_log = structlog.get_logger(__name__)

CAPABILITIES = ("burnin", "telemetry")
NOWHERE = Place()
"""The place of a host whose configuration says nothing about it."""
Loop = Callable[[], Coroutine[Any, Any, None]]
"""Runs until it is cancelled."""
_STOP_S = 1.6
"""Of the two seconds that the whole end may take: the rest is for what is closed after the loops, and for the process.
A burn-in has 1.5 s to end (`fleetd.burner`)."""
_CLOCK_SET_S = 30.0
"""How far the wall clock may go astray before the controller is told: far more than a time service slews."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolGauges:
    """How full the spool is, as plain numbers: they are read from the exporter's threads."""

    pending: Callable[[], int]
    dropped_total: Callable[[], int]


class Agent:
    """One host's agent. `run` is the whole life of it."""

    def __init__(
        self,
        *,
        host: HostName,
        boot_id: BootId,
        version: str,
        sampler: Sampler,
        chores: Chores,
        uplink: Uplink,
        devices: Devices,
        spool: Spool,
        spool_gauges: SpoolGauges,
        clock: Clock,
        notify: Callable[[str], None],
        watchdog_s: float | None,
        place: Place = NOWHERE,
        log_watch: LogWatch | None = None,
        detector: Detector | None = None,
        companions: Mapping[str, Loop] | None = None,
        power: PowerLine | None = None,
    ) -> None:
        """Wire the loops; start nothing.

        Args:
            host: the name under which the controller knows this host.
            boot_id: the kernel's boot id.
            version: of fleetd.
            sampler: reads `devices`.
            chores: carries out orders.
            uplink: the line to the controller.
            devices: closed at the end, so that a GPU reset finds no handle of ours.
            spool: where findings wait for the controller.
            spool_gauges: how full it is.
            clock: for the watchdog.
            notify: tells the service manager (`READY=1`, …).
            watchdog_s: how often the service manager wants a sign of life; None: never.
            place: where the host stands, as its configuration says.
            log_watch: reads the kernel log; None: nobody does.
            detector: judges what `sampler` reads; None: nobody does.
            companions: further loops by name, that run as long as the agent does.
            power: asks for leases of power budgets; None: this host takes part in none.
        """
        self._host = host
        self._boot_id = boot_id
        self._version = version
        self._sampler = sampler
        self._chores = chores
        self._uplink = uplink
        self._devices = devices
        self._spool = spool
        self._spool_gauges = spool_gauges
        self._clock = clock
        self._notify = notify
        self._watchdog_s = watchdog_s
        self._place = place
        self._log_watch = log_watch
        self._detector = detector
        self._companions = dict(companions or {})
        self._power = power
        self._told_ahead_s = 0.0

    async def run(
        self, stop: asyncio.Event, *, hup: asyncio.Event | None = None, reload: Callable[[], None] | None = None
    ) -> None:
        """Run until `stop` is set; a loop that ends in any other way ends the agent, with its exception.

        Whenever `hup` is set, `reload` reads the configuration again.
        """
        # READY before the first call into a driver: a driver that hangs must not keep the agent from starting.
        self._notify("READY=1")
        sampler = asyncio.create_task(self._sampler.run(), name="sampler")
        loops = {
            sampler,
            asyncio.create_task(self._chores.run(), name="chores"),
            asyncio.create_task(self._keep_uplink(), name="uplink"),
        }
        loops |= {asyncio.create_task(run(), name=name) for name, run in self._companions.items()}
        if self._log_watch is not None:
            loops.add(asyncio.create_task(self._log_watch.run(), name="kernel_log"))
        if hup is not None and reload is not None:
            loops.add(asyncio.create_task(self._keep_config(hup, reload), name="reload"))
        if self._watchdog_s is not None:
            loops.add(asyncio.create_task(self._keep_alive(self._watchdog_s / 2), name="watchdog"))
        stopped = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait({*loops, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._notify("STOPPING=1")
            stopped.cancel()
            await self._end(loops, sampler)
        for loop in loops:
            if loop.done() and not loop.cancelled():
                loop.result()  # raises what ended it
                raise RuntimeError(f"the {loop.get_name()} loop returned, which it never should")

    def status(self) -> AgentStatus:
        """A snapshot of the agent for the exporter; may be called from another thread."""
        sampler, chores, log, detector = self._sampler, self._chores, self._log_watch, self._detector
        read_s = log.health.alive_s if log else None
        return AgentStatus(
            inventory=sampler.inventory,
            samples=sampler.latest(),
            samples_age_s=sampler.age_s,
            silent_gpus=sampler.silent_gpus,
            overruns_total=sampler.overruns_total,
            uplink_connected=self._uplink.connected,
            spool_pending=self._spool_gauges.pending(),
            spool_dropped_total=self._spool_gauges.dropped_total(),
            findings_total=sampler.findings_total
            + chores.findings_total
            + (log.findings_total if log else 0)
            + (detector.findings_total if detector else 0),
            kernel_log_age_s=None if read_s is None else self._clock.elapsed_s() - read_s,
            kernel_log_lost_total=log.health.lost_total if log else None,
            errors_total={
                "burner": chores.burner_errors_total,
                "device": sampler.device_errors_total,
                "kernel_log": log.health.errors_total if log else 0,
                "order": chores.refused_total,
                "report": chores.report_errors_total,
                "store": sampler.store_errors_total
                + chores.store_errors_total
                + (log.store_errors_total if log else 0)
                + (detector.store_errors_total if detector else 0),
            },
            burnin_runs_total=dict(chores.runs_total),
        )

    def hello(self) -> Hello:
        """What the controller is told first on every connection."""
        self._told_ahead_s = self._ahead_s()
        inventory = self._sampler.inventory
        drivers = {gpu.driver_version for gpu in inventory}
        return Hello(
            host=self._host,
            boot_id=self._boot_id,
            agent_version=self._version,
            capabilities=CAPABILITIES if self._power is None else (*CAPABILITIES, POWER_LEASES),
            inventory=inventory,
            place=self._place,
            at_s=self._clock.wall_s(),
            driver_version=drivers.pop() if len(drivers) == 1 else None,
        )

    def _ahead_s(self) -> float:
        """How far the wall clock is ahead of the monotonic one; changes only when somebody sets it."""
        return self._clock.wall_s() - self._clock.elapsed_s()

    def _telemetry(self) -> tuple[GpuSample, ...]:
        """The latest readings. Has the uplink say hello anew when the wall clock was set since the last hello."""
        by_s = self._ahead_s() - self._told_ahead_s
        if abs(by_s) > _CLOCK_SET_S:
            _log.warning("wall_clock_was_set", by_s=round(by_s, 1))
            self._sampler.inventory_changed.set()
        return self._sampler.latest()

    async def _keep_uplink(self) -> None:
        """Connect once the GPUs are known (or their silence told), and anew when they change: hello names them."""
        await self._sampler.discovered.wait()
        while True:
            self._sampler.inventory_changed.clear()
            line = asyncio.create_task(
                self._uplink.run(
                    hello=self.hello,
                    spool=self._spool,
                    telemetry=self._telemetry,
                    accept=self._chores.accept,
                    recall=self._chores.recall,
                    power=self._power,
                )
            )
            changed = asyncio.create_task(self._sampler.inventory_changed.wait())
            try:
                await asyncio.wait({line, changed}, return_when=asyncio.FIRST_COMPLETED)
                ended = line.done()
            finally:
                line.cancel()
                changed.cancel()
                await asyncio.wait({line, changed})
            if ended:
                line.result()
                raise RuntimeError("the uplink ended by itself, which it never should")

    def stand(self, place: Place) -> None:
        """The host stands here from now on; the controller is told with the next hello."""
        if place != self._place:
            self._place = place
            self._sampler.inventory_changed.set()

    async def _keep_config(self, asked: asyncio.Event, reload: Callable[[], None]) -> None:
        """Read the configuration again whenever that is asked for, and tell the service manager when it is done."""
        while True:
            await asked.wait()
            asked.clear()
            # The time lets the service manager tell this reload from an older one: sd_notify(3).
            self._notify(f"RELOADING=1\nMONOTONIC_USEC={self._clock.elapsed_s() * 1e6:.0f}")
            reload()
            self._notify("READY=1")

    async def _keep_alive(self, interval_s: float) -> None:
        """Tell the service manager that the event loop turns; whether a driver answers is not its business."""
        while True:
            self._notify("WATCHDOG=1")
            await self._clock.sleep_s(interval_s)

    async def _end(self, loops: set[asyncio.Task[None]], sampler: asyncio.Task[None]) -> None:
        """Cancel the loops and let go of the devices, within `_STOP_S`."""
        for loop in loops:
            loop.cancel()
        closing = asyncio.create_task(self._close(loops, sampler), name="close")
        _, late = await asyncio.wait({closing}, timeout=_STOP_S)
        if late:
            _log.error("stop_takes_too_long", loops=sorted(loop.get_name() for loop in loops if not loop.done()))
            closing.cancel()

    async def _close(self, loops: set[asyncio.Task[None]], sampler: asyncio.Task[None]) -> None:
        """Let go of the devices as soon as nobody reads them; the other loops end meanwhile."""
        await asyncio.wait({sampler})
        await self._devices.close()
        await asyncio.wait(loops)
