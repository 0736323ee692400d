"""From rounds of readings to spooled findings: `core.detect` with a catalogue, a spool and a memory of what is due."""

from collections.abc import Mapping, Sequence

import structlog

from fleetd.core.detect import Detected, Watched, detect
from fleetd.core.detect_config import DetectConfig
from fleetd.core.faults.catalogue import Catalogue
from fleetd.model.finding import DeviceFault
from fleetd.model.host import Gpu
from fleetd.model.ids import BootId, FindingId, GpuId, HostName
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Clock, Spool, StoreError

_log = structlog.get_logger(__name__)

DUE_MAX = 1024
"""Findings that wait for the disk; beyond them the newest are dropped, and logged: the disk has been full for long."""


class Detector:
    """Judges every round of readings. A finding that cannot be spooled is tried again with the next round."""

    def __init__(
        self, *, host: HostName, boot_id: BootId, catalogue: Catalogue, spool: Spool, clock: Clock, config: DetectConfig
    ) -> None:
        self._host = host
        self._boot_id = boot_id
        self._catalogue = catalogue
        self._spool = spool
        self._clock = clock
        self._config = config
        self._state: Mapping[GpuId, Watched] = {}
        self._due: list[DeviceFault] = []
        self._cleared: list[Detected] = []
        self.findings_total = 0
        self.store_errors_total = 0

    def configure(self, config: DetectConfig) -> None:
        """Judge by this from the next round on; what was counted so far stays."""
        self._config = config

    def round(self, samples: Sequence[GpuSample], inventory: Sequence[Gpu], troubles: Mapping[GpuId, str]) -> None:
        """Judge the readings of one round; never raises."""
        found = detect(
            self._state,
            samples,
            now_s=self._clock.elapsed_s(),
            at_s=self._clock.wall_s(),
            skus={gpu.gpu: gpu.sku for gpu in inventory},
            troubles=troubles,
            config=self._config,
        )
        self._state = found.state
        if found.raised or found.cleared:
            _log.warning("detection", why=found.why)
        indices = {gpu.gpu: gpu.index for gpu in inventory}
        for one in found.raised:
            if len(self._due) >= DUE_MAX:
                _log.error("finding_dropped", code=one.code, gpu=one.gpu, why="too many wait for the disk")
                continue
            self._due.append(self._fault(one, indices.get(one.gpu)))
        self._cleared += found.cleared
        self._tell()

    def take_cleared(self) -> tuple[Detected, ...]:
        """The episodes that have ended since the last call."""
        taken, self._cleared = tuple(self._cleared), []
        return taken

    def _tell(self) -> None:
        while self._due:
            try:
                self._spool.append(self._due[0])
            except StoreError as error:
                self.store_errors_total += 1
                _log.error("finding_not_spooled", why=str(error), waiting=len(self._due))
                return
            self._due.pop(0)
            self.findings_total += 1

    def _fault(self, one: Detected, index: int | None) -> DeviceFault:
        entry = self._catalogue.entry(one.code)
        return DeviceFault(
            # An episode is one fact, however often it is tried to be spooled.
            id=FindingId(f"{self._host}/{self._boot_id}/{one.code}/{one.gpu}/{one.began_at_s:.0f}"),
            host=self._host,
            boot_id=self._boot_id,
            at_s=one.began_at_s,
            why=f"GPU {'?' if index is None else index}: {one.why} ({entry.action} by the catalogue)",
            code=one.code,
            gpu=one.gpu,
            index=index,
            scope=entry.scope,
            severity=entry.severity,
            fault_class=entry.fault_class,
        )
