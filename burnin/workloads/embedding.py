"""`embedding`: tables of a recommendation model: bags are gathered and summed, gradients scattered in sorted order.

Integers have a golden; floats are added in an order that the kernel fixes, so that healthy GPUs of a kind agree. The
bags are drawn uniformly and by Zipf's law (exponent 1.15, as in logs of such models): then a few rows are hot.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from burnin.kernels import gather_on_device, on_device, scatter_on_device
from burnin.keys import derive
from burnin.seed import fill_integers, fill_normal, random_words
from burnin.workloads import Context
from burnin.workloads.recipes import Prepared, Recipe, Recipes

ZIPF = 1.15
MAGNITUDE = 64
"""Of integers: sums of a bag, and of a hot row's gradients, stay below 2**24."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of all tables together: their rows stand one below the other, as table-batched kernels keep them."""

    tables: int
    rows: int
    """Of one table."""
    width: int
    bags: int
    """Of one table."""
    length: int
    """Rows in a bag."""


SIZE_CUDA = Size(tables=8, rows=65_536, width=128, bags=2048, length=32)
SIZE_CPU = Size(tables=2, rows=128, width=32, bags=16, length=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bags:
    """Which rows are added up, and the same the other way round: sorted by row, for the backward pass. int64."""

    indices: torch.Tensor
    """(bags, length) rows of the tables."""
    touched: torch.Tensor
    """(touched,) rows that any bag has, ascending."""
    starts: torch.Tensor
    """(touched + 1,) where the bags of each begin in `order`."""
    order: torch.Tensor
    """(bags * length,) bags, sorted by row; within a row ascending."""


class Embedding(Recipes):
    """See the module."""

    test = "embedding"

    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        """Each distribution in each dtype; see `burnin.workloads.recipes`."""
        del ctx
        kinds = (("fp32 integers", torch.float32, True), ("fp32", torch.float32, False), ("fp16", torch.float16, False))
        return tuple(
            Recipe(
                name=f"{name} {law}",
                dtype=name.partition(" ")[0],
                exact=exact,
                prepare=_preparer(dtype, law, exact=exact),
            )
            for law in ("uniform", "zipf")
            for name, dtype, exact in kinds
        )


def bags(size: Size, law: str, seed: int, device: torch.device) -> Bags:
    """Draw the bags on the CPU, whose floating point makes them the same for every device.

    Args:
        size: of the tables.
        law: `uniform` or `zipf`.
        seed: of the draw.
        device: where the indices are wanted.
    """
    count = size.tables * size.bags * size.length
    uniform = random_words(derive(seed, "embedding", law), 0, count).astype(np.float64) / 2.0**32
    if law == "zipf":
        weights = np.cumsum(np.arange(1, size.rows + 1, dtype=np.float64) ** -ZIPF)
        drawn = np.minimum(np.searchsorted(weights / weights[-1], uniform), size.rows - 1)
    else:
        drawn = (uniform * size.rows).astype(np.int64)
    tables = np.repeat(np.arange(size.tables, dtype=np.int64), size.bags * size.length)
    flat = drawn.astype(np.int64) + tables * size.rows
    sorted_at = np.argsort(flat, kind="stable")
    touched, first = np.unique(flat[sorted_at], return_index=True)
    starts = np.append(first, count).astype(np.int64)
    made = (flat.reshape(-1, size.length), touched, starts, sorted_at // size.length)
    indices, rows, begins, order = (torch.from_numpy(np.ascontiguousarray(one)).to(device) for one in made)
    return Bags(indices=indices, touched=rows, starts=begins, order=order)


def gather(table: torch.Tensor, drawn: Bags) -> torch.Tensor:
    """Return (bags, width) float32 sums of rows, added in the order of the bag."""
    total = torch.zeros(len(drawn.indices), table.shape[1], dtype=torch.float32)
    for at in range(drawn.indices.shape[1]):
        total += table[drawn.indices[:, at]].to(torch.float32)
    return total


def scatter(gradient: torch.Tensor, drawn: Bags) -> torch.Tensor:
    """Return (touched, width) float32 sums of gradients (bags, width), added in sorted order."""
    total = torch.zeros(len(drawn.touched), gradient.shape[1], dtype=torch.float32)
    owner = torch.repeat_interleave(torch.arange(len(drawn.touched)), drawn.starts.diff())
    return total.index_add_(0, owner, gradient[drawn.order].to(torch.float32))


def _preparer(dtype: torch.dtype, law: str, *, exact: bool) -> Callable[[Context, int], Prepared]:
    def inputs(ctx: Context, seed: int) -> tuple[torch.Tensor, torch.Tensor, Bags]:
        size = SIZE_CUDA if ctx.backend == "cuda" else SIZE_CPU
        table = torch.empty(size.tables * size.rows, size.width, dtype=dtype, device=ctx.device)
        gradient = torch.empty(size.tables * size.bags, size.width, dtype=dtype, device=ctx.device)
        for name, value in (("table", table), ("gradient", gradient)):
            key = derive(seed, "embedding", law, name)
            if exact:
                fill_integers(value, key, MAGNITUDE)
            else:
                fill_normal(value, key)
        return table, gradient, bags(size, law, seed, ctx.device)

    def prepare(ctx: Context, seed: int) -> Prepared:
        table, gradient, drawn = inputs(ctx, seed)
        width = table.shape[1]
        outputs = {
            "bags": torch.empty(len(drawn.indices), width, dtype=torch.float32, device=ctx.device),
            "gradient": torch.empty(len(drawn.touched), width, dtype=torch.float32, device=ctx.device),
        }

        def launch() -> None:
            if on_device(table):
                gather_on_device(outputs["bags"], table, drawn.indices)
                scatter_on_device(outputs["gradient"], gradient, drawn.starts, drawn.order)
            else:
                outputs["bags"].copy_(gather(table, drawn))
                outputs["gradient"].copy_(scatter(gradient, drawn))

        def truth() -> dict[str, torch.Tensor]:
            here = Context(backend=ctx.backend, device=torch.device("cpu"), inject=None, alive=ctx.alive)
            right_table, right_gradient, right_drawn = inputs(here, seed)
            ctx.alive()
            return {"bags": gather(right_table, right_drawn), "gradient": scatter(right_gradient, right_drawn)}

        return Prepared(outputs=outputs, launch=launch, truth=truth if exact else None)

    return prepare
