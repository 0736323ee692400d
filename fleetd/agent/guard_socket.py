"""The agent's third Unix socket: training jobs tell here what the guard in their loop has seen. Mode 0666.

One JSON line in (`burnin.spec.GuardFinding`), one out: `{"schema": …, "ok": bool, "why": text}`, then the connection
ends. Who speaks is asked of the kernel (SO_PEERCRED), which GPUs it holds is read from its open device files; what is
taken becomes a finding that accuses nobody and asks for a test.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from fleetd.agent.unix_socket import UnixSocket
from fleetd.core.faults.observation import device_key
from fleetd.core.guard_reports import Report, Taken, admit, parse
from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.model.host import Gpu
from fleetd.model.ids import BootId, FindingId, GpuId, HostName
from fleetd.ports import Clock, Spool, StoreError

_log = structlog.get_logger(__name__)

SCHEMA = "fleetd.agent.guard/1"
CONNECTIONS_MAX = 8
"""More at a time are closed at once."""
_LINE_BYTES_MAX = 8192
_READ_S = 1.0
_LOOK_S = 2.0
"""Longest look at a process's open files: the kernel may keep the reader waiting."""
_PEER = struct.Struct("3i")

Held = Callable[[int], Awaitable[frozenset[str]]]
"""Process id → PCI addresses of the GPUs that it has open."""


def guard_socket(status: Path) -> Path:
    """Where an agent listens to guards, that answers at `status`: beside it."""
    return status.with_name(f"{status.stem}-guard{status.suffix}")


class GuardSocket(UnixSocket):
    """Takes reports until it is closed."""

    def __init__(
        self,
        path: Path,
        *,
        host: HostName,
        boot_id: BootId,
        spool: Spool,
        clock: Clock,
        inventory: Callable[[], tuple[Gpu, ...]],
        held: Held,
    ) -> None:
        super().__init__(
            path,
            self._hear,
            name="guard",
            mode=0o666,
            connections_max=CONNECTIONS_MAX,
            line_bytes_max=_LINE_BYTES_MAX,
        )
        self._host, self._boot_id = host, boot_id
        self._spool, self._clock = spool, clock
        self._inventory, self._held = inventory, held
        self._taken = Taken()
        self.reports_total = {"taken": 0, "refused": 0}

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_READ_S):
            line = await reader.readline()  # ValueError: longer than any report
        ok, why = await self._take(line, *_peer(writer))
        self.reports_total["taken" if ok else "refused"] += 1
        writer.write(json.dumps({"schema": SCHEMA, "ok": ok, "why": why}).encode() + b"\n")

    async def _take(self, line: bytes, pid: int, uid: int) -> tuple[bool, str]:
        try:
            report = parse(json.loads(line))
        except (ValueError, RecursionError) as error:
            return False, f"that is no report: {error}"
        try:
            async with asyncio.timeout(_LOOK_S):
                open_at = {device_key(address) for address in await self._held(pid)}
        except TimeoutError:
            return False, "the sender's open files cannot be read"
        inventory = self._inventory()
        held = {gpu.gpu for gpu in inventory if device_key(gpu.pci_address) in open_at}
        admission = admit(self._taken, report, held=held, now_s=self._clock.elapsed_s())
        if admission.ok:
            index = next((gpu.index for gpu in inventory if gpu.gpu == admission.gpu), None)
            try:
                self._spool.append(self._fault(report, admission.gpu, index, pid=pid, uid=uid))
            except StoreError as error:
                return False, f"it could not be stored: {error}"
        self._taken = admission.taken
        _log.warning("guard_report", ok=admission.ok, why=admission.why, code=report.code, pid=pid, uid=uid)
        return admission.ok, admission.why

    def _fault(self, report: Report, gpu: GpuId | None, index: int | None, *, pid: int, uid: int) -> DeviceFault:
        at_s = self._clock.wall_s()
        where = "a GPU that it holds" if index is None else f"GPU {index}"
        rank = "" if report.rank is None else f", rank {report.rank}"
        return DeviceFault(
            id=FindingId(f"{self._host}/{self._boot_id}/{report.code}/{gpu or '-'}/{pid}/{report.step}"),
            host=self._host,
            boot_id=self._boot_id,
            at_s=at_s,
            why=f"a training job (pid {pid}, uid {uid}{rank}, step {report.step}) says of {where}: {report.why}",
            code=report.code,
            gpu=gpu,
            index=index,
            scope=Scope.HOST if gpu is None else Scope.GPU,
            severity=Severity.WARNING,
            fault_class=FaultClass.NONE,  # a job's word accuses nobody
        )


def _peer(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """Process and user at the other end, as the kernel knows them from when it connected."""
    channel: socket.socket = writer.get_extra_info("socket")
    pid, uid, _ = _PEER.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, uid
