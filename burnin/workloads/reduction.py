"""`reduction`: the same columns of integers summed by a tree and by atomic additions; both must give the CPU's sums.

The atomics meet in the second-level cache, across chiplets on parts that have several.
"""

from collections.abc import Callable

import torch

from burnin.kernels import atomic_sums_on_device, on_device
from burnin.keys import derive
from burnin.seed import fill_integers
from burnin.workloads import Context
from burnin.workloads.recipes import Prepared, Recipe, Recipes

ROWS_CUDA, COLUMNS_CUDA = 65_536, 1024
ROWS_CPU, COLUMNS_CPU = 256, 128
MAGNITUDES = {torch.int32: 16_384, torch.int64: 32_767, torch.float32: 255}
"""With 65,536 rows the sums stay below 2**31, 2**63 and 2**24, so that every order gives the same."""


class Reduction(Recipes):
    """See the module."""

    test = "reduction"

    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        """One recipe a dtype; see `burnin.workloads.recipes`."""
        del ctx
        names = {torch.int32: "int32", torch.int64: "int64", torch.float32: "fp32"}
        return tuple(
            Recipe(name=f"{name} tree and atomics", dtype=name, exact=True, prepare=_preparer(dtype))
            for dtype, name in names.items()
        )


def _matrix(ctx: Context, dtype: torch.dtype, seed: int) -> torch.Tensor:
    shape = (ROWS_CUDA, COLUMNS_CUDA) if ctx.backend == "cuda" else (ROWS_CPU, COLUMNS_CPU)
    matrix = torch.empty(shape, dtype=dtype, device=ctx.device)
    fill_integers(matrix, derive(seed, "reduction"), MAGNITUDES[dtype])
    return matrix


def _preparer(dtype: torch.dtype) -> Callable[[Context, int], Prepared]:
    def prepare(ctx: Context, seed: int) -> Prepared:
        matrix = _matrix(ctx, dtype, seed)
        outputs = {name: torch.empty(matrix.shape[1], dtype=dtype, device=ctx.device) for name in ("tree", "atomics")}
        nowhere = torch.zeros(len(matrix), dtype=torch.int64, device=ctx.device)

        def launch() -> None:
            outputs["tree"].copy_(matrix.sum(dim=0))
            if on_device(matrix):
                atomic_sums_on_device(outputs["atomics"], matrix)
            else:
                outputs["atomics"].zero_().view(1, -1).index_add_(0, nowhere, matrix)

        def truth() -> dict[str, torch.Tensor]:
            here = Context(backend=ctx.backend, device=torch.device("cpu"), inject=None, alive=ctx.alive)
            sums = _matrix(here, dtype, seed).to(torch.int64).sum(dim=0).to(dtype)
            return {"tree": sums, "atomics": sums}

        return Prepared(outputs=outputs, launch=launch, truth=truth)

    return prepare
