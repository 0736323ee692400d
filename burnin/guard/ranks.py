"""What ranks tell each other during a check, over a process group of the guard's own: gloo, with a deadline.

On the CPU, so that a hanging GPU does not silence the guard. After a rank stayed away once, the group is given up: the
guard goes on alone and says so.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from burnin.guard.state import Streams

_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_WORD = 63
_FOREVER = timedelta(days=30)


class GoneError(RuntimeError):
    """A rank did not answer by the deadline, or has ended."""


class UnlikeError(RuntimeError):
    """The ranks' micro-batches have no common structure, so none can be handed to another rank."""


class Ranks(Protocol):
    """The ranks of a job, seen from one of them."""

    rank: int
    world: int

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        """Give unsigned 64-bit integers, as many as every other rank, and get everybody's. Raises GoneError."""

    def rotate(self, tensors: Sequence[torch.Tensor], streams: Streams, by: int) -> tuple[list[torch.Tensor], Streams]:
        """Give a micro-batch to the rank `by` further on, and get that of the rank `by` back.

        Raises:
            GoneError: see `gather`.
            UnlikeError: on every rank alike.
        """

    def transfer_group(self) -> Any:
        """Return a process group of all ranks, of the backend that trains, for tests of transfers; all call it.

        Raises:
            RuntimeError: there is none, or it was dropped.
        """

    def drop_transfer_group(self) -> None:
        """Give it up, with whatever hangs in it."""


class Alone:
    """One rank."""

    rank, world = 0, 1

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        """Its own."""
        return [list(values)]

    def rotate(self, tensors: Sequence[torch.Tensor], streams: Streams, by: int) -> tuple[list[torch.Tensor], Streams]:
        """Its own."""
        del by
        return list(tensors), streams

    def transfer_group(self) -> Any:
        """There is nobody to transfer to."""
        raise RuntimeError("one rank has no transfers")

    def drop_transfer_group(self) -> None:
        """There is none."""


class Gang:
    """The ranks of `torch.distributed`, which must be initialised; every rank makes its own at the same place."""

    def __init__(self, *, deadline_s: float) -> None:
        """Join. `deadline_s`: for each wait."""
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=deadline_s))
        self._gone = ""
        self._deadline_s = deadline_s
        self._transfers: Any = None
        self._dropped = False

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        """See `Ranks`."""
        mine = torch.tensor([_signed(value) for value in values], dtype=torch.int64, device="cpu")
        out = [torch.empty_like(mine) for _ in range(self.world)]
        self._do(lambda: dist.all_gather(out, mine, group=self._group))
        return [[int(value) & (1 << 64) - 1 for value in one.tolist()] for one in out]

    def rotate(self, tensors: Sequence[torch.Tensor], streams: Streams, by: int) -> tuple[list[torch.Tensor], Streams]:
        """See `Ranks`. Random streams of Python and numpy stay at home: they seldom matter, and need no format."""
        ours = [*tensors, streams.cpu, *streams.cuda.values()]
        head = json.dumps([[str(one.dtype), list(one.shape)] for one in ours]).encode()
        told = self.gather([len(head), len(ours)])
        if len({count for _, count in told}) > 1:
            raise UnlikeError("the ranks' micro-batches have different numbers of tensors")
        source, target = (self.rank - by) % self.world, (self.rank + by) % self.world
        theirs_head = torch.empty(told[source][0], dtype=torch.uint8, device="cpu")
        self._swap(torch.frombuffer(bytearray(head), dtype=torch.uint8), theirs_head, source, target)
        shapes = json.loads(bytes(theirs_head.tolist()))
        got = []
        for one, (dtype, shape) in zip(ours, shapes, strict=True):
            there = torch.empty(shape, dtype=_DTYPES[dtype], device="cpu")
            self._swap(one.detach().cpu().contiguous(), there, source, target)
            got.append(there)
        cuda = dict(zip(streams.cuda, got[len(tensors) + 1 :], strict=True))
        batch = [one.to(own.device) for one, own in zip(got, tensors, strict=False)]
        return batch, Streams(cpu=got[len(tensors)], cuda=cuda, python=streams.python, numpy=streams.numpy)

    def transfer_group(self) -> Any:
        """See `Ranks`. Made when it is first needed: a communicator takes memory of the GPU.

        It is not the group that trains, and its watchdog never bites: a transfer that hangs is the guard's to time and
        to abort, and must not end the job.
        """
        if self._dropped:
            raise RuntimeError("transfers are not tested any more: one has hung or failed before")
        if self._transfers is None:
            group = dist.new_group(timeout=timedelta(seconds=self._deadline_s))
            if "nccl" in dist.get_backend_config(group):
                dist.distributed_c10d._set_pg_timeout(_FOREVER, group)  # noqa: SLF001 - no public name for it
            self._transfers = group
        return self._transfers

    def drop_transfer_group(self) -> None:
        """See `Ranks`."""
        self._dropped, group = True, self._transfers
        abort = getattr(group, "abort", None)  # of later torch; without it what hangs stays on its own stream
        if abort is not None and "nccl" in dist.get_backend_config(group):
            with suppress(RuntimeError):
                abort()

    def _swap(self, mine: torch.Tensor, theirs: torch.Tensor, source: int, target: int) -> None:
        def swap() -> None:
            works = []
            if theirs.numel():
                works.append(dist.irecv(_bytes(theirs), source, group=self._group))
            if mine.numel():
                works.append(dist.isend(_bytes(mine), target, group=self._group))
            for work in works:
                if work is not None:
                    work.wait()

        self._do(swap)

    def _do(self, work: Any) -> None:
        if self._gone:
            raise GoneError(self._gone)
        try:
            work()
        except RuntimeError as error:  # what gloo raises: a timeout, a closed connection
            self._gone = f"another rank did not answer: {(str(error).strip() or 'no message').splitlines()[0]:.200}"
            raise GoneError(self._gone) from error


def gpu_names(ranks: Ranks, device: torch.device) -> list[str | None]:
    """Return the UUIDs of all ranks' GPUs, as the vendor's tools write them; None for a CPU. Raises GoneError."""
    uuid: Any = torch.cuda.get_device_properties(device).uuid if device.type == "cuda" else None
    number = 0 if uuid is None else int(str(uuid).replace("-", ""), 16)
    found: list[str | None] = []
    for high, low in ranks.gather([number >> 64, number & (1 << 64) - 1]):
        one = f"{(high << 64) + low:032x}"
        known = f"GPU-{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}"
        found.append(known if high or low else None)
    return found


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> _WORD else value
