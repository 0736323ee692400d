"""What the workloads over links share: what a launch found, as a ballot that is the same on every healthy rank.

A rank's results differ from another's, so what is voted on is what was *wrong* with them: nothing, on all sane ranks.
The trace names the partners from which something wrong came, as distances between ranks ("from +3" is three ranks on),
so that it does not depend on who says it.
"""

from collections import Counter
from dataclasses import dataclass, field

import torch

from burnin.collectives.fabric import Fabric, Simulated
from burnin.inject import WORD
from burnin.keys import derive
from burnin.spec import Ballot, Case, Elements, Proof
from burnin.verdict.links import CLEAN
from burnin.workloads import Context
from burnin.workloads.launches import tally

RESULT, FROM_HOST, TO_HOST, DISTINCT = "result", "from host", "to host", "distinct"
"""Names in a trace: a result that all ranks have a part in; copies; how many different results a float case gave."""


def fabric_of(ctx: Context) -> Fabric:
    """The fabric of this rank; alone in a process, a simulated one."""
    return ctx.fabric if ctx.fabric is not None else Simulated()


def source(fabric: Fabric, rank: int) -> str:
    """The name in a trace of what comes from a rank."""
    return f"from +{(rank - fabric.rank) % fabric.world}"


def same_bits(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one dtype are equal bit by bit (bool, of their shape)."""
    word = WORD[one.element_size()]
    return one.contiguous().view(word) == other.contiguous().view(word)


@dataclass(slots=True)
class Found:
    """What a series of launches found."""

    case: Case
    iteration: int
    seed: int
    values: list[int] = field(default_factory=list)
    wrong: Counter[str] = field(default_factory=Counter)
    fired: int = 0

    def launch(self, wrong: dict[str, int], checksum: int) -> None:
        """Add one launch: name → wrong elements (0: none), and the checksum of what arrived."""
        there = {name: count for name, count in wrong.items() if count}
        self.wrong.update(there)
        what = [part for name, count in sorted(there.items()) for part in (name, count)]
        self.values.append(derive(0, self.case.name, *what, checksum) if there else CLEAN)

    def ballot(self, *, nbytes: int, elapsed_s: float, more: tuple[tuple[str, str], ...] = ()) -> Ballot:
        """The ballot; `nbytes`: of one launch, which are also the work by which its rate is told."""
        fingerprints, _ = tally(self.values)
        launches = len(self.values)
        return Ballot(
            case=self.case.name,
            iteration=self.iteration,
            seed=self.seed,
            fingerprints=fingerprints,
            launches=launches,
            bytes=nbytes * launches,
            flops=nbytes * launches,
            elapsed_s=elapsed_s,
            trace=tuple((name, str(count)) for name, count in sorted(self.wrong.items())) + more,
            fired=self.fired,
        )


class Links:
    """The parts of a workload that are the same for all tests over links; see `burnin.workloads.Workload`."""

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """What is right is known without a device: nothing may differ from what was put in. The check must have eyes.

        Raises:
            RuntimeError: The comparison does not see a flipped bit.
        """
        ctx.alive()
        right = torch.arange(64, dtype=torch.int32)
        flipped = right.clone()
        flipped[seed % 64] ^= 1 << seed % 31
        if int((~same_bits(right, flipped)).sum()) != 1 or not bool(same_bits(right, right.clone()).all()):
            raise RuntimeError("the comparison does not see a flipped bit: nothing was checked")
        why = "known beforehand: what arrives is what the inputs make it"
        return Proof(case=case.name, seed=seed, fingerprint=f"{CLEAN:016x}", why=why)

    def examine(
        self, ctx: Context, case: Case, *, seed: int, launches: int, right: str | None, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Nothing: a transfer takes all ranks, and one of them is asked."""
        del ctx, case, seed, launches, right, tiles
        return None
