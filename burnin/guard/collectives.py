"""Listening to collectives: DDP through its communication hook, FSDP2 through its seam for custom collectives.

Outside of `listen` both hand over to what would have run anyway; the arithmetic is the same, bit by bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from burnin.guard.hashes import Hasher, Pending
from burnin.guard.records import Issued, Record, Records, block_magnitudes, block_sums

_Future = torch.futures.Future[torch.Tensor]
# The second name of each is that of torch before 2.12, which later releases warn of.
_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class DdpEar:
    """Hears what DDP averages. Without a hook of the user it computes the average as DDP itself does."""

    def __init__(self, model: DistributedDataParallel, hasher: Hasher, *, comm_hook: Any) -> None:
        self._hasher = hasher
        self._group = model.process_group
        self._names = {id(parameter): name for name, parameter in model.module.named_parameters()}
        self._records: Records | None = None
        self._seed = 0
        self._inner = comm_hook
        self.severed = False
        """Whether the sums of the ranks must not be added up: the others may not."""
        self.note = ""
        if getattr(model, "_comm_hooks", None):
            self.note = "collectives: DDP has a communication hook already; give it to the guard as comm_hook instead"
            return
        model.register_comm_hook(self, _ddp_hook)

    @contextmanager
    def listen(self, seed: int) -> Iterator[Records]:
        """Fill the records of one run."""
        records = Records(unknown=self.note)
        self._records, self._seed = records, seed
        try:
            yield records
        finally:
            self._records = None
        self._add_up(records)

    def _add_up(self, records: Records) -> None:
        """Add the sums of all buckets over the ranks, in one more collective of 1/16 byte a gradient."""
        puts = [call.put for call in records.calls if call.put is not None]
        if self.severed:
            for call in records.calls:
                call.put = None
        elif puts:
            total = torch.cat(puts, dim=1)
            dist.all_reduce(total, group=self._group)
            parts = torch.split(total, [put.shape[1] for put in puts], dim=1)
            for call, part in zip(records.calls, parts, strict=True):
                call.put = part

    def hook(self, bucket: Any) -> _Future:
        """Average one bucket."""
        records = self._records
        record = None if records is None else self._before(records, bucket)
        future = self._average(bucket)
        return future if record is None else future.then(lambda done: self._after(record, done))

    def _average(self, bucket: Any) -> _Future:
        if self._inner is not None:
            state, hook = self._inner
            inner: _Future = hook(state, bucket)
            return inner
        buffer = bucket.buffer()
        # As the reducer does it: a multiplication by the reciprocal, not a division, which rounds otherwise.
        buffer.mul_(1.0 / dist.get_world_size(self._group))
        work: Any = dist.all_reduce(buffer, group=self._group, async_op=True)
        future: _Future = work.get_future().then(lambda done: done.value()[0])
        return future

    def _before(self, records: Records, bucket: Any) -> Record:
        buffer = bucket.buffer()
        record = Record(
            kind="all-reduce", before=self._hasher.begin(bucket.gradients(), self._seed), dtype=buffer.dtype
        )
        records.names += [self._names[id(parameter)] for parameter in bucket.parameters()]
        if self._inner is None and buffer.dtype.is_floating_point:
            record.put = torch.cat([block_sums(buffer), block_magnitudes(buffer)])
        elif self._inner is not None:
            records.unknown = "collectives: the bound of a sum is not checked behind a communication hook of yours"
        records.calls.append(record)
        return record

    def _after(self, record: Record, done: _Future) -> Any:
        result = done.value()
        if record.put is not None:
            record.got = block_sums(result)[0] * dist.get_world_size(self._group)
        return result


def _ddp_hook(ear: DdpEar, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """DDP calls a function, and insists on these annotations."""
    return ear.hook(bucket)


class FsdpEar:
    """Hears what FSDP2 gathers and scatters, and can end in its place what broke off.

    A rank that fails in the middle of a replay leaves the others in a collective which it does not join: gloo gives up
    its process group then, NCCL's watchdog the job. So it joins the rest of them, with zeros, and says afterwards that
    it failed. What is left is known: a replay issues what the original run has issued.
    """

    def __init__(self, model: Any, hasher: Hasher) -> None:
        self._hasher = hasher
        self.records: Records | None = None
        self.seed = 0
        self.note = ""
        self._whole: list[Issued] = []
        """What the last run that came to its end has issued."""
        self._last = Records()
        """What a run that broke off has issued; nothing before one begins and after one came to its end."""
        if not (hasattr(model, "set_custom_all_gather") and hasattr(model, "set_custom_reduce_scatter")):
            self.note = "collectives: this torch has no seam for FSDP2's collectives (set_custom_all_gather)"
            return
        for name, module in model.named_modules():
            if hasattr(module, "set_custom_all_gather"):
                module.set_custom_all_gather(_AllGather(self, name, module))
                module.set_custom_reduce_scatter(_ReduceScatter(self, name, module))

    @contextmanager
    def listen(self, seed: int) -> Iterator[Records]:
        """Fill the records of one run."""
        records = Records(unknown=self.note)
        self.records, self.seed, self._last = records, seed, records
        try:
            yield records
        finally:
            self.records = None
        self._whole, self._last = records.issued, Records()

    def finish(self) -> None:
        """Join the collectives that a run which broke off, or never began, would still have issued. Raises nothing."""
        done, self._last = self._last.issued, Records()
        if self._whole[: len(done)] != done:
            return  # it went another way than the run before: nobody can know what the others wait for
        with suppress(RuntimeError):  # another rank is gone, too, or there is no memory even for this
            for one in self._whole[len(done) :]:
                join(one)

    def begin(self, tensor: torch.Tensor) -> Pending:
        """Fingerprint one tensor."""
        return self._hasher.begin([tensor], self.seed)


def _issued(kind: str, put: torch.Tensor, got: torch.Tensor, group: Any, op: Any = None) -> Issued:
    return Issued(
        kind=kind, put=put.numel(), got=got.numel(), dtype=put.dtype, device=put.device, group=group, op=op
    )  # fmt: skip


def join(one: Issued) -> None:
    """Take part in a collective with zeros; what comes of it is thrown away. Raises RuntimeError."""
    put = torch.zeros(one.put, dtype=one.dtype, device=one.device)
    got = put if one.kind == "all-reduce" else torch.empty(one.got, dtype=one.dtype, device=one.device)
    if one.kind == "all-gather":
        _gather(got, put, group=one.group)
    elif one.kind == "reduce-scatter":
        _scatter(got, put, op=one.op, group=one.group)
    else:
        dist.all_reduce(put, group=one.group, **({} if one.op is None else {"op": one.op}))


class _Heard:
    """What both collectives of FSDP2 share: memory from the caching allocator, and whose ear it is."""

    def __init__(self, ear: FsdpEar, name: str, module: Any) -> None:
        self._ear = ear
        self._name = name or "root"
        self._module = module

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """As FSDP2 does by itself."""
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Heard):
    """See `torch.distributed.fsdp`; `output` is whole on every rank."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, *, async_op: bool = False
    ) -> Any:
        """Gather."""
        work = _gather(output_tensor, input_tensor, group=group, async_op=async_op)
        records = self._ear.records
        if records is not None:
            records.issued.append(_issued("all-gather", input_tensor, output_tensor, group))
            if work is not None:
                work.wait()  # NCCL: only the stream waits
            records.calls.append(Record(kind="all-gather", before=None, after=self._ear.begin(output_tensor)))
        return work


