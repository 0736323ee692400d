"""`overlap.links`: collectives while every GPU multiplies, attends and copies; neither may change the other.

The collective is checked on every rank as in `collective.exact`; what runs beside it must give what it gives alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from burnin.checksum import checksum
from burnin.collectives.algorithms import ALGORITHMS
from burnin.collectives.checks import fabric_of
from burnin.collectives.fabric import Contribution, Fabric
from burnin.collectives.reduce import BYTES_CPU, BYTES_CUDA, CollectiveExact, Form
from burnin.keys import derive
from burnin.spec import Ballot, Case
from burnin.verdict.links import BESIDE
from burnin.workloads import Context
from burnin.workloads.overlap import Beside, alone, float_lanes


class Crowded:
    """A fabric whose collectives run beside the lanes of `overlap`; see `burnin.collectives.fabric.Fabric`."""

    def __init__(self, inner: Fabric, ctx: Context, key: int) -> None:
        """Run the lanes alone, one after the other, for what they must give."""
        self.rank, self.world = inner.rank, inner.world
        self._inner = inner
        self._key = key
        self._lanes = float_lanes(ctx, key)
        self._beside = Beside(ctx.device, self._lanes)
        alone(ctx, self._lanes)
        self._right = self._sums()
        self._wrong: dict[str, int] = {}

    def run(self, op: str, out: torch.Tensor, inputs: Contribution, *, root: int) -> None:
        """Begin the lanes and the collective; see `Fabric`."""
        self._beside.begin()
        self._inner.run(op, out, inputs, root=root)

    def pull(self, outs: Mapping[int, torch.Tensor], inputs: Contribution, *, alone: bool) -> None:
        """Copy from the others; see `Fabric`."""
        self._inner.pull(outs, inputs, alone=alone)

    def settle(self, alive: Callable[[], None]) -> None:
        """Wait for the collective, by its deadline, then for what ran beside it, and look at that."""
        self._inner.settle(alive)
        self._beside.join()
        sums = self._sums()
        self._wrong = {f"{name}{BESIDE}": int(sums[name] != self._right[name]) for name in sums}

    def wrong(self) -> dict[str, int]:
        """Lanes that did not give what they give alone, in the launch that was settled last: name → 0 or 1."""
        return self._wrong

    def _sums(self) -> dict[str, int]:
        return {name: checksum(lane.output, self._key) for name, lane in self._lanes.items()}


class OverlapLinks(CollectiveExact):
    """See the module."""

    test = "overlap.links"
    crowded: Crowded | None = None

    def forms(self, ctx: Context) -> tuple[Form, ...]:
        """A reduction and an exchange of large integers and rounded ones, by the library's own choice."""
        size = (BYTES_CUDA if ctx.backend == "cuda" else BYTES_CPU)[-1]
        algorithm = next(iter(ALGORITHMS[ctx.backend]))
        return tuple(
            Form(op=op, dtype=dtype, size=size, algorithm=algorithm)
            for op in ("all-reduce", "all-to-all")
            for dtype in ("int32", "bf16")
        )

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Carry out one collective `launches` times beside the lanes; see `burnin.workloads.Workload`."""
        self.crowded = Crowded(fabric_of(ctx), ctx, derive(seed, self.test, "lanes"))
        crowd = replace(ctx, fabric=self.crowded)
        return super().ballot(crowd, case, iteration=iteration, seed=seed, launches=launches)

    def also_wrong(self) -> dict[str, int]:
        """What ran beside the last launch and was wrong."""
        return self.crowded.wrong() if self.crowded is not None else {}
