"""The default actuator: writes what would have been done into a file, one JSON line an order, and does no more."""

import asyncio
import errno
import fcntl
import json
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from io import FileIO
from pathlib import Path

from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import FleetOrder
from fleetd.ports import ActuatorError, Receipt, RunBlocking, Standing

RECORD_BYTES_MAX = 16 << 20
"""A record that would grow beyond it (about 100,000 orders) goes on in a new file; one older file is kept.

An order that is asked for again was given minutes ago, so it stands in one of the two."""


class DryRun:
    """An `Actuator` whose only effect is its record; each order id stands in it once, over restarts too.

    Several controllers may share a record, as they share a scheduler: what stands in it is looked at right before
    anything is added, while no other one can.
    """

    name = "dryrun"

    def __init__(self, record: Path, *, run_blocking: RunBlocking, bytes_max: int = RECORD_BYTES_MAX) -> None:
        """Open or create the record. Raises ActuatorError when that cannot be done."""
        self._record, self._older = record, record.with_name(f"{record.name}.1")
        self._run_blocking = run_blocking
        self._bytes_max = bytes_max
        self._writing = asyncio.Lock()
        self._done: set[OrderId] = set()
        self._done_before: set[OrderId] = set()  # those in the older file
        self._inode = -1
        self._end_bytes = 0
        """Up to where the record was read: the end of a line."""
        try:
            self._shared(lambda _file: None)
        except OSError as error:
            raise ActuatorError(f"{record}: {error.strerror}") from error

    async def carry_out(self, order: FleetOrder) -> Receipt:
        """Record the order durably. Raises ActuatorError when the disk refuses."""
        verb = type(order).__name__.lower()
        async with self._writing:
            if order.id not in self._done and order.id not in self._done_before:
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
        written = line.encode()

        def write(file: FileIO) -> None:
            if order in self._done or order in self._done_before:
                return
            file.truncate(self._end_bytes)
            file.seek(self._end_bytes)
            if file.write(written) < len(written):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
            self._end_bytes += len(written)
            self._done.add(order)

        self._shared(write, room_bytes=len(written))

    def _shared(self, act: Callable[[FileIO], None], *, room_bytes: int = 0) -> None:
        """Read what was added since, and act on the record while no other one can. Raises OSError, ActuatorError."""
        while True:
            with self._record.open("a+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
                if not _is_still(file, self._record):
                    continue  # another one has gone on in a new file meanwhile
                self._read_on(file)
                if self._end_bytes > 0 and self._end_bytes + room_bytes > self._bytes_max:
                    self._record.replace(self._older)
                    continue
                act(file)
                return

    def _read_on(self, file: FileIO) -> None:
        """Read what was added since. Raises ActuatorError.

        A line without its newline was cut by a crash in the middle of a write: that order was not recorded.
        """
        inode = os.fstat(file.fileno()).st_ino
        if inode != self._inode:
            self._inode, self._end_bytes, self._done = inode, 0, set()
            self._done_before = _orders(self._older, self._older.read_bytes())[0] if self._older.exists() else set()
        if file.seek(0, os.SEEK_END) < self._end_bytes:
            self._end_bytes = 0  # somebody has taken lines out of it
        file.seek(self._end_bytes)
        found, read_bytes = _orders(self._record, file.readall())
        self._done |= found
        self._end_bytes += read_bytes


def _is_still(file: FileIO, path: Path) -> bool:
    """Whether the file still has its name."""
    try:
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _orders(record: Path, body: bytes) -> tuple[set[OrderId], int]:
    """The orders in whole lines, and how many bytes those lines are. Raises ActuatorError."""
    lines = body.split(b"\n")[:-1]
    try:
        return {OrderId(json.loads(line)["order"]) for line in lines}, sum(len(line) + 1 for line in lines)
    except (ValueError, KeyError, TypeError) as error:
        raise ActuatorError(f"{record}: not a record of dry-run orders; move it away") from error
