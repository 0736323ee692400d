"""Faults to plant into a training job: below autograd and the collectives, where broken hardware would sit.

A *planted* fault is a dispatch mode: every operation of torch that runs inside passes through it, those of the guard
and its exact tests included. What changes state at rest (memory) is done by hand, between an update and the next step.
"""

import random
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = frozenset({"aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default"})
KINDS = (
    "chip-transient",
    "chip-persistent",
    "memory",
    "optimizer",
    "link",
    "copy",
    "software",
    "loader",
)
"""Everything that can be planted. `link` is one direction between two ranks, `copy` one rank's results."""
_GATHERS = ("c10d._allgather_base_", "c10d.alltoall_base_")
_SUMS = ("c10d.allreduce_", "c10d._reduce_scatter_base_")
_SMALLEST = 64
"""Elements of a transfer that a broken link damages: control messages have checksums of their own."""


class Planted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """One fault on one rank (software: on all)."""

    def __init__(self, kind: str, *, rank: int, victim: int, source: int, world: int, seed: int, skip: int = 0) -> None:
        """Plant it; it strikes what runs inside `with`.

        Args:
            kind: one of `KINDS`; `memory`, `optimizer` and `loader` do nothing here.
            rank: this one.
            victim: where it shows.
            source: `link`: from there data arrive wrong at the victim.
            world: ranks.
            seed: of where it strikes; `software` draws from the system instead.
            skip: `chip-transient`: products that it lets pass before it strikes one.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.kind = kind
        self.fired = 0
        self._here = rank == victim or kind == "software"
        self._source, self._world = source, world
        self._rng = random.Random(seed)  # noqa: S311 - where a fault strikes is no secret
        self._lane, self._bit = self._rng.randrange(4), self._rng.choice((19, 20, 21))
        self._skip = skip
        # Software that races is not reproducible by any seed of the program's.
        self._noise = torch.Generator()
        if kind == "software":
            self._noise.seed()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and damage what it made if the fault strikes there."""
        del types
        result = func(*args, **(kwargs or {}))
        if not self._here:
            return result
        name = str(func)
        if name in PRODUCTS:
            self._product(args, result)
        elif self.kind in {"link", "copy"} and name.startswith((*_GATHERS, *_SUMS)):
            self._transfer(name, args, result)
        return result

    def _product(self, args: Any, result: torch.Tensor) -> None:
        if self.kind == "software":
            # Terms in another order each time, as with atomic additions: rounding differs, integers do not.
            left, right = args[-2:]
            order = torch.randperm(right.shape[-2], generator=self._noise)
            again = left[..., order] @ right[..., order, :]
            result.copy_(args[0] + again if len(args) > 2 else again)  # noqa: PLR2004 - addmm has a bias
            self.fired += 1
        elif self.kind == "chip-persistent":
            self._strike(result)
        elif self.kind == "chip-transient" and not self.fired:
            if self._skip:
                self._skip -= 1
            else:
                self._strike(result)

    def _strike(self, result: torch.Tensor) -> None:
        """Flip a bit of every fourth element, as one broken lane of a multiprocessor does."""
        if result.dtype is torch.float32 and result.numel() > self._lane:
            flip(result, self._bit, slice(self._lane, None, 4))
            self.fired += 1

    def _transfer(self, name: str, args: Any, result: Any) -> None:
        """Wait until it has arrived, then damage it."""
        out = args[0]
        while isinstance(out, list | tuple):
            out = out[0]
        if out.dtype is not torch.float32 or out.numel() < _SMALLEST:
            return
        # NCCL runs what is not asynchronous (`asyncOp`, one of the arguments, is False) on the current stream and gives
        # a null for it: to wait for that ends the process by a signal.
        if not (out.is_cuda and any(one is False for one in args)):
            work = result[-1] if isinstance(result, list | tuple) else result
            work.wait()
        part = slice(0, 16)
        if self.kind == "link" and name.startswith(_GATHERS):
            begin = self._source * (out.numel() // self._world)
            part = slice(begin, begin + 16)
        elif self.kind == "copy" and name.startswith("c10d.alltoall_base_"):
            return  # the copy after the collective is broken, not the way between the ranks
        flip(out, self._bit, part)
        self.fired += 1


def flip(tensor: torch.Tensor, bit: int, part: slice) -> None:
    """Flip one bit of some elements of a contiguous float32 tensor, behind the back of autograd and of torch's count.

    Hardware counts no write; a write that torch counts is the program's, and the guard takes it for that.
    """
    tensor.data.view(-1).view(torch.int32)[part] ^= 1 << bit


def flip_at_rest(tensors: list[torch.Tensor], rng: random.Random) -> None:
    """Flip one bit of one element of one tensor: memory that lost a charge."""
    tensor = rng.choice([one for one in tensors if one.dtype is torch.float32 and one.numel() > 1])
    where = rng.randrange(tensor.numel())
    flip(tensor, rng.randrange(8, 23), slice(where, where + 1))
