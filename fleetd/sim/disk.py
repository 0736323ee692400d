"""Simulated disks: what was not synced when the process died is lost. On them, the agent's spool and its orders."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fleetd.model.finding import DeviceFault, Finding, Severity
from fleetd.model.ids import FindingId, OrderId, SpoolId
from fleetd.model.order import RunBurnin
from fleetd.ports import Spooled, StoreError
from fleetd.sim.life import Life

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Generic[R]):
    """A record that is safe on the disk."""

    at_s: float
    """Virtual time of the sync."""
    what: str
    record: R


class File(Generic[R]):
    """An append-only file of records. The state of whoever owns it is what its records say, read from the first on."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._synced: list[Written[R]] = []
        self._unsynced: list[Written[R]] = []
        self.full = False
        """No room is left: every write is refused."""

    @property
    def records(self) -> tuple[Written[R], ...]:
        """All that survives a power cut now, in the order of writing."""
        return tuple(self._synced)

    def lose_unsynced(self) -> None:
        """Have the power cut."""
        self._unsynced.clear()

    def write(self, life: Life, what: str, record: R) -> None:
        """Append durably, passing three boundaries. Raises StoreError when the disk is full, Killed at a cut."""
        if self.full:
            life.check()
            raise StoreError("no space left on the simulated disk")
        life.boundary(f"before {what}")
        self._unsynced.append(Written(at_s=self._now_s(), what=what, record=record))
        life.boundary(f"{what} written, not synced")
        self._synced += self._unsynced
        self._unsynced.clear()
        life.boundary(f"after {what}")


SpoolRecord = Finding | int
"""A finding that was appended, or the number up to which findings were acknowledged."""


class SimSpool:
    """The `Spool` port on a simulated file; behaves as the real one does, bound and drop policy included."""

    def __init__(self, spool_id: SpoolId, file: File[SpoolRecord], life: Life, *, max_findings: int = 10_000) -> None:
        """Open the spool as the last process left it.

        Args:
            spool_id: identity of the file.
            file: where the findings are.
            life: the process that opens it.
            max_findings: most findings that wait; beyond it the oldest of severity `info` goes, then the oldest.
        """
        self._id = spool_id
        self._file = file
        self._life = life
        self._max_findings = max_findings
        self._numbers: dict[FindingId, int] = {}
        self._waiting: dict[int, Finding] = {}
        self._highest = 0
        self._changed = asyncio.Event()
        self.dropped: list[FindingId] = []
        """Findings lost because the spool was full, ever."""
        for written in file.records:
            self._apply(written.record)

    @property
    def id(self) -> SpoolId:
        """Identity of this spool."""
        return self._id

    @property
    def depth(self) -> int:
        """Findings that wait for their acknowledgement."""
        return len(self._waiting)

    def append(self, finding: Finding) -> int:
        """Write durably; a known finding id gives its first number. Raises StoreError."""
        self._life.check()
        known = self._numbers.get(finding.id)
        if known is not None:
            return known
        self._file.write(self._life, f"spool {finding.id}", finding)
        self._apply(finding)
        self._changed.set()
        return self._highest

    def pending(self, *, after_seq: int, limit: int) -> tuple[Spooled, ...]:
        """Unacknowledged findings above `after_seq`, oldest first."""
        self._life.check()
        found = [Spooled(seq=seq, finding=finding) for seq, finding in self._waiting.items() if seq > after_seq]
        return tuple(found[:limit])

    def acknowledge(self, seq: int) -> None:
        """Forget everything up to and including `seq`. Raises StoreError."""
        self._life.check()
        if seq > self._highest or any(waiting <= seq for waiting in self._waiting):
            self._file.write(self._life, f"acknowledge {seq}", seq)
            self._apply(seq)
            self._changed.set()

    async def wait(self, *, after_seq: int) -> None:
        """Return as soon as something is pending after `after_seq`."""
        while not any(seq > after_seq for seq in self._waiting):
            self._changed.clear()
            await self._changed.wait()
        self._life.check()

    def _apply(self, record: SpoolRecord) -> None:
        if not isinstance(record, int):
            self._highest += 1
            self._numbers[record.id] = self._highest
            self._waiting[self._highest] = record
            if len(self._waiting) > self._max_findings:
                infos = (seq for seq, finding in self._waiting.items() if _is_info(finding))
                self.dropped.append(self._waiting.pop(next(infos, next(iter(self._waiting)))).id)
                del self._numbers[self.dropped[-1]]  # found again, it is a new finding
        elif record > self._highest:
            # The controller knows numbers that this file never gave out: all that waits comes after them.
            self._waiting = {seq + record: finding for seq, finding in self._waiting.items()}
            self._numbers |= {finding.id: seq for seq, finding in self._waiting.items()}
            self._highest = max(self._waiting, default=record)
        else:
            self._waiting = {seq: finding for seq, finding in self._waiting.items() if seq > record}


def _is_info(finding: Finding) -> bool:
    return isinstance(finding, DeviceFault) and finding.severity is Severity.INFO


OrderRecord = RunBurnin | OrderId
"""An order that was accepted, or the id of one that was closed."""


class SimOrders:
    """The `Orders` port on a simulated file."""

    def __init__(self, file: File[OrderRecord], life: Life) -> None:
        """Open the orders as the last process left them."""
        self._file = file
        self._life = life
        self._open: dict[OrderId, RunBurnin] = {}
        self._known: set[OrderId] = set()
        for written in file.records:
            self._apply(written.record)

    def accept(self, order: RunBurnin) -> bool:
        """Write durably; False when this order id was accepted before. Raises StoreError."""
        self._life.check()
        if order.id in self._known:
            return False
        self._file.write(self._life, f"accept {order.id}", order)
        self._apply(order)
        return True

    def open(self) -> tuple[RunBurnin, ...]:
        """Accepted orders that have not been closed, oldest first."""
        self._life.check()
        return tuple(self._open.values())

    def close_order(self, order_id: OrderId) -> None:
        """Mark as done; idempotent. Raises StoreError."""
        self._life.check()
        if order_id in self._open:
            self._file.write(self._life, f"close {order_id}", order_id)
            self._apply(order_id)

    def _apply(self, record: OrderRecord) -> None:
        if isinstance(record, RunBurnin):
            self._known.add(record.id)
            self._open[record.id] = record
        else:
            self._open.pop(record, None)
