"""`inductor`: a graph of pointwise operations and reductions, compiled by torch.compile and voted on.

The compiled kernels are those that training jobs run. They must agree on all GPUs, and stay near what the same graph
gives without the compiler, in float64: a code generator that is wrong everywhere is not voted down.
"""

from collections.abc import Callable
from shutil import which
from typing import Any

import torch
from torch.nn import functional

from burnin.kernels import have_triton
from burnin.keys import derive
from burnin.seed import fill_normal
from burnin.workloads import Context, MissingError
from burnin.workloads.recipes import Prepared, Recipe, Recipes

SHAPE_CUDA, SHAPE_CPU = (8192, 4096), (64, 256)
TOLERANCES = {torch.bfloat16: 2.0**-4, torch.float32: 2.0**-12}
"""Largest deviation from float64, relative to the largest value: some roundings of the dtype."""
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Inductor(Recipes):
    """See the module."""

    test = "inductor"

    def __init__(self) -> None:
        super().__init__()
        self._compiled: Callable[..., Any] | None = None

    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        """One recipe a dtype; see `burnin.workloads.recipes`."""
        if ctx.device.type == "cuda" and not have_triton():
            raise MissingError("triton is not installed, and torch.compile needs it")
        if all(which(name) is None for name in ("c++", "g++", "clang++", "cc", "gcc", "clang")):
            raise MissingError("torch.compile needs a C++ compiler and finds none; install g++")
        return tuple(
            Recipe(name=f"{name} pointwise and reductions", dtype=name, exact=False, prepare=self._preparer(dtype))
            for name, dtype in DTYPES.items()
        )

    def _preparer(self, dtype: torch.dtype) -> Callable[[Context, int], Prepared]:
        def prepare(ctx: Context, seed: int) -> Prepared:
            shape = SHAPE_CUDA if ctx.backend == "cuda" else SHAPE_CPU
            x, gate = (torch.empty(shape, dtype=dtype, device=ctx.device) for _ in range(2))
            for name, one in (("x", x), ("gate", gate)):
                fill_normal(one, derive(seed, "inductor", name))
            if self._compiled is None:
                self._compiled = torch.compile(graph, dynamic=False)
            compiled = self._compiled
            outputs = {
                "activated": torch.empty(shape, dtype=dtype, device=ctx.device),
                "normed": torch.empty(shape, dtype=dtype, device=ctx.device),
                "sums": torch.empty(shape[0], dtype=torch.float32, device=ctx.device),
            }
            right = graph(x.to(torch.float64), gate.to(torch.float64))

            def launch() -> None:
                found = compiled(x, gate)
                for output, one in zip(outputs.values(), found, strict=True):
                    output.copy_(one)
                ctx.alive()

            def inside() -> torch.Tensor:
                return near(tuple(outputs.values()), right, TOLERANCES[dtype])

            return Prepared(outputs=outputs, launch=launch, inside=inside)

        return prepare


def graph(x: torch.Tensor, gate: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a gated activation, its root-mean-square norm, and sums of its rows (float32 or wider)."""
    activated = functional.silu(gate) * x + torch.tanh(x)
    wide = activated.to(torch.float64 if x.dtype is torch.float64 else torch.float32)
    normed = (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-6)).to(x.dtype)
    return activated, normed, wide.sum(dim=-1)


def near(found: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...], tolerance: float) -> torch.Tensor:
    """Return 1 for every tensor that is near the right one, else 0 (NaN is not near), as int32."""
    inside = [
        (one.to(torch.float64) - other).abs().max() <= tolerance * other.abs().max()
        for one, other in zip(found, right, strict=True)
    ]
    return torch.stack(inside).to(torch.int32)
