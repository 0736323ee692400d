"""How data travel between ranks, as the workloads see it; and a fabric simulated in one process."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch

OPS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast")
WORLD = 8
"""Ranks of a fabric that is simulated for one process alone."""

Contribution = Callable[[int], torch.Tensor]
"""Rank → what it puts in: a flat tensor whose length is a multiple of the ranks."""


class StuckError(RuntimeError):
    """A transfer did not end in its time. Says nothing of who keeps the others waiting."""


class LostError(RuntimeError):
    """A transfer broke off because another rank left. Says nothing against this one."""


class UnsupportedError(RuntimeError):
    """The library refuses this operation with this algorithm: no verdict, the case is skipped."""


class Fabric(Protocol):
    """The ranks of a host, seen from one of them."""

    rank: int
    world: int

    def run(self, op: str, out: torch.Tensor, inputs: Contribution, *, root: int) -> None:
        """Carry out one collective of `OPS`; every rank calls it with the same arguments but its own output.

        Args:
            op: which.
            out: flat; of `reduce-scatter` one block, else as long as a contribution, of `all-gather` as all of them.
            inputs: what the ranks put in; a real group takes its own only.
            root: of `broadcast`.

        Raises:
            StuckError: It did not end in time.
            LostError: Another rank left.
            UnsupportedError: The library cannot do it with this algorithm.
        """

    def pull(self, outs: Mapping[int, torch.Tensor], inputs: Contribution, *, alone: bool) -> None:
        """Copy the contribution of every rank in `outs` to its tensor here; the others do the same.

        Args:
            outs: rank → where its data go; all ranks but this one.
            inputs: rank → what is copied.
            alone: one pair at a time on the whole host, not all at once.

        Raises:
            StuckError: It did not end in time.
            LostError: Another rank left.
        """

    def settle(self, alive: Callable[[], None]) -> None:
        """Wait until what was begun has ended, feeding the watchdog. Raises StuckError."""


class Simulated:
    """All ranks in one process, seen from rank 0: for simulated GPUs, where no link exists that could break."""

    rank = 0

    def __init__(self, world: int = WORLD, *, reorder: bool = False) -> None:
        """`reorder`: every reduction adds in another order than the one before, as some libraries do."""
        self.world = world
        self._reorder = reorder
        self._runs = 0

    def run(self, op: str, out: torch.Tensor, inputs: Contribution, *, root: int) -> None:
        """Compute what rank 0 receives; see `Fabric`."""
        self._runs += 1
        if op == "broadcast":
            out.copy_(inputs(root))
        elif op == "all-gather":
            torch.cat([inputs(rank) for rank in range(self.world)], out=out)
        elif op == "all-to-all":
            torch.cat([self._block(inputs(rank)) for rank in range(self.world)], out=out)
        else:
            first = self._runs if self._reorder else 0
            ranks = [(first + step) % self.world for step in range(self.world)]
            parts = [inputs(rank) if op == "all-reduce" else self._block(inputs(rank)) for rank in ranks]
            out.copy_(parts[0])
            for part in parts[1:]:
                out += part

    def _block(self, whole: torch.Tensor) -> torch.Tensor:
        return whole.view(self.world, -1)[self.rank]

    def pull(self, outs: Mapping[int, torch.Tensor], inputs: Contribution, *, alone: bool) -> None:
        """Copy; see `Fabric`."""
        del alone
        for rank, out in outs.items():
            out.copy_(inputs(rank))

    def settle(self, alive: Callable[[], None]) -> None:
        """Nothing is under way here."""
        alive()
