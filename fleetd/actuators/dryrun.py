"""The default actuator: writes what would have been done into a file, one JSON line an order, and does no more."""

import asyncio
import errno
import fcntl
import json
import os
from collections.abc import Collection, Mapping
from functools import partial
from io import FileIO
from pathlib import Path

from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import FleetOrder
from fleetd.ports import ActuatorError, Receipt, RunBlocking, Standing


class DryRun:
    """An `Actuator` whose only effect is its record; each order id stands in it once, over restarts too.

    Several controllers may share a record, as they share a scheduler: what stands in it is looked at right before
    anything is added, while no other one can.
    """

    name = "dryrun"

    def __init__(self, record: Path, *, run_blocking: RunBlocking) -> None:
        """Open or create the record. Raises ActuatorError when that cannot be done."""
        self._record = record
        self._run_blocking = run_blocking
        self._writing = asyncio.Lock()
        self._done: set[OrderId] = set()
        self._end_bytes = 0
        """Up to where the record was read: the end of a line."""
        try:
            record.touch(exist_ok=True)
            with record.open("rb", buffering=0) as file:
                self._read_on(file)
        except OSError as error:
            raise ActuatorError(f"{record}: {error.strerror}") from error

    async def carry_out(self, order: FleetOrder) -> Receipt:
        """Record the order durably. Raises ActuatorError when the disk refuses."""
        verb = type(order).__name__.lower()
        async with self._writing:
            if order.id not in self._done:
                line = {"order": order.id, "verb": verb, "host": order.host, "at_s": order.issued_at_s}
                text = json.dumps(line | {"why": order.why}) + "\n"
                try:
                    await self._run_blocking(partial(self._append, order.id, text))
                except OSError as error:
                    raise ActuatorError(f"{self._record}: {error.strerror}") from error
        return Receipt(order_id=order.id, done=True, why=f"dry run: recorded {verb} of {order.host}")

    async def standing(self, hosts: Collection[HostName]) -> Mapping[HostName, Standing]:
        """Nothing is known: no scheduler is asked."""
        del hosts
        return {}

    def _append(self, order: OrderId, line: str) -> None:
        """Write a line to the disk, unless another one has; what is left of one that was cut is cut off."""
        with self._record.open("r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            self._read_on(file)
            if order in self._done:
                return
            file.truncate(self._end_bytes)
            file.seek(self._end_bytes)
            written = line.encode()
            if file.write(written) < len(written):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
            self._end_bytes += len(written)
            self._done.add(order)

    def _read_on(self, file: FileIO) -> None:
        """Read what was added since. Raises ActuatorError.

        A line without its newline was cut by a crash in the middle of a write: that order was not recorded.
        """
        if file.seek(0, os.SEEK_END) < self._end_bytes:
            self._end_bytes = 0  # somebody has taken lines out of it
        file.seek(self._end_bytes)
        lines = file.readall().split(b"\n")[:-1]
        try:
            self._done |= {OrderId(json.loads(line)["order"]) for line in lines}
        except (ValueError, KeyError, TypeError) as error:
            raise ActuatorError(f"{self._record}: not a record of dry-run orders; move it away") from error
        self._end_bytes += sum(len(line) + 1 for line in lines)
