"""What the collectives of one run saw: fingerprints of what went in and of what came out, and sums to bound the error.

A *record* belongs to one call of a collective (a bucket of DDP, a layer of FSDP2), in order of execution.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from burnin.guard.hashes import Pending

BLOCK = 256
"""Elements whose sum is followed through a collective; a shorter last block is padded with zeros."""
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""Unit roundoff by dtype."""


@dataclass(slots=True)
class Record:
    """One call."""

    kind: str
    """`all-reduce`, `reduce-scatter` or `all-gather`."""
    before: Pending | None
    """Fingerprints of what this rank put in, one a tensor."""
    after: Pending | None = None
    """Fingerprints of what came out; None where each rank has another part, or it is looked at elsewhere."""
    put: torch.Tensor | None = None
    """float64, shape (2, blocks): sums and sums of magnitudes of what this rank put in."""
    got: torch.Tensor | None = None
    """float64, shape (blocks,): sums of what came out, times the divisor."""
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """One collective that was begun, as far as other ranks depend on it."""

    kind: str
    """`all-reduce`, `reduce-scatter` or `all-gather`."""
    put: int
    """Elements that each rank puts in."""
    got: int
    """Elements that each rank gets."""
    dtype: torch.dtype
    device: torch.device
    group: Any
    op: Any = field(default=None, compare=False)
    """Of a sum; None: the default one. Made anew for each call, so that it says nothing of equality."""


@dataclass(slots=True)
class Records:
    """Those of one run."""

    issued: list[Issued] = field(default_factory=list)
    """All collectives that were begun, in order, the guard's own among them."""

    names: list[str] = field(default_factory=list)
    """Of the tensors in `before` of the sums (not of the gathers), in order."""
    calls: list[Record] = field(default_factory=list)
    unknown: str = ""
    """Why a collective could not be followed; "" when all were."""

    @property
    def sums(self) -> list[Record]:
        """The calls that add."""
        return [call for call in self.calls if call.kind != "all-gather"]

    @property
    def gathers(self) -> list[Record]:
        """The calls that copy."""
        return [call for call in self.calls if call.kind == "all-gather"]


def block_sums(flat: torch.Tensor, parts: int = 1) -> torch.Tensor:
    """Return float64 sums of blocks, shape (parts, blocks of a part).

    Args:
        flat: 1-D, any float dtype; its length a multiple of `parts`.
        parts: the tensor is cut into so many equal parts first, so that no block crosses their borders.
    """
    blocks = _blocks(flat, parts)
    return blocks.sum(dim=-1, dtype=torch.float64)


def block_magnitudes(flat: torch.Tensor, parts: int = 1) -> torch.Tensor:
    """Return the sums of magnitudes of the same blocks."""
    magnitudes: torch.Tensor = torch.linalg.vector_norm(_blocks(flat, parts), ord=1, dim=-1, dtype=torch.float64)
    return magnitudes


def outside(put: torch.Tensor, got: torch.Tensor, *, world: int, dtype: torch.dtype) -> torch.Tensor:
    """Count the blocks that came out of a sum over ranks with more error than any order of its terms explains.

    A sum of n terms errs by at most nu / (1 - nu) of the sum of their magnitudes (Higham, Accuracy and Stability of
    Numerical Algorithms, 4.2); two roundings more are those of the division by the ranks. The float64 sums that are
    compared add 2**-40 of it, and the smallest normal number covers what underflows. NaN where the terms are finite is
    outside; where a term is NaN or infinite, nothing can be said.

    Args:
        put: float64, shape (2, blocks): sums and magnitudes, added over the ranks.
        got: float64, shape (blocks,).
        world: ranks.
        dtype: in which the collective computes.

    Returns:
        int64, a single number, on the device: nothing is waited for.
    """
    relative = (world + 2) * UNIT.get(dtype, 2.0**-8)
    slack = put[1] * (relative / (1 - min(relative, 0.5)) + 2.0**-40) + BLOCK * world * torch.finfo(dtype).tiny
    finite = torch.isfinite(put).all(dim=0)
    return (finite & ~((got - put[0]).abs() <= slack)).sum()


def _blocks(flat: torch.Tensor, parts: int) -> torch.Tensor:
    rows = flat.detach().reshape(parts, -1)
    missing = -rows.shape[1] % BLOCK
    if missing:
        rows = torch.nn.functional.pad(rows, (0, missing))
    return rows.view(parts, -1, BLOCK)