class _ReduceScatter(_Heard):
    """See `torch.distributed.fsdp`; each rank gets its part of the sum."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, *, async_op: bool = False
    ) -> Any:
        """Add up and scatter."""
        records = self._ear.records
        record = None
        if records is not None:
            world, rank = dist.get_world_size(group), dist.get_rank(group)
            record = Record(kind="reduce-scatter", before=self._ear.begin(input_tensor), dtype=input_tensor.dtype)
            record.put = torch.stack([block_sums(input_tensor, world), block_magnitudes(input_tensor, world)])
            number = sum(name.startswith(f"{self._name}#") for name in records.names)
            records.names.append(f"{self._name}#{number}")
            records.calls.append(record)
        work = _scatter(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
        if record is not None and records is not None:
            records.issued.append(_issued("reduce-scatter", input_tensor, output_tensor, group, op))
            if work is not None:
                work.wait()
            record.after = self._ear.begin(output_tensor)
            factor = {dist.ReduceOp.AVG: world, dist.ReduceOp.SUM: 1}.get(getattr(op, "op", op))
            if factor is None or record.put is None:
                record.put = None
                records.unknown = "collectives: the bound of FSDP2's sum is not checked with a custom divide factor"
            else:
                dist.all_reduce(record.put, group=group)
                records.issued.append(_issued("all-reduce", record.put, record.put, group))
                record.put = record.put[:, rank]
                record.got = block_sums(output_tensor)[0] * factor
            replicas = _replicas(self._module)
            if replicas is not None:  # what FSDP2 does next, by itself
                records.issued.append(_issued("all-reduce", output_tensor, output_tensor, replicas, op))
        return work


def param_groups(module: Any) -> list[Any]:
    """What FSDP2 keeps of the parameters of one module; empty: the module is not its own."""
    state = getattr(module, "_get_fsdp_state", None)
    found = None if state is None else state()
    several = getattr(found, "_fsdp_param_groups", None)  # of later torch; before there was one
    one = getattr(found, "_fsdp_param_group", None) if several is None else None
    return list(several or ()) if one is None else [one]


def _replicas(module: Any) -> Any:
    """The process group over which gradients are added up after they were scattered (HSDP); None: they are not."""
    groups = [one for one in param_groups(module) if one.all_reduce_grads]
    return getattr(groups[0].mesh_info, "replicate_process_group", None) if len(groups) == 1 else None
