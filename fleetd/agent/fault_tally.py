"""Faults counted on their way into the spool, by code, severity and GPU: every event, not only the last one."""

from collections.abc import Mapping

from fleetd.model.finding import DeviceFault, Finding, Severity
from fleetd.model.ids import GpuId, SpoolId
from fleetd.model.status import FaultCount
from fleetd.ports import Spool, Spooled

SERIES_MAX = 512
"""Codes by severity and GPU that are told apart; further ones of a host that is so broken count as `other`, by
severity."""
OTHER = "other"


class FaultTally:
    """A `Spool` that counts the faults which it has taken. `counts` may be read from another thread."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._last_seq = 0
        # Replaced and never changed, so that a reader on another thread sees one whole state.
        self._counts: Mapping[tuple[str, Severity, GpuId | None], FaultCount] = {}

    @property
    def id(self) -> SpoolId:
        """See `Spool`."""
        return self._spool.id

    def append(self, finding: Finding) -> int:
        """See `Spool`; one that the disk refused, or that was there already, is not counted."""
        seq = self._spool.append(finding)
        if seq > self._last_seq:  # else: its id is known, and it has its first number
            self._last_seq = seq
            if isinstance(finding, DeviceFault):
                self._count(finding)
        return seq

    def pending(self, *, after_seq: int, limit: int) -> tuple[Spooled, ...]:
        """See `Spool`."""
        return self._spool.pending(after_seq=after_seq, limit=limit)

    def acknowledge(self, seq: int) -> None:
        """See `Spool`."""
        self._spool.acknowledge(seq)

    async def wait(self, *, after_seq: int) -> None:
        """See `Spool`."""
        await self._spool.wait(after_seq=after_seq)

    def counts(self) -> tuple[FaultCount, ...]:
        """Every fault of this process's life, by code, severity and GPU."""
        return tuple(self._counts.values())

    def _count(self, fault: DeviceFault) -> None:
        key = (fault.code, fault.severity, fault.gpu)
        if key not in self._counts and len(self._counts) >= SERIES_MAX:
            key = (OTHER, fault.severity, None)
        before = self._counts.get(key)
        after = FaultCount(
            code=key[0],
            severity=key[1],
            gpu=key[2],
            total=1 if before is None else before.total + 1,
            last_at_s=fault.at_s if before is None else max(fault.at_s, before.last_at_s),
        )
        self._counts = {**self._counts, key: after}
