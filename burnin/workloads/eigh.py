"""`eigh`: eigenvalues and eigenvectors of a symmetric matrix by the library, as optimizers with preconditioners use it.

Long chains of dependent operations in the vector units. Voted on bit by bit; and the result must be one at all: the
residual A·Q - Q·Λ and Qᵀ·Q - I stay below their bounds, computed in float64. A GPU that breaks one needs no vote.
"""

from collections.abc import Callable

import torch

from burnin.keys import derive
from burnin.seed import fill_normal
from burnin.workloads import Context
from burnin.workloads.recipes import Prepared, Recipe, Recipes

SIZES_CUDA, SIZES_CPU = (1024, 4096), (48,)
DTYPES = {"fp32": torch.float32, "fp64": torch.float64}
LIMIT = 16.0
"""Bound in units of size · epsilon (· the largest eigenvalue): backward-stable methods stay near one of them."""


class Eigh(Recipes):
    """See the module."""

    test = "eigh"

    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        """One recipe a size and dtype; see `burnin.workloads.recipes`."""
        sizes = SIZES_CUDA if ctx.backend == "cuda" else SIZES_CPU
        return tuple(
            Recipe(name=f"{name} {size}", dtype=name, exact=False, prepare=_preparer(dtype, size))
            for size in sizes
            for name, dtype in DTYPES.items()
        )


def inside_bounds(matrix: torch.Tensor, values: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Return [residual small, vectors orthogonal] as int32 0 or 1; NaN is neither.

    Args:
        matrix: (n, n), symmetric.
        values: (n,) eigenvalues.
        vectors: (n, n) eigenvectors in columns.
    """
    a, w, q = (one.to(torch.float64) for one in (matrix, values, vectors))
    unit = LIMIT * len(matrix) * torch.finfo(matrix.dtype).eps
    residual = (a @ q - q * w).abs().max() <= unit * w.abs().max()
    one = torch.eye(len(matrix), dtype=torch.float64, device=matrix.device)
    orthogonal = (q.t() @ q - one).abs().max() <= unit
    return torch.stack((residual, orthogonal)).to(torch.int32)


def _preparer(dtype: torch.dtype, size: int) -> Callable[[Context, int], Prepared]:
    def prepare(ctx: Context, seed: int) -> Prepared:
        matrix = torch.empty(size, size, dtype=dtype, device=ctx.device)
        fill_normal(matrix, derive(seed, "eigh"))
        matrix = (matrix + matrix.t()).contiguous()
        outputs = {
            "values": torch.empty(size, dtype=dtype, device=ctx.device),
            "vectors": torch.empty(size, size, dtype=dtype, device=ctx.device),
        }

        def launch() -> None:
            values, vectors = torch.linalg.eigh(matrix)
            outputs["values"].copy_(values)
            outputs["vectors"].copy_(vectors)
            ctx.alive()

        def inside() -> torch.Tensor:
            return inside_bounds(matrix, outputs["values"], outputs["vectors"])

        return Prepared(outputs=outputs, launch=launch, inside=inside)

    return prepare
