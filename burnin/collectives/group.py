"""The ranks of a host as a process group: NCCL or RCCL between GPUs, gloo between processes on a CPU."""

import os
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from burnin.collectives.fabric import Contribution, LostError, StuckError, UnsupportedError

POLL_S = 50e-6
"""Between two looks at an event of the GPU."""
UNSUPPORTED = ("invalid usage", "invalid argument", "no algorithm", "not supported")
"""What NCCL and RCCL say of an algorithm or a protocol that they do not have for an operation."""


class Group:
    """One rank of a process group; see `burnin.collectives.fabric.Fabric`. Joining waits for all others."""

    def __init__(self, setup: Mapping[str, Any], device: torch.device) -> None:
        """Join.

        Args:
            setup: rank, world, store (path of a file that all ranks share), ordinals (of torch, by rank), deadline_s,
                env (settings of the library, which reads them when it joins).
            device: of this rank.

        Raises:
            StuckError: Not all ranks came in time.
        """
        os.environ.update(setup["env"])
        self.rank, self.world = int(setup["rank"]), int(setup["world"])
        self._device = device
        self._deadline_s = float(setup["deadline_s"])
        self._ordinals = tuple(setup["ordinals"])
        self._event: Any = None
        cuda = device.type == "cuda"
        self._streams = tuple(_stream(device) for _ in range(self.world - 1)) if cuda else ()
        store = dist.FileStore(setup["store"], self.world)  # type: ignore[attr-defined]  # it is not in __all__
        # A file, not a port: nobody else can join, and nothing is left listening. NCCL's own watchdog, which ends the
        # process without a word, comes after ours.
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        factor = 2 if device.type == "cuda" else 1
        with _told():
            dist.init_process_group(
                backend,
                store=store,
                rank=self.rank,
                world_size=self.world,
                timeout=timedelta(seconds=factor * self._deadline_s),
            )

    def run(self, op: str, out: torch.Tensor, inputs: Contribution, *, root: int) -> None:
        """Begin one collective; see `Fabric`."""
        mine = inputs(self.rank)
        with _told():
            if op in {"all-reduce", "broadcast"}:
                if op == "all-reduce" or self.rank == root:
                    out.copy_(mine)
                work = (
                    dist.all_reduce(out, async_op=True)
                    if op == "all-reduce"
                    else dist.broadcast(out, src=root, async_op=True)
                )
            elif op == "reduce-scatter":
                scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
                work = scatter(out, mine, async_op=True)
            elif op == "all-gather":
                gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
                work = gather(out, mine, async_op=True)
            else:
                work = dist.all_to_all_single(out, mine, async_op=True)
            work.wait()  # gloo: until it ends, at most the deadline; NCCL: only the stream waits
        self._mark()

    def pull(self, outs: Mapping[int, torch.Tensor], inputs: Contribution, *, alone: bool) -> None:
        """Copy from every other rank; see `Fabric`."""
        if self._device.type == "cuda":
            self._pull_peers(outs, inputs, alone=alone)
            return
        mine = inputs(self.rank)
        for step in range(1, self.world):
            source, target = (self.rank + step) % self.world, (self.rank - step) % self.world
            turns = range(self.world) if alone else (self.rank,)
            for receiver in turns:
                works = []
                with _told():
                    if receiver == self.rank:
                        works.append(dist.irecv(outs[source], source))
                    if not alone or receiver == target:
                        works.append(dist.isend(mine, target))
                    for work in works:
                        if work is not None:
                            work.wait()

    def _pull_peers(self, outs: Mapping[int, torch.Tensor], inputs: Contribution, *, alone: bool) -> None:
        """Copy between GPUs by this process: what it reads lies on the other GPU, made there by this process."""
        for step in range(1, self.world):
            source = (self.rank + step) % self.world
            for receiver in range(self.world) if alone else (self.rank,):
                if receiver == self.rank:
                    self._copy(outs[source], inputs(source), self._streams[step - 1])
                if alone:
                    torch.cuda.synchronize(self._device)
                    self.meet()
        for stream in self._streams:
            torch.cuda.current_stream(self._device).wait_stream(stream)
        self._mark()

    def _copy(self, out: torch.Tensor, there: torch.Tensor, stream: torch.cuda.Stream) -> None:
        """Copy on a stream of its own, so that copies from several GPUs run side by side."""
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            out.copy_(there, non_blocking=True)

    def meet(self) -> None:
        """Wait for all ranks, on the CPU. Raises StuckError or LostError."""
        with _told():
            dist.all_reduce(torch.zeros(1))

    def device_of(self, rank: int) -> torch.device:
        """The device on which a rank's data lie, as this process sees it."""
        return torch.device("cuda", self._ordinals[rank]) if self._device.type == "cuda" else self._device

    def settle(self, alive: Callable[[], None]) -> None:
        """Wait for the event after the last transfer; see `Fabric`."""
        begun_s = time.perf_counter()
        while self._event is not None and not self._event.query():
            if time.perf_counter() - begun_s > self._deadline_s:
                raise StuckError(f"a transfer has not ended after {self._deadline_s:.0f} s")
            alive()
            select.select((), (), (), POLL_S)
        alive()

    def _mark(self) -> None:
        if self._device.type == "cuda":
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def _told() -> Iterator[None]:
    """Tell the library's errors apart. Those of CUDA itself pass: they are this GPU's."""
    try:
        yield
    except RuntimeError as error:
        text = (str(error).strip() or "no message").splitlines()[0]
        lower = str(error).lower()
        if "cuda error" in lower or "out of memory" in lower:
            raise
        if any(words in lower for words in UNSUPPORTED):
            raise UnsupportedError(f"{text:.200}") from error
        if "timed out" in lower or "timeout" in lower:
            raise StuckError(f"{text:.200}") from error
        raise LostError(f"{text:.200}") from error
