"""The kernel log, read as it grows: what the catalogue knows becomes findings, and where reading stopped is kept."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import structlog

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.live import LiveScan
from fleetd.core.faults.observation import Finding, device_key
from fleetd.model.finding import DeviceFault
from fleetd.model.host import Gpu
from fleetd.model.ids import BootId, FindingId, GpuId, HostName
from fleetd.model.logline import LogHealth, LogLine
from fleetd.ports import Clock, KernelLog, Spool, StoreError

_log = structlog.get_logger(__name__)

COMMIT_LINES = 1000
"""Lines without a finding after which the cursor is written: so many may be read twice, none is missed."""
_RETRY_FIRST_S = 1.0
_RETRY_MAX_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLogConfig:
    """Where faults are read from."""

    source: str = "auto"
    """`kmsg`, `journal`, the path of a file, or `off`; `auto`: `kmsg`, and `off` for simulated devices."""

    def __post_init__(self) -> None:
        """Refuse what names nothing. Raises ValueError."""
        if self.source not in {"auto", "kmsg", "journal", "off"} and not self.source.startswith("/"):
            raise ValueError(f"source: {self.source!r} is none of auto, kmsg, journal, off, and no absolute path")


class LogWatch:
    """Follows one log until cancelled. The log's own trouble never ends it; `health` says whether it is read."""

    def __init__(
        self,
        *,
        host: HostName,
        boot_id: BootId,
        log: KernelLog,
        catalogue: Catalogue,
        spool: Spool,
        clock: Clock,
        inventory: Callable[[], tuple[Gpu, ...]],
        heard: Callable[[str, GpuId | None, str | None], None] | None = None,
    ) -> None:
        """`heard` is told code, GPU and device of every line of this boot, also of one that only repeats a finding."""
        self._host = host
        self._boot_id = boot_id
        self._log_source = log
        self._catalogue = catalogue
        self._live = LiveScan(catalogue)
        self._spool = spool
        self._clock = clock
        self._inventory = inventory
        self._heard = heard
        self.findings_total = 0
        self.store_errors_total = 0
        self.lines_total = 0

    @property
    def health(self) -> LogHealth:
        """Whether the log is being read, and what of it was lost."""
        return self._log_source.health

    async def run(self) -> None:
        """Read until cancelled."""
        since_commit = 0
        async for line in self._log_source.lines():
            self.lines_total += 1
            since_commit += 1
            told = self._live.read(line.text, now_s=self._clock.elapsed_s())
            # A line of an earlier boot is history: that boot's agent told it, or its reboot asks for proof anyway.
            present = line.cursor.boot_id == self._boot_id
            if present and self._heard is not None:
                for one in self._live.observed:
                    gpu = self._gpu_of(one.device)
                    self._heard(one.code, gpu.gpu if gpu else None, device_key(one.device))
            faults = [self._fault(line, finding) for finding in told if finding.role == "root"] if present else []
            if faults or since_commit >= COMMIT_LINES:
                await self._keep(faults, line)
                since_commit = 0

    async def _keep(self, faults: list[DeviceFault], line: LogLine) -> None:
        """Spool first, move the cursor after: a crash in between tells a finding twice, with the same id."""
        wait_s = _RETRY_FIRST_S
        while True:
            try:
                for fault in faults:
                    self._spool.append(fault)
                self._log_source.commit(line.cursor)
            except StoreError as error:
                self.store_errors_total += 1
                _log.error("kernel_log_waits_for_the_disk", why=str(error), retry_s=wait_s)
                await self._clock.sleep_s(wait_s)
                wait_s = min(2.0 * wait_s, _RETRY_MAX_S)
                continue
            self.findings_total += len(faults)
            for fault in faults:
                _log.warning("kernel_log_fault", finding=fault.id, code=fault.code, gpu=fault.gpu, why=fault.why)
            return

    def _fault(self, line: LogLine, finding: Finding) -> DeviceFault:
        gpu = self._gpu_of(finding.device)
        return DeviceFault(
            id=_identity(line, finding),
            host=self._host,
            boot_id=self._boot_id,
            at_s=self._clock.wall_s(),
            why=f"{finding.alias} on {finding.device or 'the host'}: {finding.why} ({finding.action} by the catalogue)",
            code=finding.code,
            gpu=gpu.gpu if gpu else None,
            index=gpu.index if gpu else None,
            scope=finding.scope,
            severity=finding.severity,
            fault_class=self._catalogue.entry(finding.code).fault_class,
        )

    def _gpu_of(self, device: str | None) -> Gpu | None:
        """The GPU at a PCI address; None for another device, or one that the vendor library never showed."""
        wanted = device_key(device)
        if wanted is None:
            return None
        return next((gpu for gpu in self._inventory() if device_key(gpu.pci_address) == wanted), None)


def _identity(line: LogLine, finding: Finding) -> FindingId:
    """The same record of the same boot says the same thing, however often it is read."""
    cursor = line.cursor
    place = (cursor.boot_id, cursor.seq, cursor.inode, cursor.offset, cursor.journal)
    what = "\x1f".join(map(str, (*place, finding.code, device_key(finding.device), finding.action)))
    return FindingId(f"kernel-log/{blake2b(what.encode(), digest_size=12).hexdigest()}")
