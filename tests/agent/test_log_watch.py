"""The kernel log becomes findings: each once, of the right GPU, and none lost over a restart or a full disk."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from fleetd.agent.log_watch import LogWatch
from fleetd.config.faults import load_catalogue
from fleetd.model.finding import DeviceFault, FaultClass, Severity
from fleetd.model.ids import BootId, GpuId
from fleetd.model.logline import Cursor, LogHealth, LogLine
from tests.agent.fakes_agent import BOOT, HOST, FakeClock, FakeSpool, gpu

CATALOGUE = load_catalogue()
XID79 = "NVRM: Xid (PCI:0000:03:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
XID13 = (
    "NVRM: Xid (PCI:0000:01:00): 13, pid=77, name=train, Graphics SM Warp Exception on (GPC 1, TPC 0): Illegal Address"
)
QUIET = "usb 1-1: new high-speed USB device number 2 using xhci_hcd"


class FakeLog:
    """Records of one boot; the reader that starts anew goes on after the cursor that was kept."""

    def __init__(self, *texts: str, boot: BootId = BOOT) -> None:
        self.texts, self.boot = texts, boot
        self.kept = 0
        self.drained = asyncio.Event()

    async def lines(self) -> AsyncIterator[LogLine]:
        for seq, text in enumerate(self.texts, 1):
            if seq > self.kept:
                record = f"4,{seq},{seq * 1_000_000},-;{text}"
                yield LogLine(text=record, cursor=Cursor(boot_id=self.boot, seq=seq))
        self.drained.set()
        await asyncio.Event().wait()

    def commit(self, cursor: Cursor) -> None:
        self.kept = cursor.seq or 0

    @property
    def health(self) -> LogHealth:
        return LogHealth(alive_s=1.0, trouble=None, errors_total=0, lost_total=0)


def read(
    log: FakeLog, spool: FakeSpool, heard: Callable[[str, GpuId | None, str | None], None] | None = None
) -> LogWatch:
    watch = LogWatch(
        host=HOST,
        boot_id=BOOT,
        log=log,
        catalogue=CATALOGUE,
        spool=spool,
        clock=FakeClock(),
        inventory=lambda: tuple(gpu(index) for index in range(8)),
        heard=heard,
    )

    async def until_drained() -> None:
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(60):
            await log.drained.wait()
        task.cancel()

    asyncio.run(until_drained())
    return watch


def test_a_gpu_off_the_bus_is_told_once_and_named_by_its_address() -> None:
    spool = FakeSpool()
    watch = read(FakeLog(QUIET, XID79, QUIET, XID79), spool)
    (fault,) = spool.findings
    assert isinstance(fault, DeviceFault)
    assert (fault.code, fault.gpu, fault.index) == ("nvidia.xid.79", gpu(3).gpu, 3)
    assert (fault.severity, fault.fault_class) == (Severity.FATAL, FaultClass.UNRESPONSIVE)
    assert (watch.findings_total, watch.lines_total) == (1, 4)


def test_an_applications_fault_is_told_as_what_it_is() -> None:
    spool = FakeSpool()
    read(FakeLog(XID13), spool)
    (fault,) = spool.findings
    assert isinstance(fault, DeviceFault)
    assert not fault.fault_class.is_hardware


def test_a_restart_reads_on_and_repeats_with_the_same_id() -> None:
    spool, log = FakeSpool(), FakeLog(QUIET, XID79)
    read(log, spool)
    assert log.kept == 2
    log.kept, log.drained = 0, asyncio.Event()  # the cursor was lost: everything is read again
    read(log, spool)
    assert len(spool.findings) == 1


def test_a_disk_that_refuses_delays_and_loses_nothing() -> None:
    spool = FakeSpool()
    spool.refuse = 3
    watch = read(FakeLog(XID79), spool)
    assert len(spool.findings) == 1
    assert watch.store_errors_total == 3


def test_another_boots_lines_are_history() -> None:
    spool = FakeSpool()
    read(FakeLog(XID79, boot=BootId("an earlier one")), spool)
    assert spool.findings == []


def test_an_address_that_no_gpu_has_blames_none() -> None:
    spool = FakeSpool()
    read(FakeLog(XID79.replace("0000:03:00", "0000:ff:00")), spool)
    (fault,) = spool.findings
    assert fault == replace(fault, gpu=None, index=None)


def test_whoever_listens_hears_every_line_of_this_boot_also_repetitions_that_are_no_finding() -> None:
    def smoothing(xid: int) -> str:
        return f"NVRM: Xid (PCI:0000:03:00): {xid}, Power smoothing HW circuitry event"

    heard: list[tuple[str, str | None, str | None]] = []
    spool = FakeSpool()
    lines = FakeLog(smoothing(163), QUIET, smoothing(162), smoothing(163), smoothing(163).replace(":03:", ":7f:"))
    read(lines, spool, heard=lambda code, gpu, device: heard.append((code, gpu, device)))
    codes = [(code, who) for code, who, _ in heard]
    name = gpu(3).gpu
    known = [("nvidia.xid.163", name), ("nvidia.xid.162", name), ("nvidia.xid.163", name)]
    assert codes == [*known, ("nvidia.xid.163", None)]
    assert len({device for _, _, device in heard}) == 2
    assert len(spool.findings) < len(heard), "the second 163 of a GPU is no new finding, and still it is heard"
    heard.clear()
    read(FakeLog(smoothing(163), boot=BootId("before")), spool, heard=lambda *what: heard.append(what))
    assert heard == [], "another boot's lines say nothing of this one"
