"""The default actuator: writes what would have been done into a file, one JSON line an order, and does no more."""

import asyncio
import errno
import json
import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import FleetOrder
from fleetd.ports import ActuatorError, Receipt, RunBlocking, Standing

RECORD_BYTES_MAX = 16 << 20
"""A record that would grow beyond it (about 100,000 orders) goes on in a new file; one older file is kept.

An order that is asked for again was given minutes ago, so it stands in one of the two."""


class DryRun:
    """An `Actuator` whose only effect is its record; each order id stands in it once, over restarts too."""

    name = "dryrun"

    def __init__(self, record: Path, *, run_blocking: RunBlocking, bytes_max: int = RECORD_BYTES_MAX) -> None:
        """Open or create the record. Raises ActuatorError when that cannot be done."""
        self._record, self._older = record, record.with_name(f"{record.name}.1")
        self._run_blocking = run_blocking
        self._bytes_max = bytes_max
        self._writing = asyncio.Lock()
        try:
            record.touch(exist_ok=True)
        except OSError as error:
            raise ActuatorError(f"{record}: {error.strerror}") from error
        # A line without its newline was cut by a crash in the middle of a write: that order was not recorded.
        self._done, self._torn_bytes = _read(record)
        self._done_before = _read(self._older)[0] if self._older.exists() else set()

    async def carry_out(self, order: FleetOrder) -> Receipt:
        """Record the order durably. Raises ActuatorError when the disk refuses."""
        verb = type(order).__name__.lower()
        async with self._writing:
            if order.id not in self._done and order.id not in self._done_before:
                line = {"order": order.id, "verb": verb, "host": order.host, "at_s": order.issued_at_s}
                text = json.dumps(line | {"why": order.why}) + "\n"
                try:
                    await self._run_blocking(partial(self._append, text))
                except OSError as error:
                    raise ActuatorError(f"{self._record}: {error.strerror}") from error
                self._done.add(order.id)
        return Receipt(order_id=order.id, done=True, why=f"dry run: recorded {verb} of {order.host}")

    async def standing(self, hosts: Collection[HostName]) -> Mapping[HostName, Standing]:
        """Nothing is known: no scheduler is asked."""
        del hosts
        return {}

    def _append(self, line: str) -> None:
        """Write a line to the disk; what is left of one that did not get there whole is cut off by the next."""
        if self._done and self._record.stat().st_size + len(line) > self._bytes_max:
            self._record.replace(self._older)
            self._record.touch()
            self._done, self._done_before, self._torn_bytes = set(), self._done, 0
        with self._record.open("r+b", buffering=0) as file:
            end_bytes = file.seek(-self._torn_bytes, os.SEEK_END)
            file.truncate()
            try:
                if file.write(line.encode()) < len(line.encode()):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            finally:
                self._torn_bytes = file.seek(0, os.SEEK_END) - end_bytes
        self._torn_bytes = 0


def _read(record: Path) -> tuple[set[OrderId], int]:
    """The orders in a record, and the bytes of a torn line at its end. Raises ActuatorError."""
    try:
        lines = record.read_bytes().split(b"\n")
    except OSError as error:
        raise ActuatorError(f"{record}: {error.strerror}") from error
    try:
        return {OrderId(json.loads(line)["order"]) for line in lines[:-1]}, len(lines[-1])
    except (ValueError, KeyError, TypeError) as error:
        raise ActuatorError(f"{record}: not a record of dry-run orders; move it away") from error
